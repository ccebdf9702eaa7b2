// SPDX-License-Identifier: Apache-2.0

// A shard's share of checkpoints (docs/protocol/recovery.md, C2 to C4).
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ShardSaveTest : public AsynchronousShardTest {
 protected:
  Answer<proto::HoldResponse> Hold(uint64_t number) {
    return Ask(shard_, &Shard::Hold, HoldOf(number));
  }
  Answer<proto::SaveResponse> Save(
      uint64_t number, uint64_t step,
      const std::vector<proto::AppliedPush>& applied = {}) {
    return Ask(shard_, &Shard::Save, SaveOf(number, step, applied));
  }
  Answer<proto::AwaitSavedResponse> Await(uint64_t number,
                                          uint64_t wait_ms = 1000) {
    return Ask(shard_, &Shard::AwaitSaved, AwaitOf(number, wait_ms));
  }
  // The values of w that the disk was given, and those of its first slot.
  static std::vector<float> SavedValues(const FakeDisk::SaveCall& save) {
    const float* w = save.snapshot.version->slices[0][0].get();
    return {w, w + 4};
  }
  static std::vector<float> SavedSlot(const FakeDisk::SaveCall& save) {
    const float* slot = save.snapshot.slots[0][0][0].get();
    return {slot, slot + 4};
  }
};

// ---- Hold [C2] ----

TEST_F(ShardSaveTest, HoldTellsWhatIsAppliedOfAllLives) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 0);
  StageAndApply(1, 1, 0);
  Stage(Whole(1, 2, 2, 0));
  proto::ApplyRequest second = ApplyOf(1, 2);
  second.set_acked_through(1);
  EXPECT_EQ(Apply(second)->verdict(), proto::ACCEPTED);
  Stage(WholeOf(0, 2, 1, 0));  // not applied
  const auto answer = Hold(1);
  EXPECT_EQ(answer->generation(), 1u);
  EXPECT_EQ(Told(*answer),
            "0.1#1 *1 of 10, staleness 0; 1.1#1 *1 of 10, staleness 0; "
            "1.1#2 *1 of 10, staleness 0");
  EXPECT_EQ(Told(*Hold(1)), Told(*answer)) << "again";
}

// The pushes of a resolved life are booked.
TEST_F(ShardSaveTest, HoldTellsNothingOfResolvedLives) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 0);
  StageAndApply(1, 1, 0);
  Fence({Life(0)});
  Resolve({Life(0)}, {Applied(Life(0), 1)});
  EXPECT_EQ(Told(*Hold(1)), "1.1#1 *1 of 10, staleness 0");
}

TEST_F(ShardSaveTest, WhatWouldBeAppliedIsParkedFromHoldToSave) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 2);
  Hold(1);
  Stage(Whole(0, 2, 1, 2));
  Stage(Whole(0, 3, 1, 2));
  Stage(Whole(1, 1, 1, 2));
  const auto third = Apply(0, 3);
  const auto second = Apply(0, 2);
  const auto other = Apply(1, 1);
  EXPECT_FALSE(second.came());
  EXPECT_FALSE(third.came());
  EXPECT_FALSE(other.came());
  EXPECT_EQ(shard_.version(), GlobalStep(1));
  EXPECT_EQ(Apply(0, 1)->verdict(), proto::ACCEPTED) << "that is decided";
  EXPECT_EQ(Save(1, 1)->version(), 1u);
  EXPECT_EQ(second->verdict(), proto::ACCEPTED);
  EXPECT_EQ(third->verdict(), proto::ACCEPTED);
  EXPECT_EQ(other->verdict(), proto::ACCEPTED);
  EXPECT_EQ(shard_.version(), GlobalStep(4));
  StageAndApply(1, 2, 0);
}

