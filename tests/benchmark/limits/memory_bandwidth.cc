// SPDX-License-Identifier: Apache-2.0

// Measures this machine's memory bandwidth: memcpy, and the triad of STREAM (J.
// D. McCalpin, "Memory Bandwidth and Machine Balance", 1995), a = b + s c.
//
// memcpy counts the bytes copied, the triad two reads and a write; the read of
// a cache line before a write is not counted. Arrays are 256 MiB, larger than
// any cache. Reports the best of several passes, as STREAM does. Prints JSON
// lines in the format of tests/benchmark/peers/harness.py.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace holdfast {
namespace {

constexpr int64_t kCount = 64 << 20;
constexpr int kPasses = 10;

__attribute__((target_clones("avx512f", "avx2", "default"))) void Triad(
    const float* b, const float* c, int64_t count, float* a) {
  for (int64_t i = 0; i < count; ++i) a[i] = b[i] + 3.0f * c[i];
}

// Prints the best rate of `work(begin, end)` over [0, kCount), split over
// `threads`.
void Measure(const std::string& measure, int threads, int64_t bytes,
             const std::function<void(int64_t, int64_t)>& work) {
  absl::Duration best = absl::InfiniteDuration();
  for (int pass = 0; pass < kPasses; ++pass) {
    const absl::Time before = absl::Now();
    std::vector<std::thread> pool;
    for (int i = 0; i < threads; ++i) {
      pool.emplace_back(work, kCount * i / threads, kCount * (i + 1) / threads);
    }
    for (std::thread& thread : pool) thread.join();
    best = std::min(best, absl::Now() - before);
  }
  std::printf(
      "{\"peer\": \"memory\", \"measure\": \"%s_%d\", \"value\": %.6g, "
      "\"unit\": \"GB/s\"}\n",
      measure.c_str(), threads, bytes / absl::ToDoubleSeconds(best) / 1e9);
}

void Run() {
  // Initialized, and so backed by memory, before anything is measured.
  std::vector<float> a(kCount, 0), b(kCount, 1), c(kCount, 2);
  for (int threads : {1, 2}) {
    Measure("memcpy", threads, kCount * sizeof(float),
            [&a, &b](int64_t begin, int64_t end) {
              std::memcpy(a.data() + begin, b.data() + begin,
                          (end - begin) * sizeof(float));
            });
    Measure("triad", threads, 3 * kCount * sizeof(float),
            [&a, &b, &c](int64_t begin, int64_t end) {
              Triad(b.data() + begin, c.data() + begin, end - begin,
                    a.data() + begin);
            });
  }
}

}  // namespace
}  // namespace holdfast

int main() { holdfast::Run(); }
