// SPDX-License-Identifier: Apache-2.0

// A worker's work on the ids of a batch: 65,536 out of 10 million, drawn from a
// Zipf distribution with exponent 1.05, of which some 26,000 are unique. Ids
// are permuted, so that the frequent ones are not the small ones.
//
//   BM_Unique   RowBatch::Assign: numpy.unique(ids, return_inverse=True)
//   BM_Encode   EncodeRowIds of the unique ones
//   BM_Decode   DecodeRowIds
//   BM_Sum      RowBatch::Sum with rows of 16 and 64 elements
//   BM_Spread   RowBatch::Spread, likewise

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "client/row_batch.h"
#include "common/tensor/row_ids.h"

namespace holdfast::client {
namespace {

constexpr size_t kIds = 65536;
constexpr uint64_t kRows = 10'000'000;

const std::vector<uint64_t>& ZipfIds() {
  static const auto& ids = *new std::vector<uint64_t>([] {
    std::vector<double> cumulative(kRows);
    double sum = 0;
    for (uint64_t i = 0; i < kRows; ++i) {
      cumulative[i] = sum += std::pow(i + 1.0, -1.05);
    }
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> uniform(0, sum);
    std::vector<uint64_t> ids(kIds);
    for (uint64_t& id : ids) {
      const uint64_t rank =
          std::lower_bound(cumulative.begin(), cumulative.end(),
                           uniform(random)) -
          cumulative.begin();
      // A prime that does not divide 10 million.
      id = std::min(rank, kRows - 1) * 7'368'787 % kRows;
    }
    return ids;
  }());
  return ids;
}

void BM_Unique(benchmark::State& state) {
  const std::vector<uint64_t>& ids = ZipfIds();
  RowBatch batch;
  for (auto _ : state) {
    batch.Assign(ids);
    benchmark::ClobberMemory();
  }
  state.counters["unique"] = batch.unique().size();
}
BENCHMARK(BM_Unique)->Unit(benchmark::kMicrosecond);

void BM_Encode(benchmark::State& state) {
  RowBatch batch;
  batch.Assign(ZipfIds());
  for (auto _ : state) benchmark::DoNotOptimize(EncodeRowIds(batch.unique()));
  state.counters["bytes/id"] =
      static_cast<double>(EncodeRowIds(batch.unique()).size()) /
      batch.unique().size();
}
BENCHMARK(BM_Encode)->Unit(benchmark::kMicrosecond);

void BM_Decode(benchmark::State& state) {
  RowBatch batch;
  batch.Assign(ZipfIds());
  const std::string bytes = EncodeRowIds(batch.unique());
  for (auto _ : state) {
    benchmark::DoNotOptimize(DecodeRowIds(bytes, batch.unique().size()));
  }
}
BENCHMARK(BM_Decode)->Unit(benchmark::kMicrosecond);

void BM_Sum(benchmark::State& state) {
  RowBatch batch;
  batch.Assign(ZipfIds());
  const size_t length = state.range(0);
  const std::vector<float> gradients(kIds * length, 1);
  std::vector<float> sums(batch.unique().size() * length);
  for (auto _ : state) {
    batch.Sum(gradients.data(), length, sums.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Sum)->Arg(16)->Arg(64)->Unit(benchmark::kMicrosecond);

void BM_Spread(benchmark::State& state) {
  RowBatch batch;
  batch.Assign(ZipfIds());
  const size_t length = state.range(0);
  const std::vector<float> rows(batch.unique().size() * length, 1);
  std::vector<float> values(kIds * length);
  for (auto _ : state) {
    batch.Spread(rows.data(), length, values.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Spread)->Arg(16)->Arg(64)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace holdfast::client

BENCHMARK_MAIN();
