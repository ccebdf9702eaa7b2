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

// By variable, by slot: what a checkpoint holds.
using TestState = std::map<std::string, std::vector<std::vector<float>>>;

proto::CheckpointName TestName(uint64_t generation, uint64_t step);

// Variables with and without slots, a scalar, one without elements.
std::vector<TestVariable> SmallVariables();

proto::Manifest TestManifest(const proto::CheckpointName& name,
                             const std::vector<TestVariable>& variables);
TestState MakeTestState(const std::vector<TestVariable>& variables,
                        uint32_t seed);

// Writes data files and manifest. Every array lies in 2 `num_ps` stretches, as
// even as can be, that go round the ps; each is appended in two pieces.
absl::Status SaveTestCheckpoint(const CheckpointDirectory& directory,
                                const proto::CheckpointName& name,
                                const std::vector<TestVariable>& variables,
                                uint32_t num_ps, uint32_t seed);

// Reads all of a checkpoint.
absl::StatusOr<TestState> LoadTestCheckpoint(
    const CheckpointDirectory& directory, const proto::CheckpointName& name);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_
