// Small checkpoints for tests.
#ifndef HOLDFAST_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_
#define HOLDFAST_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/directory.h"
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

// Writes data files and manifest. Every array lies in 2 `num_ps` stretches, as
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

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_
