// SPDX-License-Identifier: Apache-2.0

// The end of a life with asynchronous pushes: the fence that stops it, and the
// resolution of what it has left (docs/protocol/asynchronous.md, step A5).
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;

class ShardResolveTest : public AsynchronousShardTest {};

// ---- Fence [A5] ----

TEST_F(ShardResolveTest, AFenceTellsWhatMayNotBeBooked) {
  RestoreAsynchronous(/*pipeline_depth=*/1);
  StageAndApply(0, 1, 0);
  StageAndApply(1, 1, 0);
  Stage(Whole(0, 2, 1, 0));
  proto::ApplyRequest clipped = ApplyOf(0, 2);
  clipped.set_clip_factor(0.25f);
  clipped.set_examples(30);
  clipped.set_acked_through(1);  // is not believed
  EXPECT_EQ(Apply(clipped)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(Apply(NothingOf(0, 3))->verdict(), proto::ACCEPTED);
  Stage(Whole(0, 4, 0, 0));  // not applied
  const auto answer = Fence({Life(0)});
  EXPECT_EQ(answer->generation(), 1u);
  EXPECT_EQ(Told(*answer),
            "0.1#2 *0.25 of 30, staleness 1; "
            "0.1#3 *0 of 0, staleness 0");
  // Again, and of several.
  EXPECT_EQ(Told(*Fence({Life(0)})), Told(*answer));
  EXPECT_EQ(Told(*Fence({Life(1), Life(0, 2)})), "1.1#1 *1 of 10, staleness 0");
  EXPECT_EQ(shard_.staged_bytes(), 24) << "another shard may have applied it";
  EXPECT_EQ(shard_.version(), GlobalStep(4));
}

TEST_F(ShardResolveTest, AFenceTellsWhatWasNotFinite) {
  RestoreAsynchronous();
  Apply(NothingOf(0, 1));
  proto::ApplyRequest overflowed = NothingOf(0, 2);
  overflowed.set_not_finite(true);
  Apply(overflowed);
  const auto answer = Fence({Life(0)});
  ASSERT_EQ(answer->applied_size(), 2);
  EXPECT_FALSE(answer->applied(0).not_finite());
  EXPECT_TRUE(answer->applied(1).not_finite());
}

TEST_F(ShardResolveTest, AFencedLifeIsRefusedForEver_T5) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 0);
  Stage(Whole(0, 2, 0, 0));
  Fence({Life(0, 2)});
  for (const uint64_t incarnation : {1, 2}) {
    SCOPED_TRACE(incarnation);
    for (const uint64_t sequence : {1, 2, 3}) {
      const auto push = Push(WholeOf(0, incarnation, sequence, 1));
      EXPECT_EQ(push->verdict(), proto::FENCED) << sequence;
      EXPECT_EQ(push->version(), 1u);
      const auto apply = Apply(NothingOf(0, sequence, incarnation));
      EXPECT_EQ(apply->verdict(), proto::FENCED) << sequence;
      EXPECT_EQ(apply->staleness(), 0u);
    }
    // Nothing that it says is believed.
    proto::ApplyRequest acked = NothingOf(0, 9, incarnation);
    acked.set_acked_through(8);
    EXPECT_EQ(Apply(acked)->verdict(), proto::FENCED);
    PushPart part = WholeOf(0, incarnation, 9, 1);
    part.acked_through = PushSequence(8);
    EXPECT_EQ(Push(part)->verdict(), proto::FENCED);
  }
  EXPECT_EQ(Told(*Fence({Life(0)})), "0.1#1 *1 of 10, staleness 0");
  EXPECT_EQ(shard_.version(), GlobalStep(1));
  EXPECT_EQ(shard_.staged_bytes(), 24);
  // Its successor and its neighbor are not fenced.
  Stage(WholeOf(0, 3, 1, 0));
  EXPECT_EQ(Apply(0, 1, 3)->verdict(), proto::ACCEPTED);
  StageAndApply(1, 1, 0);
  // Nor does a late fence let it in again.
  Fence({Life(0, 1)});
  EXPECT_EQ(Apply(NothingOf(0, 3, 2))->verdict(), proto::FENCED);
  // Its successor can be fenced too.
  EXPECT_EQ(Told(*Fence({Life(0, 3)})), "0.3#1 *1 of 10, staleness 1");
  EXPECT_EQ(Apply(NothingOf(0, 2, 3))->verdict(), proto::FENCED);
}

TEST_F(ShardResolveTest, AFenceAnswersParkedApplies) {
  RestoreAsynchronous();
  const auto third = Apply(0, 3);
  const auto second = Apply(0, 2);
  const auto newer = Apply(0, 2, /*incarnation=*/2);
  const auto other = Apply(1, 2);
  Fence({Life(0)});
  EXPECT_EQ(second->verdict(), proto::FENCED);
  EXPECT_EQ(third->verdict(), proto::FENCED);
  EXPECT_FALSE(newer.came());
  EXPECT_FALSE(other.came());
}

