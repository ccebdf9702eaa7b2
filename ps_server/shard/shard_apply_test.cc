// SPDX-License-Identifier: Apache-2.0

// Asynchronous pushes: their staging and application
// (docs/protocol/asynchronous.md, steps A2 and A3).
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ShardApplyTest : public AsynchronousShardTest {};

// ---- Push [A2] ----

TEST_F(ShardApplyTest, NoVersionIsTooOldForAPush) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 2);
  StageAndApply(0, 2, 2);
  const auto old = Push(Whole(1, 1, 0, 2));
  EXPECT_EQ(old->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_EQ(old->version(), 2u);
  EXPECT_EQ(shard_.staged_bytes(), 24);
  EXPECT_EQ(Apply(1, 1)->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Newest("w"), Each(-2.0f));  // 1 - 3 x 0.5 x 2
}

TEST_F(ShardApplyTest, APushOfAVersionToComeIsAnError) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 2);
  EXPECT_TRUE(Fails(Push(Whole(1, 1, 2, 2)).status(), kNotReady,
                    {"gradient of step 2", "/job:ps/task:1 is at step 1",
                     "(pushed by /job:worker/task:1)"}));
  EXPECT_EQ(shard_.staged_bytes(), 0);
}

TEST_F(ShardApplyTest, APartOfAPushThatIsAppliedGetsItsVerdict) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 2);
  EXPECT_EQ(Push(Whole(0, 1, 0, 2))->verdict(), proto::ACCEPTED);
  EXPECT_EQ(shard_.staged_bytes(), 0);
}

TEST_F(ShardApplyTest, AWorkerHasRoomForAsManyPushesAsItMayHaveBegun) {
  for (const uint32_t depth : {1, 2, 5}) {
    SCOPED_TRACE(depth);
    Shard shard(MakeOptions(), &clock_, nullptr);
    ASSERT_TRUE(
        Ask(shard, &Shard::Restore, MakeAsynchronous(depth)).status().ok());
    const auto push = [&](uint32_t worker, uint64_t sequence) {
      Answer<proto::PushResponse> answer;
      // The first of two parts.
      shard.Push(
          Part(worker, sequence, 0, {Tensor("w", {2, 2}, {1, 1, 1, 1})}, 0, 2),
          answer.Catch());
      return answer.status();
    };
    for (uint64_t i = 1; i <= depth; ++i) EXPECT_TRUE(push(0, i).ok());
    EXPECT_TRUE(Fails(push(0, depth + 1), kExhausted,
                      {absl::StrCat("push ", depth + 1, " of "),
                       "(pushed by /job:worker/task:0)"}));
    EXPECT_EQ(shard.staged_bytes(), depth * 16) << "nothing of it is kept";
    for (uint64_t i = 1; i <= depth; ++i) EXPECT_TRUE(push(1, i).ok());
    // An applied push makes room.
    Answer<proto::PushResponse> rest;
    shard.Push(Part(0, 1, 0, {Tensor("b", {2}, {1, 1})}, 1, 2), rest.Catch());
    ASSERT_TRUE(rest.status().ok()) << rest.status();
    ASSERT_EQ(Ask(shard, &Shard::Apply, ApplyOf(0, 1))->verdict(),
              proto::ACCEPTED);
    EXPECT_TRUE(push(0, depth + 1).ok());
  }
}

// Otherwise the worker that others wait for might not be able to finish.
TEST_F(ShardApplyTest, ThePlaceOfTheNextPushIsNobodyElses_T2) {
  RestoreAsynchronous(/*pipeline_depth=*/2);
  // Whatever the workers, including this one, send first.
  for (const uint32_t worker : {0, 1}) {
    Stage(Whole(worker, 3, 0, 2));
    EXPECT_TRUE(Fails(Push(Whole(worker, 2, 0, 2)).status(), kExhausted));
  }
  for (const uint32_t worker : {0, 1}) Stage(Whole(worker, 1, 0, 2));
  EXPECT_EQ(Apply(0, 1)->verdict(), proto::ACCEPTED);
  Stage(Whole(0, 2, 0, 2));
  EXPECT_EQ(Apply(0, 2)->verdict(), proto::ACCEPTED);
  // Push 3 has become the next, and gives up the place that it had.
  Stage(Whole(0, 4, 0, 2));
  EXPECT_TRUE(Fails(Push(Whole(0, 5, 0, 2)).status(), kExhausted));
}

