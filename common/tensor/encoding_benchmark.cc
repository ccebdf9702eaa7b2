// SPDX-License-Identifier: Apache-2.0

// Measures the rates of common/tensor/encoding.h, in GB of float32 per second,
// and that of memcpy for comparison: for a gradient of 64 MB in ranges of 4
// MiB, as in a push; and the same with only the instructions that every CPU of
// this architecture has.

#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "common/base/random.h"
#include "common/base/simd.h"
#include "common/tensor/encoding.h"
#include "common/tensor/encoding_kernels.h"

namespace holdfast {
namespace {

constexpr size_t kRange = 1 << 20;
constexpr size_t kSize = 16 * kRange;
// The number of elements decoded at a time (ps_server/shard/apply_step.cc).
constexpr size_t kBlock = 2048;

// Like gradients: most values are small, some are large.
std::vector<float> RandomValues() {
  std::vector<float> values(kSize);
  for (size_t i = 0; i < kSize; ++i) {
    const auto random = Philox4x32({static_cast<uint32_t>(i)}, {});
    const float a = static_cast<float>(random[0] >> 8) / (1 << 23) - 1;
    const float b = static_cast<float>(random[1] >> 8) / (1 << 24);
    values[i] = a * b * b;
  }
  return values;
}

void SetRate(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * kSize * sizeof(float));
}

void BM_Copy(benchmark::State& state) {
  const std::vector<float> from = RandomValues();
  std::vector<float> to(kSize);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), kSize * sizeof(float));
    benchmark::ClobberMemory();
  }
  SetRate(state);
}
BENCHMARK(BM_Copy)->Unit(benchmark::kMillisecond);

std::shared_ptr<char> MakeMemory() {
  return {new char[kSize * sizeof(float)], std::default_delete<char[]>()};
}

std::vector<EncodedElements> EncodeAll(proto::Encoding encoding,
                                       const std::vector<float>& gradient,
                                       const std::vector<float>& before,
                                       std::vector<float>* after,
                                       const std::shared_ptr<char>& memory) {
  constexpr uint64_t kKept = kRange / 100;
  std::vector<EncodedElements> encoded;
  char* to = memory.get();
  for (size_t begin = 0; begin < kSize; begin += kRange) {
    encoded.push_back(EncodeWithFeedback(
        encoding, kKept, absl::MakeSpan(gradient).subspan(begin, kRange),
        absl::MakeSpan(before).subspan(begin, kRange),
        absl::MakeSpan(*after).subspan(begin, kRange),
        std::shared_ptr<char>(memory, to)));
    to += EncodedBytes(encoding, kRange, kKept);
  }
  return encoded;
}

void BM_Encode(benchmark::State& state) {
  const auto encoding = static_cast<proto::Encoding>(state.range(0));
  state.SetLabel(proto::Encoding_Name(encoding));
  const std::vector<float> gradient = RandomValues();
  std::vector<float> before(kSize, 0.0f), after(kSize);
  const std::shared_ptr<char> memory = MakeMemory();
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        EncodeAll(encoding, gradient, before, &after, memory));
  }
  SetRate(state);
}
BENCHMARK(BM_Encode)
    ->DenseRange(proto::FLOAT16, proto::TOP_K)
    ->Unit(benchmark::kMillisecond);

void BM_Decode(benchmark::State& state) {
  const auto encoding = static_cast<proto::Encoding>(state.range(0));
  state.SetLabel(proto::Encoding_Name(encoding));
  std::vector<float> before(kSize, 0.0f), after(kSize);
  const std::vector<EncodedElements> encoded =
      EncodeAll(encoding, RandomValues(), before, &after, MakeMemory());
  std::vector<float> block(kBlock);
  for (auto _ : state) {
    for (const EncodedElements& elements : encoded) {
      for (size_t begin = 0; begin < kRange; begin += kBlock) {
        Decode(elements, begin, absl::MakeSpan(block));
        benchmark::ClobberMemory();
      }
    }
  }
  SetRate(state);
}
BENCHMARK(BM_Decode)
    ->DenseRange(proto::EXACT, proto::TOP_K)
    ->Unit(benchmark::kMillisecond);

void BM_EncodeHalves(benchmark::State& state) {
  const auto simd = static_cast<Simd>(state.range(0));
  const auto format = static_cast<HalfFormat>(state.range(1));
  state.SetLabel(SimdName(simd));
  const std::vector<float> gradient = RandomValues();
  std::vector<float> before(kSize, 0.0f), after(kSize);
  std::vector<char> out(2 * kSize);
  for (auto _ : state) {
    EncodeHalvesWithFeedback(simd, format, gradient.data(), before.data(),
                             kSize, out.data(), after.data());
    benchmark::ClobberMemory();
  }
  SetRate(state);
}
BENCHMARK(BM_EncodeHalves)
    ->Apply([](benchmark::internal::Benchmark* benchmark) {
      for (const HalfFormat format :
           {HalfFormat::kFloat16, HalfFormat::kBfloat16}) {
        for (const Simd simd : SupportedSimd()) {
          benchmark->Args({static_cast<int>(simd), static_cast<int>(format)});
        }
      }
    })
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace holdfast

BENCHMARK_MAIN();
