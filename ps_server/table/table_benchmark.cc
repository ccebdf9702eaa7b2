// SPDX-License-Identifier: Apache-2.0

// Measures what a table does in process for a batch: 26,000 random rows of 10
// million, each once, in the order of ids, as in a push or a pull. Per row:
//
//   BM_Lines   adds up the bytes of rows at known places, which are
//              prefetched: the limit for any table
//   BM_Read    EmbeddingTable::Read
//   BM_Parse   ReceivedRows::Parse
//   BM_Step    EmbeddingTable::ApplyStep with Adagrad, of one push or of four
//              with as many rows each, on one thread
//   BM_Copies  the same while a version is held, so that each row is copied
//
// The arguments are the length of rows; BM_Step also has the number of pushes.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/buffer.h"
#include "common/tensor/row_ids.h"
#include "google/protobuf/text_format.h"
#include "ps_server/table/embedding_table.h"
#include "ps_server/table/received_rows.h"

namespace holdfast {
namespace {

constexpr uint64_t kRows = 10'000'000;
constexpr size_t kBatch = 26'000;
// Enough batches that a batch's rows have left the caches when its turn comes
// again.
constexpr size_t kBatches = 40;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  google::protobuf::TextFormat::ParseFromString(text, &message);
  return message;
}

uint64_t IdOf(uint64_t row) { return row * 0x9e3779b97f4a7c15; }

std::vector<uint64_t> RandomIds(std::mt19937_64& random, size_t count) {
  std::vector<uint64_t> ids;
  while (ids.size() < count) {
    for (size_t i = ids.size(); i < count; ++i) {
      ids.push_back(IdOf(random() % kRows));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  return ids;
}

struct Bench {
  proto::EmbeddingTable declared;
  std::unique_ptr<EmbeddingTable> table;
  std::vector<std::vector<uint64_t>> batches;
  std::string gradients;

  explicit Bench(uint32_t length)
      : declared(
            Parse<proto::EmbeddingTable>("name: \"t\" initializer { zeros {} } "
                                         "max_rows_per_push: 1000000")),
        gradients(kBatch * length * sizeof(float), '\0') {
    declared.set_row_length(length);
    table = *EmbeddingTable::Create(
        declared, Parse<proto::Optimizer>("learning_rate: 0.1 adagrad {}"), {});
    const std::vector<float> floats(table->floats(EmbeddingTable::Kind::kRow),
                                    0.5f);
    for (uint64_t row = 0; row < kRows; ++row) {
      const absl::Status loaded =
          table->Load(EmbeddingTable::Kind::kRow, IdOf(row), 0, 1, floats);
      if (!loaded.ok()) std::abort();
    }
    std::mt19937_64 random(1);
    for (size_t i = 0; i < kBatches; ++i) {
      batches.push_back(RandomIds(random, kBatch));
    }
  }

  ReceivedRows Received(size_t batch) const {
    return *ReceivedRows::Parse(declared, {}, kBatch,
                                EncodeRowIds(batches[batch % kBatches]),
                                Buffer::FromString(gradients));
  }
};

// One at a time: rows of 64 take 5 GB.
Bench& BenchOf(uint32_t length) {
  static auto& made = *new std::pair<uint32_t, std::unique_ptr<Bench>>();
  if (made.first != length) {
    made.second.reset();
    made = {length, std::make_unique<Bench>(length)};
  }
  return *made.second;
}

void SetPerRow(benchmark::State& state, double rows) {
  state.counters["per_row"] =
      benchmark::Counter(rows, benchmark::Counter::kIsIterationInvariantRate |
                                   benchmark::Counter::kInvert);
}

void BM_Lines(benchmark::State& state) {
  const uint32_t length = state.range(0);
  const size_t stride = RowSlab::RowBytes(2 * length);
  const size_t read = RowSlab::RowBytes(length);
  const std::string memory(kRows * stride, '\1');
  std::mt19937_64 random(1);
  std::vector<const char*> rows(kBatches * kBatch);
  for (const char*& row : rows) row = &memory[random() % kRows * stride];
  size_t batch = 0;
  uint64_t sum = 0;
  for (auto _ : state) {
    const char* const* const first = &rows[batch++ % kBatches * kBatch];
    constexpr size_t kAhead = 16;
    for (size_t i = 0; i < kBatch; ++i) {
      if (i + kAhead < kBatch) {
        for (size_t at = 0; at < read; at += 64) {
          __builtin_prefetch(first[i + kAhead] + at);
        }
        __builtin_prefetch(first[i + kAhead] + read - 1);
      }
      for (size_t at = 0; at < read; at += 8) {
        sum += *reinterpret_cast<const uint64_t*>(first[i] + at);
      }
    }
    benchmark::DoNotOptimize(sum);
  }
  SetPerRow(state, kBatch);
}

void BM_Read(benchmark::State& state) {
  const Bench& bench = BenchOf(state.range(0));
  std::vector<float> values(kBatch * state.range(0));
  size_t batch = 0;
  for (auto _ : state) {
    bench.table->Read(bench.batches[batch++ % kBatches], values.data());
    benchmark::ClobberMemory();
  }
  SetPerRow(state, kBatch);
}

void BM_Parse(benchmark::State& state) {
  const Bench& bench = BenchOf(state.range(0));
  const std::string ids = EncodeRowIds(bench.batches[0]);
  const Buffer gradients = Buffer::FromString(bench.gradients);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        ReceivedRows::Parse(bench.declared, {}, kBatch, ids, gradients));
  }
  SetPerRow(state, kBatch);
}

void Steps(benchmark::State& state, size_t pushes, bool held) {
  Bench& bench = BenchOf(state.range(0));
  std::vector<ReceivedRows> received;
  for (size_t i = 0; i < kBatches; ++i) received.push_back(bench.Received(i));
  proto::StepScalars scalars;
  scalars.set_learning_rate(0.1f);
  size_t batch = 0;
  for (auto _ : state) {
    RowSum sum;
    for (size_t i = 0; i < pushes; ++i) {
      sum.terms.push_back({{&received[batch++ % kBatches]}, 1});
    }
    if (held) {
      state.PauseTiming();
      const GlobalStep version = bench.table->Hold();
      state.ResumeTiming();
      bench.table->ApplyStep(sum, scalars, {});
      state.PauseTiming();
      bench.table->Release(version);
      state.ResumeTiming();
    } else {
      bench.table->ApplyStep(sum, scalars, {});
    }
  }
  SetPerRow(state, static_cast<double>(pushes * kBatch));
}

void BM_Step(benchmark::State& state) {
  Steps(state, state.range(1), /*held=*/false);
}

void BM_Copies(benchmark::State& state) { Steps(state, 1, /*held=*/true); }

// Registers the benchmarks of one table one after the other.
void RegisterAll() {
  for (const int length : {16, 64}) {
    const auto add = [](const char* name, auto* function) {
      return benchmark::RegisterBenchmark(name, function)
          ->Unit(benchmark::kMicrosecond);
    };
    add("BM_Read", BM_Read)->Arg(length);
    add("BM_Parse", BM_Parse)->Arg(length);
    add("BM_Step", BM_Step)->Args({length, 1})->Args({length, 4});
    add("BM_Copies", BM_Copies)->Arg(length);
  }
  for (const int length : {16, 64}) {
    benchmark::RegisterBenchmark("BM_Lines", BM_Lines)
        ->Unit(benchmark::kMicrosecond)
        ->Arg(length);
  }
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  holdfast::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