TEST_F(ShardApplyTest, EarlyPushesTakeTheMemoryThatIsLeft) {
  Shard::Options options = MakeOptions();
  // As much as a synchronous job of two workers needs, and room for one more
  // push.
  options.memory_limit_bytes = 28 + 4 * 24 + 24;
  Shard shard(options, &clock_, nullptr);
  ASSERT_TRUE(Ask(shard, &Shard::Restore, MakeAsynchronous(3)).status().ok());
  const auto push = [&](uint32_t worker, uint64_t sequence) {
    Answer<proto::PushResponse> answer;
    shard.Push(Whole(worker, sequence, 0, 2), answer.Catch());
    return answer.status();
  };
  EXPECT_TRUE(push(0, 1).ok());
  EXPECT_TRUE(push(0, 2).ok());
  EXPECT_TRUE(
      Fails(push(0, 3), kExhausted, {"no room beside the 2 undecided pushes"}));
  EXPECT_TRUE(push(1, 1).ok()) << "its place is its own";
  EXPECT_TRUE(
      Fails(push(1, 2), kExhausted, {"no room beside the 3 undecided pushes"}));
  // An applied push makes room, even if the next came early.
  ASSERT_EQ(Ask(shard, &Shard::Apply, ApplyOf(0, 1))->verdict(),
            proto::ACCEPTED);
  EXPECT_TRUE(push(1, 2).ok());
}

// A life that is over and its successor share one place, so that the plan is
// never exceeded.
TEST_F(ShardApplyTest, AWorkersLivesShareItsPlace) {
  Shard::Options options = MakeOptions();
  options.memory_limit_bytes = 28 + 4 * 24 + 24;
  Shard shard(options, &clock_, nullptr);
  ASSERT_TRUE(Ask(shard, &Shard::Restore, MakeAsynchronous(3)).status().ok());
  const auto push = [&](PushPart part) {
    Answer<proto::PushResponse> answer;
    shard.Push(std::move(part), answer.Catch());
    return answer.status();
  };
  EXPECT_TRUE(push(WholeOf(0, 1, 1, 2)).ok());
  EXPECT_TRUE(push(WholeOf(0, 2, 1, 2)).ok()) << "in the place for all";
  EXPECT_TRUE(Fails(push(WholeOf(0, 3, 1, 2)), kExhausted));
  EXPECT_TRUE(Fails(push(WholeOf(1, 1, 2, 2)), kExhausted));
  EXPECT_TRUE(push(WholeOf(1, 1, 1, 2)).ok());
  ASSERT_TRUE(
      Ask(shard, &Shard::Resolve, ResolveOf({Life(0, 1)})).status().ok());
  EXPECT_TRUE(push(WholeOf(0, 3, 1, 2)).ok());
}

TEST_F(ShardApplyTest, ASynchronousStepIsNoApply) {
  Restore();
  Stage(Whole(0, 1, 0, 2));
  EXPECT_TRUE(Fails(Apply(0, 1).status(), kNotReady,
                    {"push 1 of /job:worker/task:0", "synchronous"}));
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  Commit(0, {{0, 1, 1}});
}

TEST_F(ShardApplyTest, AnAsynchronousJobHasNoCommit) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 2));
  EXPECT_TRUE(
      Fails(Ask(shard_, &Shard::Commit, MakeCommit(0, {{0, 1, 1}})).status(),
            kInternal, {"commit of step 0", "asynchronous"}));
  EXPECT_EQ(shard_.version(), GlobalStep(0));
}