TEST_F(ShardSaveTest, AParkedApplyTellsThatItWaitsForACheckpoint) {
  RestoreAsynchronous();
  Hold(1);
  Stage(Whole(0, 1, 0, 2));
  const auto parked = Apply(0, 1);
  Pass(absl::Seconds(1));
  ASSERT_TRUE(parked.came());
  EXPECT_EQ(parked->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_EQ(parked->waiting_for(), "a checkpoint to be taken");
  const auto again = Apply(0, 1);
  EXPECT_FALSE(again.came());
  Save(1, 0);
  EXPECT_EQ(again->verdict(), proto::ACCEPTED);
}

TEST_F(ShardSaveTest, ParkedAppliesAreLookedAtAgainFromTheBeginning_T7) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 2));
  Stage(Whole(1, 1, 0, 2));
  Hold(1);
  const auto applied_elsewhere = Apply(0, 1);
  const auto fenced = Apply(1, 1);
  const auto not_here = Apply(0, 2);
  EXPECT_FALSE(fenced.came());
  Fence({Life(1)});
  EXPECT_EQ(fenced->verdict(), proto::FENCED) << "it waits for nothing";
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  EXPECT_FALSE(applied_elsewhere.came());
  EXPECT_EQ(Save(1, 1, {Applied(Life(0), 1)})->version(), 1u);
  EXPECT_EQ(applied_elsewhere->verdict(), proto::ACCEPTED);
  EXPECT_EQ(shard_.version(), GlobalStep(1)) << "applied once";
  EXPECT_TRUE(Fails(not_here.status(), kNotReady, {"not on this ps"}));
}

TEST_F(ShardSaveTest, AHoldAtOrBelowTheLastSaveDoesNothing_T8) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 2);
  Hold(2);
  Save(2, 1);
  for (const uint64_t number : {1, 2}) {
    EXPECT_EQ(Told(*Hold(number)), "");
  }
  StageAndApply(0, 2, 2);
  disk_.FinishSave("done");
  EXPECT_EQ(Told(*Hold(3)),
            "0.1#1 *1 of 10, staleness 0; 0.1#2 *1 of 10, staleness 0");
  Stage(Whole(0, 3, 2, 2));
  EXPECT_FALSE(Apply(0, 3).came());
}

TEST_F(ShardSaveTest, ASynchronousJobIsNotHeld) {
  Restore();
  EXPECT_TRUE(Fails(Hold(1).status(), kInternal, {"synchronous"}));
}

TEST_F(ShardSaveTest, ANewGenerationHoldsNothing) {
  RestoreAsynchronous();
  Hold(5);
  proto::RestoreRequest next = MakeAsynchronous();
  next.mutable_sender()->set_generation(2);
  ASSERT_TRUE(Ask(shard_, &Shard::Restore, next).status().ok());
  proto::ApplyRequest apply = NothingOf(0, 1);
  apply.mutable_sender()->set_generation(2);
  EXPECT_EQ(Apply(apply)->verdict(), proto::ACCEPTED);
  // And numbers begin anew.
  proto::HoldRequest hold = HoldOf(1);
  hold.mutable_sender()->set_generation(2);
  EXPECT_EQ(Told(*Ask(shard_, &Shard::Hold, hold)),
            "0.1#1 *0 of 0, staleness 0");
}

TEST_F(ShardSaveTest, OnlyTheCoordinatorSaves) {
  RestoreAsynchronous();
  for (const proto::Sender& sender :
       {Sender(kWorkerJob, 0), Sender(kPsJob, 1), Reader()}) {
    proto::HoldRequest hold = HoldOf(1);
    *hold.mutable_sender() = sender;
    EXPECT_TRUE(Fails(Ask(shard_, &Shard::Hold, hold).status(), kDenied));
    proto::SaveRequest save = SaveOf(1, 0);
    *save.mutable_sender() = sender;
    EXPECT_TRUE(Fails(Ask(shard_, &Shard::Save, save).status(), kDenied));
    proto::AwaitSavedRequest await = AwaitOf(1);
    *await.mutable_sender() = sender;
    EXPECT_TRUE(
        Fails(Ask(shard_, &Shard::AwaitSaved, await).status(), kDenied));
  }
  EXPECT_THAT(disk_.saves, IsEmpty());
}

// ---- Save [C3] ----

