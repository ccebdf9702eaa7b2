// SPDX-License-Identifier: Apache-2.0

// Small checkpoints for tests.
#ifndef HOLDFAST_COMMON_CHECKPOINT_TESTING_CHECKPOINT_TESTING_H_
#define HOLDFAST_COMMON_CHECKPOINT_TESTING_CHECKPOINT_TESTING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/directory.h"
#include "common/tensor/row_bucket.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

// A variable to be stored: one array for its values and one for each slot, all
// with as many elements as the shape has. An array's elements rise by one from
// a number that depends on the array and the seed.
struct TestVariable {
  std::string name;
  std::vector<int64_t> shape;
  uint32_t slots = 0;
};

// A table to be stored, with rows and candidates of the ids from 0 on. Their
// contents depend only on id and seed.
struct TestTable {
  std::string name;
  uint32_t row_length = 0;
  // Slots per value.
  uint32_t slots = 0;
  uint64_t rows = 0;
  // The ids of candidates follow those of the rows.
  uint64_t candidates = 0;
};

// The contents of a checkpoint. For a variable: its arrays, by slot. For a
// table: id, step, count and floats of each row and candidate, in the order of
// ids.
using TestState = std::map<std::string, std::vector<std::vector<float>>>;

proto::CheckpointName TestName(uint64_t generation, uint64_t step);

// Variables with and without slots, a scalar, and one without elements.
std::vector<TestVariable> SmallVariables();
// A table with rows and candidates, and an empty one.
std::vector<TestTable> SmallTables();

proto::Manifest TestManifest(const proto::CheckpointName& name,
                             const std::vector<TestVariable>& variables,
                             const std::vector<TestTable>& tables = {});
TestState MakeTestState(const std::vector<TestVariable>& variables,
                        uint32_t seed,
                        const std::vector<TestTable>& tables = {});

// Writes data files and manifest. Every array is divided into 2 `num_ps`
// extents of equal size, as far as possible, which are dealt to the ps in turn;
// each is appended in two pieces. Buckets are written by the ps that they
// belong to.
absl::Status SaveTestCheckpoint(const CheckpointDirectory& directory,
                                const proto::CheckpointName& name,
                                const std::vector<TestVariable>& variables,
                                uint32_t num_ps, uint32_t seed,
                                const std::vector<TestTable>& tables = {});

// Reads a whole checkpoint.
absl::StatusOr<TestState> LoadTestCheckpoint(
    const CheckpointDirectory& directory, const proto::CheckpointName& name);

// An entry of a table whose rows have 2 values and 2 slots: a row or, without
// floats, a candidate.
struct TestEntry {
  uint64_t step = 0;
  uint32_t count = 1;
  std::vector<float> floats;

  bool is_row() const { return !floats.empty(); }
  bool operator==(const TestEntry& other) const {
    return step == other.step && count == other.count && floats == other.floats;
  }
};
using TestEntries = std::map<uint64_t, TestEntry>;

// The row `id` as last touched by `step`; its floats depend on both.
TestEntry TestRowOf(uint64_t id, uint64_t step);

// A checkpoint of SmallVariables and of a table "user", which may be a delta.
struct TestSave {
  proto::CheckpointName name;
  uint32_t num_ps = 1;
  uint32_t seed = 0;
  TestEntries entries;
  // Ids that were removed since `previous`. An id that is in `entries` again,
  // as an entry of the same kind, is not written as removed.
  std::set<uint64_t> removed_rows;
  std::set<uint64_t> removed_candidates;
  std::optional<proto::CheckpointName> previous;
  std::vector<proto::CheckpointName> chain;
  // The ps that write changes only, and the ps that list what was removed.
  std::set<uint32_t> writes_changes;
  std::set<uint32_t> lists_removed;
};
// Adds to `save`, as removed, the ids that are in `before` but not in `after`
// as an entry of the same kind.
void AddRemoved(const TestEntries& before, const TestEntries& after,
                TestSave* save);
absl::Status SaveTestTable(const CheckpointDirectory& directory,
                           const TestSave& save);

// The entries of table "user" in a checkpoint.
absl::StatusOr<TestEntries> LoadTestEntries(
    const CheckpointDirectory& directory, const proto::CheckpointName& name,
    BucketRange buckets = {});

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_TESTING_CHECKPOINT_TESTING_H_
