// SPDX-License-Identifier: Apache-2.0

// What the end of a job does to a shard.

#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/shard.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

TEST_F(ShardTest, TheEndAnswersWhoIsParked) {
  for (const proto::JobPhase phase : {proto::DONE, proto::FAILED}) {
    SCOPED_TRACE(proto::JobPhase_Name(phase));
    Shard shard(MakeOptions(), &clock_, nullptr);
    ASSERT_TRUE(Ask(shard, &Shard::Restore, MakeRestore()).status().ok());
    proto::PullRequest pull = MakePull({"w"});
    pull.set_min_version(1);
    pull.set_wait_ms(30000);
    const auto parked = Ask(shard, &Shard::Pull, pull);
    Answer<proto::PushResponse> push;
    shard.Push(Whole(0, 1, 0, 1), push.Catch());

    proto::EndRequest end;
    *end.mutable_sender() = Coordinator();
    end.mutable_state()->set_phase(phase);
    end.mutable_state()->set_reason("why");
    EXPECT_EQ(Ask(shard, &Shard::End, end)->generation(), 1u);
    ASSERT_TRUE(parked.came());
    EXPECT_EQ(parked->state.phase(), phase);
    EXPECT_EQ(parked->state.reason(), "why");
    EXPECT_EQ(parked->version, GlobalStep(0));
    EXPECT_THAT(parked->tensors, IsEmpty());
    EXPECT_EQ(shard.state().phase(), phase);
    EXPECT_EQ(shard.staged_bytes(), 0);
  }
}

TEST_F(ShardTest, TheFirstEndStands) {
  Restore();
  EXPECT_TRUE(End(proto::FAILED, "the first").status().ok());
  EXPECT_TRUE(End(proto::DONE).status().ok());
  EXPECT_EQ(shard_.state().phase(), proto::FAILED);
  EXPECT_EQ(shard_.state().reason(), "the first");
}

TEST_F(ShardTest, AfterAFailureCallsAreToldWhy) {
  Restore();
  Step(0, 2);
  End(proto::FAILED, "worker 1 is lost");
  EXPECT_TRUE(
      Fails(Push(Whole(0, 2, 1, 1)).status(), kAborted, {"worker 1 is lost"}));
  EXPECT_EQ(shard_.staged_bytes(), 0);
  for (const auto& pull : {PullAtLeast(0), PullAtLeast(5), PullExactly(1)}) {
    ASSERT_TRUE(pull.came());
    EXPECT_EQ(pull->state.phase(), proto::FAILED);
    EXPECT_EQ(pull->state.reason(), "worker 1 is lost");
    EXPECT_THAT(pull->tensors, IsEmpty());
  }
}

TEST_F(ShardTest, AfterTheEndInOrderTheLastVersionCanBeRead) {
  Restore();
  Step(0, 2);
  End(proto::DONE);
  const auto pull = PullAtLeast(1);
  EXPECT_EQ(pull->version, GlobalStep(1));
  EXPECT_EQ(pull->state.phase(), proto::DONE);
  EXPECT_THAT(Values(pull, 0), Each(0.0f));
}

TEST_F(ShardTest, OnlyAnEndEndsTheJob) {
  Restore();
  Pin(3600000);
  for (const proto::JobPhase phase : {proto::STARTING, proto::TRAINING}) {
    EXPECT_TRUE(
        Fails(End(phase).status(), kInvalid, {"is not an end of a job"}));
  }
  EXPECT_EQ(shard_.state().phase(), proto::TRAINING);
  EXPECT_TRUE(PullExactly(0).status().ok());
}

// In a synchronous job only Commit makes versions.
TEST_F(ShardTest, ASynchronousJobHasNothingToResolve) {
  Restore();
  proto::ResolveRequest resolve;
  *resolve.mutable_sender() = Coordinator();
  proto::AppliedPush& push = *resolve.add_applied();
  push.mutable_from()->mutable_worker()->set_job(kWorkerJob);
  push.mutable_from()->set_incarnation(1);
  push.set_sequence(1);
  push.add_scalars()->set_learning_rate(1);
  *resolve.add_lives() = push.from();
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Resolve, resolve).status(), kInternal,
                    {"the job is synchronous"}));
  EXPECT_EQ(shard_.version(), GlobalStep(0));
}

TEST_F(ShardTest, TheEndMayComeBeforeTheVariables) {
  EXPECT_TRUE(End(proto::FAILED, "never started").status().ok());
  EXPECT_EQ(shard_.state().phase(), proto::FAILED);
  const auto pull = PullAtLeast(0);
  EXPECT_EQ(pull->state.reason(), "never started");
}

TEST_F(ShardTest, ARestoreThatTheEndOvertookDoesNothing) {
  End(proto::FAILED, "never started");
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Restore, MakeRestore()).status(),
                    kAborted, {"never started"}));
  EXPECT_EQ(shard_.state().phase(), proto::FAILED);
}

TEST_F(ShardTest, AfterTheEndNothingIsStagedCommittedPinnedOrParked) {
  for (const proto::JobPhase phase : {proto::DONE, proto::FAILED}) {
    SCOPED_TRACE(proto::JobPhase_Name(phase));
    Shard shard(MakeOptions(), &clock_, nullptr);
    ASSERT_TRUE(Ask(shard, &Shard::Restore, MakeRestore()).status().ok());
    proto::EndRequest end;
    *end.mutable_sender() = Coordinator();
    end.mutable_state()->set_phase(phase);
    ASSERT_TRUE(Ask(shard, &Shard::End, end).status().ok());

    Answer<proto::PushResponse> push;
    shard.Push(Whole(0, 1, 0, 1), push.Catch());
    EXPECT_TRUE(Fails(push.status(), kAborted));
    EXPECT_EQ(shard.staged_bytes(), 0);
    EXPECT_TRUE(Fails(Ask(shard, &Shard::Commit, MakeCommit(0, {})).status(),
                      kAborted));
    EXPECT_EQ(shard.version(), GlobalStep(0));
    proto::PinRequest pin;
    *pin.mutable_sender() = Reader();
    pin.set_hold_ms(1000);
    EXPECT_TRUE(Fails(Ask(shard, &Shard::Pin, pin).status(), kAborted));
    proto::PullRequest pull = MakePull({"w"});
    pull.set_min_version(1);
    pull.set_wait_ms(30000);
    const auto answer = Ask(shard, &Shard::Pull, pull);
    ASSERT_TRUE(answer.came());
    EXPECT_EQ(answer->state.phase(), phase);
  }
}

TEST_F(ShardTest, TheEndLetsPinsGo) {
  Restore();
  Pin(3600000);
  Step(0, 2);
  ASSERT_TRUE(PullExactly(0).status().ok());
  End(proto::DONE);
  EXPECT_TRUE(Fails(PullExactly(0).status(), kNotFound));
}

}  // namespace
}  // namespace holdfast