TEST_F(ShardSaveTest, SaveAppliesWhatOthersHaveAppliedFirst) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 2);  // w = 1 - 1 = 0
  Stage(Whole(0, 2, 1, 2));
  Stage(Whole(1, 1, 1, 4));
  Stage(Whole(1, 2, 1, 8));
  const auto pull = PullAtLeast(3);
  Hold(1);
  // Push 2 of worker 1 was applied nowhere.
  const auto answer = Save(
      1, 3, {Applied(Life(0), 1), Applied(Life(0), 2), Applied(Life(1), 1)});
  EXPECT_EQ(answer->version(), 3u);
  EXPECT_EQ(answer->generation(), 1u);
  EXPECT_TRUE(pull.came());
  ASSERT_THAT(disk_.saves, SizeIs(1));
  const FakeDisk::SaveCall& save = disk_.saves[0];
  EXPECT_EQ(save.name.generation(), 1u);
  EXPECT_EQ(save.name.step(), 3u);
  EXPECT_EQ(save.num_ps, 3u);
  EXPECT_EQ(save.snapshot.version->number, GlobalStep(3));
  EXPECT_THAT(SavedValues(save), Each(-3.0f));  // 0 - 0.5 (2 + 4)
  EXPECT_GT(shard_.staged_bytes(), 0);
}

TEST_F(ShardSaveTest, TheShareStaysAsItWasWhileTrainingGoesOn) {
  Restore(MakeRestore(2, 2, /*momentum=*/true));
  Step(0, 2);  // a = 2, w = 1 - 1 = 0
  EXPECT_EQ(Save(1, 1)->version(), 1u);
  Step(1, 2);  // a = 1 + 2 = 3, w = 0 - 1.5
  Step(2, 2);
  ASSERT_THAT(disk_.saves, SizeIs(1));
  EXPECT_THAT(SavedValues(disk_.saves[0]), Each(0.0f));
  EXPECT_THAT(SavedSlot(disk_.saves[0]), Each(2.0f));
  EXPECT_EQ(shard_.version(), GlobalStep(3));
  // a = 1.5 + 2 = 3.5, w = -1.5 - 1.75.
  EXPECT_THAT(Newest("w"), Each(-3.25f));
}

TEST_F(ShardSaveTest, ARepeatedSaveIsAcknowledgedAndTakenOnce) {
  Restore();
  Step(0, 2);
  EXPECT_EQ(Save(1, 1)->version(), 1u);
  Step(1, 2);
  EXPECT_EQ(Save(1, 1)->version(), 2u);
  EXPECT_THAT(disk_.saves, SizeIs(1));
}

TEST_F(ShardSaveTest, AShareOfAnotherVersionIsAnError_R8) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 2);
  Hold(1);
  for (const uint64_t step : {0, 2}) {
    EXPECT_TRUE(Fails(Save(1, step).status(), kInternal,
                      {"checkpoint 1", "/job:ps/task:1 is at version 1"}));
  }
  EXPECT_TRUE(Fails(Save(1, 2, {Applied(Life(1), 1)}).status(), kInternal,
                    {"push 1 of /job:worker/task:1", "not on this ps"}));
  EXPECT_THAT(disk_.saves, IsEmpty());
}

TEST_F(ShardSaveTest, WithoutADiskNothingIsSaved) {
  Shard shard(MakeOptions(), &clock_, nullptr);
  ASSERT_TRUE(Ask(shard, &Shard::Restore, MakeRestore()).status().ok());
  EXPECT_TRUE(Fails(Ask(shard, &Shard::Save, SaveOf(1, 0)).status(), kNotReady,
                    {"/job:ps/task:1", "--checkpoint_dir"}));
}

// There is memory for only one share that is being written.
TEST_F(ShardSaveTest, OneShareIsWrittenAtATime) {
  Restore();
  Save(1, 0);
  Step(0, 2);
  EXPECT_TRUE(Fails(Save(2, 1).status(), kUnavailable, {"/job:ps/task:1"}));
  // Even for a generation that is over, which needs no share.
  EXPECT_EQ(disk_.abandoned, 0);
  proto::RestoreRequest restore = MakeRestore();
  restore.mutable_sender()->set_generation(2);
  ASSERT_TRUE(Ask(shard_, &Shard::Restore, restore).status().ok());
  EXPECT_EQ(disk_.abandoned, 1);
  proto::SaveRequest save = SaveOf(1, 0);
  save.mutable_sender()->set_generation(2);
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Save, save).status(), kUnavailable));
  EXPECT_THAT(disk_.saves, SizeIs(1));
  disk_.FailSave(absl::DataLossError("why"));
  EXPECT_TRUE(Ask(shard_, &Shard::Save, save).status().ok());
  EXPECT_THAT(disk_.saves, SizeIs(1));
}

