// SPDX-License-Identifier: Apache-2.0
#include "worker/offline/evaluator_task.h"

#include <string>
#include <vector>

#include "client/testing/fake_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

class EvaluateAllTest : public ::testing::Test {
 protected:
  EvaluateAllTest() : cluster_(proto::Declaration()) {}

  void Give(uint64_t step) {
    cluster_.checkpoints.emplace_back().set_generation(1);
    cluster_.checkpoints.back().set_step(step);
  }
  absl::Status Run() {
    return EvaluateAll(
        &cluster_,
        [this](const proto::CheckpointName& name)
            -> absl::StatusOr<proto::EvaluationResult> {
          if (!refusals_.empty()) {
            const absl::Status refusal = refusals_.back();
            refusals_.pop_back();
            return refusal;
          }
          proto::EvaluationResult result;
          result.set_step(name.step());
          return result;
        },
        [this] { ++pauses_; });
  }

  FakeCluster cluster_;
  std::vector<absl::Status> refusals_;
  int pauses_ = 0;
};

TEST_F(EvaluateAllTest, ReportsEachUntilThereAreNoMore) {
  Give(4);
  Give(8);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_.calls(),
              ElementsAre("next evaluation", "report 4 of generation 1",
                          "next evaluation", "report 8 of generation 1",
                          "next evaluation"));
}

TEST_F(EvaluateAllTest, OneThatIsGoneIsAskedForAgain) {
  Give(4);
  Give(8);
  refusals_ = {absl::NotFoundError("gone")};
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(pauses_, 1);
  EXPECT_THAT(cluster_.calls("report"),
              ElementsAre("report 8 of generation 1"));
}

TEST_F(EvaluateAllTest, ADirectoryWithoutThemIsAnErrorInTheEnd) {
  for (int i = 0; i < 2 * kReadAttempts; ++i) Give(4);
  refusals_.assign(kReadAttempts, absl::NotFoundError("elsewhere"));
  EXPECT_EQ(Run().message(), "elsewhere");
  EXPECT_EQ(pauses_, kReadAttempts - 1);
}

TEST_F(EvaluateAllTest, AModelThatDoesNotFitEndsIt) {
  Give(4);
  refusals_ = {absl::InvalidArgumentError("another job's")};
  EXPECT_EQ(Run().message(), "another job's");
  EXPECT_EQ(pauses_, 0);
}

}  // namespace
}  // namespace holdfast