// ---- Apply [A3] ----

TEST_F(ShardApplyTest, APushIsAStep) {
  RestoreAsynchronous();
  const auto parked = PullAtLeast(1);
  Stage(Whole(0, 1, 0, 2, 4));
  EXPECT_EQ(shard_.version(), GlobalStep(0)) << "staged, no more";
  const auto answer = Apply(0, 1);
  EXPECT_EQ(answer->verdict(), proto::ACCEPTED);
  EXPECT_EQ(answer->generation(), 1u);
  EXPECT_EQ(answer->state().phase(), proto::TRAINING);
  EXPECT_EQ(answer->version(), 1u);
  EXPECT_EQ(answer->staleness(), 0u);
  EXPECT_EQ(answer->waiting_for(), "");
  EXPECT_THAT(Newest("w"), Each(0.0f));   // 1 - 0.5 x 2
  EXPECT_THAT(Newest("b"), Each(-2.0f));  // 0 - 0.5 x 4
  EXPECT_THAT(Newest("frozen"), ElementsAre(3));
  EXPECT_EQ(shard_.staged_bytes(), 0);
  // The pull that waited for the version has it.
  ASSERT_TRUE(parked.came());
  EXPECT_EQ(parked->version, GlobalStep(1));
  EXPECT_THAT(Values(parked, 0), Each(0.0f));
}

TEST_F(ShardApplyTest, ScalarsAndClipFactorAreThoseOfTheCall) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 8));
  proto::ApplyRequest request = ApplyOf(0, 1);
  request.mutable_scalars(0)->set_learning_rate(0.25f);
  request.set_clip_factor(0.5f);
  EXPECT_EQ(Apply(request)->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Newest("w"), Each(0.0f));  // 1 - 0.25 x 0.5 x 8
}

TEST_F(ShardApplyTest, ElementsAreClippedAsDeclared) {
  proto::RestoreRequest restore = MakeAsynchronous();
  restore.mutable_declaration()->mutable_clipping()->set_value(1);
  Restore(restore);
  Stage(Whole(0, 1, 0, 8, -0.5f));
  EXPECT_EQ(Apply(0, 1)->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Newest("w"), Each(0.5f));   // 8 is brought to 1
  EXPECT_THAT(Newest("b"), Each(0.25f));  // -0.5 is left
}

TEST_F(ShardApplyTest, WhatIsAveragedIsNotScaledDown) {
  proto::RestoreRequest restore = MakeAsynchronous();
  restore.mutable_declaration()
      ->mutable_variables(2)
      ->mutable_moving_average()
      ->set_momentum(0.5f);
  Restore(restore);
  Stage(Whole(0, 1, 0, 8, 6));
  proto::ApplyRequest request = ApplyOf(0, 1);
  request.set_clip_factor(0.25f);
  EXPECT_EQ(Apply(request)->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Newest("w"), Each(0.0f));  // 1 - 0.5 x 0.25 x 8
  EXPECT_THAT(Newest("b"), Each(3.0f));  // 0.5 x 0 + 0.5 x 6
}

// The worker does that, by the factor.
TEST_F(ShardApplyTest, TheShardDoesNotClipByTheGlobalNorm) {
  proto::RestoreRequest restore = MakeAsynchronous();
  restore.mutable_declaration()->mutable_clipping()->set_global_norm(1);
  Restore(restore);
  StageAndApply(0, 1, 2);
  EXPECT_THAT(Newest("w"), Each(0.0f));
}

TEST_F(ShardApplyTest, StalenessIsWhatWasAppliedInBetween) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 0));
  Stage(Whole(1, 1, 0, 0));
  EXPECT_EQ(Apply(0, 1)->staleness(), 0u);
  EXPECT_EQ(Apply(1, 1)->staleness(), 1u) << "worker 0's";
  // Its own pushes count too.
  Stage(Whole(0, 2, 2, 0));
  Stage(Whole(0, 3, 2, 0));
  EXPECT_EQ(Apply(0, 2)->staleness(), 0u);
  EXPECT_EQ(Apply(0, 3)->staleness(), 1u);
  Stage(Whole(1, 2, 1, 0));
  EXPECT_EQ(Apply(1, 2)->staleness(), 3u);
}

