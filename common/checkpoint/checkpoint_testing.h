// Small checkpoints for tests.
#ifndef HOLDFAST_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_
#define HOLDFAST_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_

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

// A variable to be stored: arrays of as many elements as it has, first the
// values, then the slots. An array's elements rise by one from a number that
// tells array and seed.
struct TestVariable {
  std::string name;
  std::vector<int64_t> shape;
  uint32_t slots = 0;
};

// A table to be stored, with rows and candidates of the ids from 0 on. All that
// they hold follows from id and seed.
struct TestTable {
  std::string name;
  uint32_t row_length = 0;
  // Slots of each value.
  uint32_t slots = 0;
  uint64_t rows = 0;
  // Ids above those of rows.
  uint64_t candidates = 0;
};

// By variable, by slot: what a checkpoint holds. By table: of each row and
// candidate, in the order of ids, id, step, count and floats.
using TestState = std::map<std::string, std::vector<std::vector<float>>>;

proto::CheckpointName TestName(uint64_t generation, uint64_t step);

// Variables with and without slots, a scalar, one without elements.
std::vector<TestVariable> SmallVariables();
// One with rows and candidates, one without any.
std::vector<TestTable> SmallTables();

proto::Manifest TestManifest(const proto::CheckpointName& name,
                             const std::vector<TestVariable>& variables,
                             const std::vector<TestTable>& tables = {});
TestState MakeTestState(const std::vector<TestVariable>& variables,
                        uint32_t seed,
                        const std::vector<TestTable>& tables = {});

// Writes data files and manifest. Every array lies in 2 `num_ps` extents, as
// even as can be, that go round the ps; each is appended in two pieces. Buckets
// are on the ps that they belong to.
absl::Status SaveTestCheckpoint(const CheckpointDirectory& directory,
                                const proto::CheckpointName& name,
                                const std::vector<TestVariable>& variables,
                                uint32_t num_ps, uint32_t seed,
                                const std::vector<TestTable>& tables = {});

// Reads all of a checkpoint.
absl::StatusOr<TestState> LoadTestCheckpoint(
    const CheckpointDirectory& directory, const proto::CheckpointName& name);

// An entry of a table, whose rows have 2 values and 2 slots: a row or, without
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

// A row that was touched by a step; its floats follow from both.
TestEntry TestRowOf(uint64_t id, uint64_t step);

// A checkpoint of SmallVariables and of a table "user", perhaps with changes
// alone.
struct TestSave {
  proto::CheckpointName name;
  uint32_t num_ps = 1;
  uint32_t seed = 0;
  TestEntries entries;
  // Ids that were removed since `previous`; what they are now is not listed.
  std::set<uint64_t> removed_rows;
  std::set<uint64_t> removed_candidates;
  std::optional<proto::CheckpointName> previous;
  std::vector<proto::CheckpointName> chain;
  // By ps: those that write changes, and those that list what was removed.
  std::set<uint32_t> writes_changes;
  std::set<uint32_t> lists_removed;
};
// Adds what is in `before` and not in `after`, of the same kind.
void AddRemoved(const TestEntries& before, const TestEntries& after,
                TestSave* save);
absl::Status SaveTestTable(const CheckpointDirectory& directory,
                           const TestSave& save);

// What a checkpoint has of table "user".
absl::StatusOr<TestEntries> LoadTestEntries(
    const CheckpointDirectory& directory, const proto::CheckpointName& name,
    BucketRange buckets = {});

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_