TEST_F(ShardResolveTest, OnlyTheCoordinatorFencesAndResolves) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 2));
  for (const proto::Sender& sender :
       {Sender(kWorkerJob, 0), Sender(kPsJob, 1), Reader()}) {
    SCOPED_TRACE(sender.ShortDebugString());
    const std::vector<std::string> text = {"that only /job:ps/task:0 may send"};
    proto::FenceRequest fence;
    *fence.mutable_sender() = sender;
    *fence.add_lives() = Life(0);
    EXPECT_TRUE(
        Fails(Ask(shard_, &Shard::Fence, fence).status(), kDenied, text));
    proto::ResolveRequest resolve = ResolveOf({Life(0)});
    *resolve.mutable_sender() = sender;
    EXPECT_TRUE(
        Fails(Ask(shard_, &Shard::Resolve, resolve).status(), kDenied, text));
  }
  EXPECT_EQ(Apply(0, 1)->verdict(), proto::ACCEPTED);
}

// A synchronous job has fences too, but there only Commit says what counts.
TEST_F(ShardResolveTest, InASynchronousJobAFenceTellsOfNothingApplied) {
  Restore();
  Stage(Whole(0, 1, 0, 2));
  Stage(Whole(1, 1, 0, 2));
  Commit(0, {{0, 1, 1}, {1, 1, 0}});
  Stage(Whole(0, 2, 1, 2));
  Stage(Whole(1, 2, 1, 2));
  EXPECT_EQ(Told(*Fence({Life(0)})), "");
  EXPECT_EQ(Push(Whole(0, 3, 1, 2))->verdict(), proto::FENCED);
  EXPECT_EQ(shard_.staged_bytes(), 48);
  EXPECT_EQ(Resolve({Life(0)})->version(), 1u);
  EXPECT_EQ(shard_.staged_bytes(), 24) << "of worker 1 alone";
  EXPECT_EQ(Push(Whole(0, 2, 1, 2))->verdict(), proto::FENCED);
  PushPart successor = Whole(0, 1, 1, 2);
  successor.sender.set_incarnation(2);
  Stage(successor);
  Commit(1, {{1, 2, 1}});
}

// ---- Resolve [A5] ----

TEST_F(ShardResolveTest, AResolutionAppliesWhatIsMissingAndDropsTheRest) {
  RestoreAsynchronous(4, /*momentum=*/true);
  const auto parked = PullAtLeast(3);
  StageAndApply(0, 1, 2);  // a = 2, w = 1 - 1 = 0
  Stage(Whole(0, 2, 1, 4));
  Stage(Whole(0, 3, 1, 1));
  Stage(Whole(0, 4, 1, 9));
  Stage(Whole(1, 1, 1, 2));
  Fence({Life(0)});
  proto::AppliedPush second = Applied(Life(0), 2, 0.5f);
  second.mutable_scalars(0)->set_learning_rate(0.25f);
  const auto answer =
      Resolve({Life(0)}, {Applied(Life(0), 1), second, Applied(Life(0), 3)});
  EXPECT_EQ(answer->generation(), 1u);
  EXPECT_EQ(answer->version(), 3u);
  // Push 2: a = 1 + 0.5 x 4 = 3, w = 0 - 0.25 x 3; push 3: a = 1.5 + 1 = 2.5,
  // w = -0.75 - 0.5 x 2.5. Push 1 was applied already.
  EXPECT_THAT(Newest("w"), Each(-2.0f));
  EXPECT_EQ(shard_.staged_bytes(), 24) << "of worker 1 alone";
  ASSERT_TRUE(parked.came());
  EXPECT_EQ(parked->version, GlobalStep(3));
  EXPECT_EQ(Apply(1, 1)->staleness(), 2u) << "they count like any other";
}

TEST_F(ShardResolveTest, AResolutionIsDoneOnce) {
  RestoreAsynchronous(3, /*momentum=*/true);
  Stage(Whole(0, 1, 0, 2));
  Fence({Life(0)});
  const std::vector<proto::AppliedPush> applied = {Applied(Life(0), 1)};
  EXPECT_EQ(Resolve({Life(0)}, applied)->version(), 1u);
  const std::vector<float> w = Newest("w");
  // What the life did is forgotten, so the shard must remember the resolution
  // itself.
  EXPECT_EQ(Told(*Fence({Life(0)})), "");
  EXPECT_EQ(Resolve({Life(0)}, applied)->version(), 1u);
  EXPECT_EQ(Resolve({Life(0)}, {Applied(Life(0), 1, 0)})->version(), 1u);
  StageAndApply(1, 1, 0);
  EXPECT_EQ(Resolve({Life(0)}, applied)->version(), 2u) << "as it is";
  EXPECT_EQ(shard_.version(), GlobalStep(2));
  EXPECT_EQ(Apply(NothingOf(0, 1))->verdict(), proto::FENCED);
}