TEST_F(ShardApplyTest, ARepeatedApplyGetsItsFirstVerdictAndStaleness) {
  RestoreAsynchronous(3, /*momentum=*/true);
  Stage(Whole(0, 1, 0, 0));
  Stage(Whole(1, 1, 0, 2));
  Apply(0, 1);
  ASSERT_EQ(Apply(1, 1)->staleness(), 1u);
  StageAndApply(0, 2, 0);
  const std::vector<float> w = Newest("w");
  proto::ApplyRequest other = ApplyOf(1, 1);
  other.set_clip_factor(0.25f);
  other.clear_scalars();
  for (const proto::ApplyRequest& request : {ApplyOf(1, 1), other}) {
    const auto again = Apply(request);
    EXPECT_EQ(again->verdict(), proto::ACCEPTED);
    EXPECT_EQ(again->staleness(), 1u);
    EXPECT_EQ(again->version(), 3u) << "as it is";
  }
  EXPECT_EQ(Newest("w"), w);
  EXPECT_EQ(shard_.version(), GlobalStep(3));
}

TEST_F(ShardApplyTest, Factor0NeedsNoPartsAndChangesNothing) {
  RestoreAsynchronous(3, /*momentum=*/true);
  StageAndApply(0, 1, 2);  // a = 2, w = 1 - 1 = 0
  const auto none = Apply(NothingOf(0, 2));
  EXPECT_EQ(none->verdict(), proto::ACCEPTED);
  EXPECT_EQ(none->version(), 2u);
  EXPECT_EQ(none->staleness(), 0u);
  // Parts that are here are dropped; 0 x infinity would poison everything.
  Stage(Whole(0, 3, 2, kInfinity));
  EXPECT_EQ(Apply(NothingOf(0, 3))->verdict(), proto::ACCEPTED);
  EXPECT_EQ(shard_.staged_bytes(), 0);
  EXPECT_EQ(shard_.version(), GlobalStep(3));
  EXPECT_THAT(Newest("w"), Each(0.0f));
  // The slot is as it was: a = 0.5 x 2 + 4 = 5, w = 0 - 2.5.
  StageAndApply(0, 4, 4);
  EXPECT_THAT(Newest("w"), Each(-2.5f));
}

TEST_F(ShardApplyTest, WhatIsNotWholeIsNotApplied) {
  RestoreAsynchronous();
  EXPECT_TRUE(Fails(
      Apply(0, 1).status(), kNotReady,
      {"push 1 of /job:worker/task:0 (incarnation 1)", "is not on this ps"}));
  Stage(Part(0, 1, 0, {Tensor("w", {2, 2}, {2, 2, 2, 2})}, 0, 2));
  EXPECT_TRUE(
      Fails(Apply(0, 1).status(), kNotReady,
            {"push 1 of /job:worker/task:0", "variable \"b\": 0 of 2"}));
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  EXPECT_EQ(shard_.staged_bytes(), 16);
  // Nothing is decided by that.
  Stage(Part(0, 1, 0, {Tensor("b", {2}, {0, 0})}, 1, 2));
  EXPECT_EQ(Apply(0, 1)->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Newest("w"), Each(0.0f));
}

TEST_F(ShardApplyTest, ScalarsMustFitTheOptimizers) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 2));
  for (const uint64_t sequence : {1, 2}) {
    SCOPED_TRACE(sequence);
    proto::ApplyRequest request = ApplyOf(0, sequence);
    request.add_scalars();
    EXPECT_TRUE(Fails(Apply(request).status(), kInvalid,
                      {absl::StrCat("push ", sequence, " of "),
                       "scalars of 2 optimizers, declared 1"}));
    request.clear_scalars();
    EXPECT_TRUE(Fails(Apply(request).status(), kInvalid,
                      {"scalars of 0 optimizers, declared 1"}))
        << "at once, whether it is the next or not";
    request.set_clip_factor(0);
    EXPECT_TRUE(Fails(Apply(request).status(), kInvalid));
  }
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  EXPECT_EQ(Apply(0, 1)->verdict(), proto::ACCEPTED);
}

