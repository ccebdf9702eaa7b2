// SPDX-License-Identifier: Apache-2.0
#include "ps_server/last_checkpoint.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"

namespace holdfast {
namespace {

proto::CheckpointResponse Answer(uint64_t step, uint64_t durable) {
  proto::CheckpointResponse response;
  response.set_step(step);
  response.set_durable_step(durable);
  return response;
}

// Gives the answers one after the other, and records the steps asked for.
class Answers {
 public:
  explicit Answers(std::vector<absl::StatusOr<proto::CheckpointResponse>> of)
      : answers_(std::move(of)) {}

  absl::Status Save(absl::Time deadline = SteadyNow() + absl::Seconds(60)) {
    return SaveCheckpoint(
        [this](const proto::CheckpointRequest& request, absl::Time) {
          EXPECT_GT(request.wait_ms(), 0);
          asked_.push_back(request.step());
          return answers_.at(asked_.size() - 1);
        },
        deadline);
  }
  const std::vector<uint64_t>& asked() const { return asked_; }

 private:
  const std::vector<absl::StatusOr<proto::CheckpointResponse>> answers_;
  std::vector<uint64_t> asked_;
};

TEST(LastCheckpointTest, WaitsForTheStepThatTheFirstAnswerNames) {
  Answers answers({Answer(7, 0), Answer(7, 5), Answer(7, 7)});
  EXPECT_TRUE(answers.Save().ok());
  EXPECT_EQ(answers.asked(), (std::vector<uint64_t>{0, 7, 7}));
}

TEST(LastCheckpointTest, IsNotNeededOnceTheJobHasEnded) {
  for (const proto::JobPhase phase :
       {proto::DONE, proto::STOPPED, proto::FAILED}) {
    proto::CheckpointResponse ended = Answer(7, 0);
    ended.mutable_state()->set_phase(phase);
    EXPECT_TRUE(Answers({ended}).Save().ok());
  }
}

TEST(LastCheckpointTest, SaysWhyItCannotBeWritten) {
  proto::CheckpointResponse failed = Answer(7, 0);
  failed.set_error("no space");
  EXPECT_EQ(Answers({failed}).Save(), absl::UnavailableError("no space"));
  EXPECT_EQ(Answers({absl::NotFoundError("no disk")}).Save(),
            absl::NotFoundError("no disk"));
}

TEST(LastCheckpointTest, IsGivenUpAfterTheDeadline) {
  EXPECT_EQ(Answers({Answer(7, 5)}).Save(SteadyNow()),
            absl::DeadlineExceededError("step 7 is not on disk yet"));
}

}  // namespace
}  // namespace holdfast
