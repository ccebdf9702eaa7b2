// SPDX-License-Identifier: Apache-2.0

// The function that the dynamic linker would have chosen without the override.
#ifndef HOLDFAST_BAZEL_TSAN_NEXT_H_
#define HOLDFAST_BAZEL_TSAN_NEXT_H_

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace holdfast::tsan {

template <typename Function>
Function* Next(const char* symbol) {
  void* const next = dlsym(RTLD_NEXT, symbol);
  if (next == nullptr) {
    std::fprintf(stderr, "bazel/tsan: no library has %s\n", symbol);
    std::abort();
  }
  return reinterpret_cast<Function*>(next);
}

}  // namespace holdfast::tsan

#endif  // HOLDFAST_BAZEL_TSAN_NEXT_H_
