// SPDX-License-Identifier: Apache-2.0
#include "client/failure.h"

#include <memory>

#include "client/testing/fake_cluster.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(IsWorkersOwnTest, Table) {
  proto::JobState state;
  for (const proto::JobPhase phase : {proto::STARTING, proto::TRAINING}) {
    state.set_phase(phase);
    EXPECT_TRUE(IsWorkersOwn(absl::UnavailableError("x"), state));
    EXPECT_TRUE(IsWorkersOwn(absl::AbortedError("x"), state));
    for (const absl::Status& error :
         {absl::InvalidArgumentError("x"), absl::DeadlineExceededError("x"),
          absl::FailedPreconditionError("x"), absl::DataLossError("x"),
          absl::InternalError("x"), absl::AlreadyExistsError("x")}) {
      EXPECT_FALSE(IsWorkersOwn(error, state)) << error;
    }
  }
  // No replacement could continue a job that has ended.
  for (const proto::JobPhase phase : {proto::DONE, proto::FAILED}) {
    state.set_phase(phase);
    EXPECT_FALSE(IsWorkersOwn(absl::UnavailableError("x"), state));
    EXPECT_FALSE(IsWorkersOwn(absl::AbortedError("x"), state));
  }
}

TEST(FailureOfTest, AbortedIsExplainedByTheJob) {
  FakeCluster cluster{proto::Declaration()};
  const absl::Status aborted = absl::AbortedError("x");
  EXPECT_EQ(FailureOf(aborted, cluster), Failure::kFenced);
  cluster.roll_backs["declare"] = {};
  EXPECT_FALSE(cluster.Declare({}, absl::InfiniteFuture()).ok());
  EXPECT_EQ(FailureOf(aborted, cluster), Failure::kRolledBack);
  cluster.phase = proto::FAILED;
  EXPECT_EQ(FailureOf(aborted, cluster), Failure::kJobFailed);
}

TEST(FailureOfTest, Table) {
  const FakeCluster cluster{proto::Declaration()};
  const auto of = [&](const absl::Status& error) {
    return FailureOf(error, cluster);
  };
  EXPECT_EQ(of(absl::UnavailableError("x")), Failure::kUnavailable);
  EXPECT_EQ(of(absl::DeadlineExceededError("x")), Failure::kUnavailable);
  EXPECT_EQ(of(absl::AlreadyExistsError("x")), Failure::kRefused);
  EXPECT_EQ(of(absl::InvalidArgumentError("x")), Failure::kInvalid);
  EXPECT_EQ(of(absl::FailedPreconditionError("x")), Failure::kInvalid);
  EXPECT_EQ(of(absl::CancelledError("x")), Failure::kCancelled);
  EXPECT_EQ(of(absl::InternalError("x")), Failure::kInternal);
}

}  // namespace
}  // namespace holdfast
