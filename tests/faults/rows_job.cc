// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/rows_job.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/rpc/rpc_limits.h"
#include "common/tensor/row_bucket.h"

namespace holdfast {
namespace {

constexpr uint64_t kRowsOfAll = 8;
constexpr uint64_t kRowsOfOne = 4;
constexpr uint64_t kRowsOfSome = 4;
// Rows of one batch are in so few buckets of "capped" that they displace each
// other.
constexpr uint32_t kCrowdedEvery = 1024;

// Ids are hashes of keys. The rows that all batches use have the first keys.
constexpr uint64_t kFirstKeyOfSome = 100;
constexpr uint64_t kKeysOfSome = 60;
constexpr uint64_t kFirstKeyOfOne = 1000;
// The search for ids in crowded buckets starts here.
constexpr uint64_t kCrowdedIdsOfOne = uint64_t{1} << 32;

// A third of "dense" is just large enough to be lent to neighbors
// (docs/protocol/same_host.md).
constexpr char kDeclaration[] = R"pb(
  variables {
    name: "dense"
    shape: DENSE
    dtype: FLOAT32
    initializer { INITIALIZER }
  }
  tables {
    name: "counted"
    row_length: 4
    initializer { INITIALIZER }
    max_rows_per_push: 16
  }
  tables {
    name: "admitted"
    row_length: 3
    initializer { INITIALIZER }
    min_count: 2
    expire_after_steps: EXPIRE
    max_rows_per_push: 16
    push: INT8
    pull: BFLOAT16
  }
  tables {
    name: "capped"
    row_length: 2
    initializer { INITIALIZER }
    optimizer: 1
    max_rows: 16384
    max_rows_per_push: 16
  }
  consistency { CONSISTENCY }
  partitioner { fixed_shards { shards: 3 } }
  seed: 1
  total_steps: STEPS
  checkpoints { every_steps: EVERY keep: 2 }
  timeouts { start_seconds: 20 step_seconds: 30 recovery_seconds: 20 }
)pb";

constexpr char kComputing[] = R"pb(
  optimizers {
    learning_rate: 0.05
    adam {}
  }
  optimizers {
    learning_rate: 0.1
    adagrad {}
  }
)pb";

constexpr char kCounting[] = R"pb(
  optimizers {
    learning_rate: 1
    sgd {}
  }
  optimizers {
    learning_rate: 1
    adagrad { initial_accumulator_value: 0 }
  }
  examples: BY_TICKET
)pb";

}  // namespace

std::string RowsDeclaration(const RowsJob& job) {
  const std::string text = absl::StrReplaceAll(
      kDeclaration,
      {{"DENSE", absl::StrCat(3 * kMinLentBytes / sizeof(float))},
       {"INITIALIZER",
        job.by_ticket ? "zeros {}" : "uniform { low: -1 high: 1 }"},
       {"EXPIRE", absl::StrCat(kRowsExpireAfter)},
       {"CONSISTENCY", job.consistency},
       {"STEPS", absl::StrCat(job.steps)},
       {"EVERY", absl::StrCat(job.save_every)}});
  return absl::StrCat(text, job.by_ticket ? kCounting : kComputing);
}

std::vector<uint64_t> RowsOfAll() {
  std::vector<uint64_t> ids;
  for (uint64_t key = 0; key < kRowsOfAll; ++key) {
    ids.push_back(HashRowId(key));
  }
  return ids;
}

std::vector<uint64_t> RowsOfOne(size_t table, uint64_t batch) {
  std::vector<uint64_t> ids;
  if (table == kCappedTable) {
    for (uint64_t id = kCrowdedIdsOfOne * (batch + 1); ids.size() < kRowsOfOne;
         ++id) {
      if (BucketOfRow(id) % kCrowdedEvery == kCrowdedEvery - 1)
        ids.push_back(id);
    }
    return ids;
  }
  for (uint64_t i = 0; i < kRowsOfOne; ++i) {
    ids.push_back(HashRowId(kFirstKeyOfOne + kRowsOfOne * batch + i));
  }
  return ids;
}

std::vector<uint64_t> RowsOf(size_t table, uint64_t batch) {
  std::vector<uint64_t> ids = RowsOfOne(table, batch);
  for (const uint64_t id : RowsOfAll()) ids.push_back(id);
  if (table != kAdmittedTable) return ids;
  // Consecutive keys, so that no row occurs twice.
  const uint64_t first = HashRowId(batch);
  for (uint64_t i = 0; i < kRowsOfSome; ++i) {
    ids.push_back(HashRowId(kFirstKeyOfSome + (first + i) % kKeysOfSome));
  }
  return ids;
}

std::vector<float> RowGradients(absl::Span<const uint64_t> ids, uint64_t batch,
                                absl::Span<const float> values) {
  std::vector<float> gradients;
  const size_t row_length = values.size() / ids.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t random =
        HashRowId(ids[i / row_length] + 31 * batch + i % row_length);
    gradients.push_back(0.1f * values[i] +
                        static_cast<float>(random % 1000) / 500 - 1);
  }
  return gradients;
}

}  // namespace holdfast