TEST_F(ShardApplyTest, OnlyWorkersOfTheClusterApply) {
  RestoreAsynchronous();
  const struct {
    proto::Sender sender;
    std::string text;
  } kCases[] = {
      {Sender(kPsJob, 0), "only a worker"},
      {Reader(), "only a worker"},
      {Sender(kEvaluatorJob, 0), "only a worker"},
      {Sender(kWorkerJob, 2), "only a worker of the cluster"},
      {Sender(kWorkerJob, 0, 0), "incarnation 0"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.sender.ShortDebugString());
    proto::ApplyRequest request = NothingOf(0, 1);
    *request.mutable_sender() = c.sender;
    EXPECT_TRUE(Fails(Apply(request).status(), kInvalid, {c.text}));
  }
  EXPECT_EQ(shard_.version(), GlobalStep(0));
}

// ---- The order of a worker's pushes ----

TEST_F(ShardApplyTest, AnApplyWaitsForThoseBefore_T3) {
  RestoreAsynchronous(3, /*momentum=*/true);
  for (const uint64_t sequence : {3, 1, 2}) {
    Stage(Whole(0, sequence, 0, static_cast<float>(sequence)));
  }
  const auto third = Apply(0, 3);
  const auto second = Apply(0, 2);
  EXPECT_FALSE(third.came());
  EXPECT_FALSE(second.came());
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  const auto first = Apply(0, 1);
  uint64_t version = 0;
  for (const auto& answer : {first, second, third}) {
    ASSERT_TRUE(answer.came());
    EXPECT_EQ(answer->verdict(), proto::ACCEPTED);
    EXPECT_EQ(answer->staleness(), version);
    EXPECT_EQ(answer->version(), ++version);
  }
  // a = 1, 2.5, 4.25; w = 1 - 0.5 (1 + 2.5 + 4.25). In another order a would be
  // 3, 3.5, 2.75.
  EXPECT_THAT(Newest("w"), Each(1 - 0.5f * 7.75f));
}

TEST_F(ShardApplyTest, WorkersAndTheirLivesHaveOrdersOfTheirOwn) {
  RestoreAsynchronous();
  Stage(Whole(0, 2, 0, 0));
  const auto parked = Apply(0, 2);
  StageAndApply(1, 1, 0);
  Stage(WholeOf(0, 2, 1, 0));
  EXPECT_EQ(Apply(0, 1, /*incarnation=*/2)->verdict(), proto::ACCEPTED);
  EXPECT_FALSE(parked.came()) << "push 1 of its own life is not decided";
}

TEST_F(ShardApplyTest, ItsTimeUpAnApplyIsToldWhatItWaitsFor) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 0);
  Stage(Whole(0, 3, 0, 0));
  const auto parked = Apply(0, 3);
  proto::ApplyRequest longer = ApplyOf(0, 4);
  longer.set_wait_ms(~uint64_t{0});
  const auto longest = Apply(longer);
  Pass(absl::Milliseconds(999));
  EXPECT_FALSE(parked.came());
  Pass(absl::Milliseconds(1));
  ASSERT_TRUE(parked.came());
  EXPECT_EQ(parked->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_EQ(parked->waiting_for(),
            "push 2 of /job:worker/task:0 (incarnation 1)");
  EXPECT_EQ(parked->state().phase(), proto::TRAINING);
  EXPECT_EQ(parked->version(), 1u);
  Pass(kMaxPark - absl::Milliseconds(1001));
  EXPECT_FALSE(longest.came());
  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(longest.came());
  // It is not remembered; the push stays staged.
  StageAndApply(0, 2, 0);
  EXPECT_EQ(shard_.version(), GlobalStep(2));
  EXPECT_EQ(Apply(0, 3)->verdict(), proto::ACCEPTED);
}

