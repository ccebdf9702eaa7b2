// SPDX-License-Identifier: Apache-2.0

// Chooses the kernels that OpenBLAS runs on this CPU.
//
// When OpenBLAS is loaded, before main() begins, it chooses its kernels by the
// model number of the CPU. For a model that is newer than the library it takes
// its kernels of 2004 ("Prescott", SSE3), although the CPU has AVX2 or AVX-512:
// matrix products are then a quarter as fast. The environment variable
// OPENBLAS_CORETYPE overrides the choice.
#ifndef HOLDFAST_WORKER_BACKEND_CPU_BLAS_CORE_H_
#define HOLDFAST_WORKER_BACKEND_CPU_BLAS_CORE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/simd.h"

namespace holdfast {

// Returns the core that OpenBLAS should be told to use if it chose `chosen` by
// itself and the CPU has the instructions `simd`. Null if that choice is good.
const char* BetterBlasCore(absl::string_view chosen, Simd simd);

// If there is a BetterBlasCore for this CPU and OPENBLAS_CORETYPE is not set,
// sets it and restarts the program in the same process, with the same
// arguments. Otherwise returns OK. Must be called first in main(), before there
// are threads or open files.
// Errors: of the system, if the program cannot be restarted. It may continue,
// with slow matrix products, and should log the error as a warning.
absl::Status RestartWithBetterBlasCore(char** argv);

// For tests: runs `program` in this process, with OPENBLAS_CORETYPE set to
// `core`. Returns only if that fails, with the environment unchanged.
absl::Status RestartWithBlasCore(const char* core, const std::string& program,
                                 char** argv);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_BLAS_CORE_H_