TEST_F(ShardResolveTest, Factor0IsResolvedWithoutParts) {
  RestoreAsynchronous();
  Stage(Whole(0, 2, 0, 2));
  Fence({Life(0)});
  EXPECT_EQ(Resolve({Life(0)}, {Applied(Life(0), 1, 0), Applied(Life(0), 2)})
                ->version(),
            2u);
  EXPECT_THAT(Newest("w"), Each(0.0f));
}

TEST_F(ShardResolveTest, ResolvedLivesLeaveTheirSuccessorsAlone) {
  RestoreAsynchronous(/*pipeline_depth=*/2);
  Stage(WholeOf(0, 1, 1, 2));
  Stage(WholeOf(0, 2, 1, 2));
  const auto later = Apply(0, 2, /*incarnation=*/2);
  // The earlier life takes its successor's place until it is resolved.
  EXPECT_TRUE(Fails(Push(WholeOf(0, 2, 2, 2)).status(), kExhausted));
  Fence({Life(0, 1)});
  EXPECT_EQ(Resolve({Life(0, 1)})->version(), 0u);
  EXPECT_EQ(shard_.staged_bytes(), 24);
  Stage(WholeOf(0, 2, 2, 2));
  EXPECT_EQ(Apply(0, 1, 2)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(later->verdict(), proto::ACCEPTED);
  // They are resolved one after the other, each once.
  Fence({Life(0, 2)});
  Stage(WholeOf(0, 3, 1, 2));
  EXPECT_EQ(
      Resolve({Life(0, 2)}, {Applied(Life(0, 2), 1), Applied(Life(0, 2), 2)})
          ->version(),
      2u);
  EXPECT_EQ(Resolve({Life(0, 1)}, {Applied(Life(0, 1), 1, 0)})->version(), 2u);
  EXPECT_EQ(Resolve({Life(0, 2)}, {Applied(Life(0, 2), 1, 0)})->version(), 2u);
  EXPECT_EQ(shard_.staged_bytes(), 24);
  EXPECT_EQ(Apply(0, 1, 3)->verdict(), proto::ACCEPTED);
}

TEST_F(ShardResolveTest, SeveralLivesAreResolvedTogether) {
  RestoreAsynchronous();
  Stage(WholeOf(0, 1, 1, 2));
  Stage(WholeOf(0, 2, 1, 4));
  Stage(WholeOf(1, 1, 1, 8));
  Fence({Life(0, 1), Life(0, 2), Life(1)});
  EXPECT_EQ(Resolve({Life(0, 1), Life(0, 2), Life(1)},
                    {Applied(Life(0, 1), 1), Applied(Life(0, 2), 1)})
                ->version(),
            2u);
  EXPECT_THAT(Newest("w"), Each(-2.0f));  // 1 - 0.5 (2 + 4)
  EXPECT_EQ(shard_.staged_bytes(), 0);
}

TEST_F(ShardResolveTest, AResolutionThatCannotBeIsAnError) {
  proto::AppliedPush no_scalars = Applied(Life(0), 2);
  no_scalars.clear_scalars();
  const struct {
    const char* what;
    proto::AppliedPush push;
    std::string text;
  } kCases[] = {
      {"not here", Applied(Life(1), 1),
       "push 1 of /job:worker/task:1 (incarnation 1) is not on this ps"},
      {"not whole", Applied(Life(0), 2), "variable \"b\": 0 of 2"},
      {"not the next", Applied(Life(0), 3, 0), "not the next in its order"},
      {"no scalars", no_scalars, "scalars of 0 optimizers, declared 1"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    Shard shard(MakeOptions(), &clock_, nullptr);
    ASSERT_TRUE(Ask(shard, &Shard::Restore, MakeAsynchronous()).status().ok());
    for (PushPart part :
         {Whole(0, 1, 0, 2),
          Part(0, 2, 0, {Tensor("w", {2, 2}, {1, 1, 1, 1})}, 0, 2)}) {
      Answer<proto::PushResponse> answer;
      shard.Push(std::move(part), answer.Catch());
      ASSERT_TRUE(answer.status().ok()) << answer.status();
    }
    ASSERT_EQ(Ask(shard, &Shard::Apply, ApplyOf(0, 1))->verdict(),
              proto::ACCEPTED);
    EXPECT_TRUE(Fails(
        Ask(shard, &Shard::Resolve, ResolveOf({Life(0), Life(1)}, {c.push}))
            .status(),
        kInternal,
        {absl::StrCat("resolution of push ", c.push.sequence()),
         "at /job:ps/task:1", c.text}));
    EXPECT_EQ(shard.version(), GlobalStep(1));
  }
}

}  // namespace
}  // namespace holdfast