TEST_F(ShardApplyTest, AnApplyThatMayNotWaitIsAnsweredAtOnce) {
  RestoreAsynchronous();
  proto::ApplyRequest request = ApplyOf(0, 2);
  request.set_wait_ms(0);
  const auto answer = Apply(request);
  ASSERT_TRUE(answer.came());
  EXPECT_EQ(answer->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_EQ(answer->waiting_for(),
            "push 1 of /job:worker/task:0 (incarnation 1)");
}

TEST_F(ShardApplyTest, WhoAsksAgainWaitsForOneAnswer) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 2));
  Stage(Whole(0, 2, 0, 2));
  const auto first = Apply(0, 2);
  const auto second = Apply(0, 2);
  ASSERT_TRUE(first.came());
  EXPECT_EQ(first->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_FALSE(second.came());
  proto::ApplyRequest impatient = ApplyOf(0, 2);
  impatient.set_wait_ms(0);
  EXPECT_TRUE(Apply(impatient).came());
  EXPECT_TRUE(second.came());
  const auto third = Apply(0, 2);
  Apply(0, 1);
  EXPECT_EQ(third->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Newest("w"), Each(-1.0f)) << "twice 0.5 x 2, not three times";
}

TEST_F(ShardApplyTest, AParkedApplyIsToldWhatIsMissingWhenItsTurnComes) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 2));
  const auto second = Apply(0, 2);
  Stage(Whole(0, 3, 0, 2));
  const auto third = Apply(0, 3);
  EXPECT_EQ(Apply(0, 1)->verdict(), proto::ACCEPTED);
  EXPECT_TRUE(Fails(second.status(), kNotReady, {"push 2", "not on this ps"}));
  EXPECT_FALSE(third.came()) << "2 may come yet";
  Stage(Whole(0, 2, 0, 2));
  EXPECT_EQ(Apply(0, 2)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(third->verdict(), proto::ACCEPTED);
}

TEST_F(ShardApplyTest, Factor0TakesItsPlaceInTheOrder) {
  RestoreAsynchronous();
  Stage(Whole(0, 2, 0, 2));
  const auto second = Apply(0, 2);
  const auto third = Apply(NothingOf(0, 3));
  EXPECT_EQ(Apply(NothingOf(0, 1))->verdict(), proto::ACCEPTED);
  EXPECT_EQ(second->verdict(), proto::ACCEPTED);
  EXPECT_EQ(third->verdict(), proto::ACCEPTED);
  EXPECT_EQ(shard_.version(), GlobalStep(3));
}

// The worker had no ticket for the last push before the first was booked, so
// the worker's word is not needed.
TEST_F(ShardApplyTest, WhatMustBeBookedIsForgottenAndStaysDecided_P3) {
  RestoreAsynchronous(/*pipeline_depth=*/1);
  const auto lying = [&](uint64_t sequence) {
    proto::ApplyRequest request = ApplyOf(0, sequence);
    request.set_acked_through(sequence);
    return request;
  };
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
    PushPart part = Whole(0, sequence, 0, 0);
    part.acked_through = PushSequence(sequence);
    Stage(part);
    EXPECT_EQ(Apply(lying(sequence))->verdict(), proto::ACCEPTED);
  }
  EXPECT_EQ(Apply(lying(1))->verdict(), proto::ACCEPTED) << "not forgotten";
  EXPECT_EQ(Apply(NothingOf(0, 3))->verdict(), proto::ACCEPTED);
  EXPECT_EQ(Apply(0, 1)->verdict(), proto::STALE);
  EXPECT_EQ(Push(Whole(0, 1, 0, 0))->verdict(), proto::STALE);
  EXPECT_EQ(Apply(0, 2)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(shard_.version(), GlobalStep(3));
  EXPECT_EQ(shard_.verdicts_kept(), 2u);
}