// ---- AwaitSaved [C4] ----

TEST_F(ShardSaveTest, AwaitTellsWhatFileTheShareIsIn) {
  Restore();
  Save(1, 0);
  const auto early = Await(1);
  EXPECT_FALSE(early.came());
  disk_.FinishSave("of-3");
  EXPECT_EQ(early->generation(), 1u);
  EXPECT_EQ(early->file().name(), "of-3");
  EXPECT_EQ(Await(1)->file().name(), "of-3") << "until the next";
  Save(2, 0);
  EXPECT_TRUE(Fails(Await(1).status(), kNotFound, {"checkpoint 1"}));
  EXPECT_FALSE(Await(2).came());
  EXPECT_TRUE(Fails(Await(3).status(), kNotFound, {"checkpoint 3"}));
}

TEST_F(ShardSaveTest, AwaitIsAnsweredWithoutAFileWhenItsTimeIsUp) {
  Restore();
  Save(1, 0);
  const auto parked = Await(1, 1000);
  Pass(absl::Milliseconds(999));
  EXPECT_FALSE(parked.came());
  Pass(absl::Milliseconds(1));
  ASSERT_TRUE(parked.came());
  EXPECT_FALSE(parked->has_file());
  disk_.progress.set_bytes_done(30);
  const auto now = Await(1, 0);
  EXPECT_FALSE(now->has_file()) << "at once";
  EXPECT_EQ(now->progress().bytes_done(), 30u);
}

TEST_F(ShardSaveTest, WhatTheDiskSaysAgainstItIsTold) {
  Restore();
  Save(1, 0);
  const auto parked = Await(1);
  disk_.FailSave(absl::ResourceExhaustedError("the disk is full"));
  for (const auto& answer : {parked, Await(1)}) {
    EXPECT_TRUE(Fails(answer.status(), kExhausted, {"the disk is full"}));
  }
  EXPECT_EQ(Save(1, 0)->version(), 0u) << "acknowledged";
  EXPECT_THAT(disk_.saves, IsEmpty()) << "the next attempt has a new number";
  Save(2, 0);
  disk_.FailSave(absl::UnavailableError("input/output error"));
  EXPECT_TRUE(Fails(Await(2).status(), kInternal, {"input/output error"}))
      << "to ask again brings nothing";
  Save(3, 0);
  disk_.FinishSave("third");
  EXPECT_EQ(Await(3)->file().name(), "third");
}

TEST_F(ShardSaveTest, AShareOfAnOlderGenerationIsNotTakenForOneOfThis) {
  Restore();
  Save(1, 0);
  const auto older = Await(1);
  proto::RestoreRequest restore = MakeRestore();
  restore.mutable_sender()->set_generation(2);
  ASSERT_TRUE(Ask(shard_, &Shard::Restore, restore).status().ok());
  EXPECT_TRUE(Fails(older.status(), kAborted, {"generation 1 is over"}));
  disk_.FinishSave("older");
  proto::AwaitSavedRequest await = AwaitOf(1);
  await.mutable_sender()->set_generation(2);
  EXPECT_TRUE(
      Fails(Ask(shard_, &Shard::AwaitSaved, await).status(), kNotFound));
}

TEST_F(ShardSaveTest, TheEndAnswersWhoAwaitsAShare) {
  Restore();
  Save(1, 0);
  const auto parked = Await(1);
  End(proto::FAILED, "why");
  EXPECT_TRUE(Fails(parked.status(), kAborted, {"why"}));
  disk_.FinishSave("late");
  EXPECT_TRUE(Fails(Await(1).status(), kAborted, {"why"}));
  EXPECT_TRUE(Fails(Save(2, 0).status(), kAborted, {"why"}));
  EXPECT_TRUE(Fails(Hold(2).status(), kAborted, {"why"}));
}

}  // namespace
}  // namespace holdfast