// Such a push could never become the next one.
TEST_F(ShardApplyTest, ASequenceThatIsTooFarAheadIsAnError) {
  RestoreAsynchronous(/*pipeline_depth=*/2);
  StageAndApply(0, 1, 2);
  EXPECT_FALSE(Apply(0, 4).came()) << "one of three that may be under way";
  const std::initializer_list<std::string> expected = {
      "push 5 of /job:worker/task:0", "expected push 2, or one of the 2"};
  EXPECT_TRUE(Fails(Apply(0, 5).status(), kNotReady, expected));
  EXPECT_TRUE(Fails(Push(Whole(0, 5, 0, 2)).status(), kNotReady, expected));
  Stage(Whole(0, 4, 0, 2));
}

// Beyond the limit a call is answered at once, and may be asked again.
TEST_F(ShardApplyTest, ParkedAppliesAreBounded) {
  RestoreAsynchronous(/*pipeline_depth=*/64);
  constexpr uint64_t kMaxParked = 65536;
  uint64_t parked = 0;
  bool full = false;
  for (uint64_t life = 1; !full && life < 2000; ++life) {
    for (uint64_t i = 2; !full && i <= 65; ++i) {
      full = Apply(NothingOf(0, i, life)).came();
      if (!full) ++parked;
    }
  }
  EXPECT_EQ(parked, kMaxParked);
}

// A worker may send all that it has tickets for, the last one first.
TEST_F(ShardApplyTest, ManyParkedAppliesAreReleasedInOrder) {
  constexpr uint64_t kMany = 65;
  RestoreAsynchronous(/*pipeline_depth=*/64);
  std::vector<Answer<proto::ApplyResponse>> answers;
  for (uint64_t i = kMany; i > 1; --i) {
    answers.push_back(Apply(NothingOf(0, i)));
    ASSERT_FALSE(answers.back().came());
  }
  EXPECT_EQ(Apply(NothingOf(0, 1))->version(), 1u);
  uint64_t version = kMany;
  for (const auto& answer : answers) {
    ASSERT_TRUE(answer.came());
    ASSERT_EQ(answer->version(), version--);
  }
}

TEST_F(ShardApplyTest, AnswersMayCallBack) {
  RestoreAsynchronous();
  // A worker that applies each push from inside the answer to the one before,
  // while the one after waits already.
  std::vector<uint64_t> versions;
  std::function<void(uint64_t)> apply = [&](uint64_t sequence) {
    shard_.Apply(NothingOf(0, sequence),
                 [&, sequence](absl::StatusOr<proto::ApplyResponse> response) {
                   ASSERT_TRUE(response.ok()) << response.status();
                   EXPECT_EQ(response->verdict(), proto::ACCEPTED);
                   versions.push_back(response->version());
                   if (sequence < 5) apply(sequence + 2);
                 });
  };
  apply(2);
  apply(1);
  EXPECT_THAT(versions, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(ShardApplyTest, TheEndAnswersParkedApplies) {
  RestoreAsynchronous();
  Stage(Whole(0, 2, 0, 2));
  const auto parked = Apply(0, 2);
  End(proto::FAILED, "worker 1 is lost");
  EXPECT_TRUE(Fails(parked.status(), kAborted, {"worker 1 is lost"}));
  EXPECT_TRUE(Fails(Apply(0, 1).status(), kAborted, {"worker 1 is lost"}));
  EXPECT_TRUE(Fails(Apply(NothingOf(0, 1)).status(), kAborted));
  EXPECT_TRUE(Fails(Fence({Life(0)}).status(), kAborted));
  EXPECT_TRUE(Fails(Resolve({Life(0)}).status(), kAborted));
  EXPECT_EQ(shard_.version(), GlobalStep(0));
}

}  // namespace
}  // namespace holdfast
