// SPDX-License-Identifier: Apache-2.0

// Generations: how a shard gets its state, and which calls it accepts
// (docs/protocol/recovery.md, G4 and G6).
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/shared_memory/arena.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

template <typename Request>
Request Of(uint64_t generation, Request request) {
  request.mutable_sender()->set_generation(generation);
  return request;
}

// Restores from a checkpoint of step 7, of generation 1.
proto::RestoreRequest FromCheckpoint(uint64_t generation,
                                     proto::RestoreRequest request) {
  request.mutable_checkpoint()->set_generation(1);
  request.mutable_checkpoint()->set_step(7);
  request.set_directory_nonce(5);
  request.set_wait_ms(1000);
  return Of(generation, std::move(request));
}

class ShardRestoreTest : public AsynchronousShardTest {
 protected:
  Answer<proto::RestoreResponse> RestoreIn(uint64_t generation) {
    return Ask(shard_, &Shard::Restore, Of(generation, MakeAsynchronous()));
  }
  Answer<proto::RestoreResponse> LoadIn(uint64_t generation) {
    return Ask(shard_, &Shard::Restore,
               FromCheckpoint(generation, MakeAsynchronous()));
  }
  proto::PullRequest PullIn(uint64_t generation, uint64_t version,
                            uint64_t wait_ms = 0) {
    proto::PullRequest request = Of(generation, MakePull({"w"}));
    request.set_min_version(version);
    request.set_wait_ms(wait_ms);
    return request;
  }
  std::vector<float> NewestIn(uint64_t generation) {
    return Values(Ask(shard_, &Shard::Pull, PullIn(generation, 0)), 0);
  }
  Answer<proto::PushResponse> PushIn(uint64_t generation, PushPart part) {
    part.sender.set_generation(generation);
    return Push(std::move(part));
  }
  Answer<proto::ApplyResponse> ApplyIn(uint64_t generation, uint32_t worker,
                                       uint64_t sequence) {
    return Apply(Of(generation, ApplyOf(worker, sequence)));
  }
  proto::PinRequest PinIn(uint64_t generation) {
    proto::PinRequest request;
    *request.mutable_sender() = Reader();
    request.set_hold_ms(1000);
    return Of(generation, request);
  }

  struct Outcome {
    std::string call;
    absl::Status status;
  };
  // Makes every call but Restore and End, in that generation; a verdict of
  // ABORTED counts as that status. None of them may park.
  std::vector<Outcome> CallAll(uint64_t generation) {
    std::vector<Outcome> outcomes;
    const auto note = [&](const char* call, const absl::Status& status) {
      outcomes.push_back({call, status});
    };
    const auto note_verdict = [&](const char* call, const auto& answer) {
      if (!answer.status().ok()) return note(call, answer.status());
      note(call, answer->verdict() == proto::ABORTED
                     ? absl::AbortedError("by its verdict")
                     : absl::OkStatus());
      EXPECT_EQ(answer->generation(), shard_.generation().value());
    };
    PushPart part = Whole(0, 9, 0, 1);
    part.acked_through = PushSequence(8);
    note_verdict("Push", PushIn(generation, part));
    proto::ApplyRequest apply = NothingOf(0, 9);
    apply.set_acked_through(8);
    note_verdict("Apply", Apply(Of(generation, apply)));
    note("Pull", Ask(shard_, &Shard::Pull, PullIn(generation, 0)).status());
    note("Pin", Ask(shard_, &Shard::Pin, PinIn(generation)).status());
    proto::UnpinRequest unpin;
    *unpin.mutable_sender() = Reader();
    unpin.set_pin(1);
    note("Unpin", Ask(shard_, &Shard::Unpin, Of(generation, unpin)).status());
    note("Commit",
         Ask(shard_, &Shard::Commit, Of(generation, MakeCommit(1, {})))
             .status());
    proto::FenceRequest fence;
    *fence.mutable_sender() = Coordinator();
    *fence.add_lives() = Life(0);
    note("Fence", Ask(shard_, &Shard::Fence, Of(generation, fence)).status());
    note("Resolve",
         Ask(shard_, &Shard::Resolve, Of(generation, ResolveOf({Life(0)})))
             .status());
    note("Hold", Ask(shard_, &Shard::Hold, Of(generation, HoldOf(1))).status());
    note("Save",
         Ask(shard_, &Shard::Save, Of(generation, SaveOf(1, 1))).status());
    note("AwaitSaved",
         Ask(shard_, &Shard::AwaitSaved, Of(generation, AwaitOf(1, 0)))
             .status());
    return outcomes;
  }
};

// ---- Which calls are heard [G6] ----

TEST_F(ShardRestoreTest, BeginsWithoutState) {
  EXPECT_EQ(shard_.generation(), Generation(0));
  EXPECT_EQ(shard_.state().phase(), proto::STARTING);
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  for (const Outcome& outcome : CallAll(1)) {
    EXPECT_TRUE(Fails(outcome.status, kUnavailable,
                      {"/job:ps/task:1 is not in generation 1 yet"}))
        << outcome.call;
  }
}

TEST_F(ShardRestoreTest, AnOlderGenerationChangesNothing_R1) {
  ASSERT_TRUE(RestoreIn(3).status().ok());
  PushIn(3, Whole(0, 1, 0, 2));
  EXPECT_EQ(ApplyIn(3, 0, 1)->verdict(), proto::ACCEPTED);
  PushIn(3, Whole(0, 2, 1, 2));
  ASSERT_EQ(Ask(shard_, &Shard::Pin, PinIn(3))->pin(), 1u);
  for (const uint64_t generation : {0, 2}) {
    for (const Outcome& outcome : CallAll(generation)) {
      SCOPED_TRACE(outcome.call);
      EXPECT_TRUE(Fails(outcome.status, kAborted));
      if (outcome.call != "Push" && outcome.call != "Apply") {
        EXPECT_TRUE(Fails(outcome.status, kAborted,
                          {absl::StrCat("generation ", generation),
                           "/job:ps/task:1 is in 3"}));
      }
    }
    EXPECT_TRUE(Fails(RestoreIn(generation).status(), kAborted,
                      {absl::StrCat("generation ", generation)}));
    EXPECT_TRUE(
        Fails(Ask(shard_, &Shard::End, Of(generation, EndOf(proto::FAILED, "")))
                  .status(),
              kAborted));
  }
  EXPECT_EQ(shard_.generation(), Generation(3));
  EXPECT_EQ(shard_.state().phase(), proto::TRAINING);
  EXPECT_EQ(shard_.version(), GlobalStep(1));
  EXPECT_EQ(shard_.staged_bytes(), 24);
  EXPECT_EQ(shard_.verdicts_kept(), 1u);
  EXPECT_EQ(ApplyIn(3, 0, 2)->verdict(), proto::ACCEPTED);
  proto::PullRequest pinned = Of(3, MakePull({"w"}));
  pinned.set_exact_version(1);
  EXPECT_TRUE(Ask(shard_, &Shard::Pull, pinned).status().ok());
}

TEST_F(ShardRestoreTest, ANewerGenerationWaitsForTheState_R2) {
  ASSERT_TRUE(RestoreIn(3).status().ok());
  const auto expect_unavailable = [&] {
    for (const Outcome& outcome : CallAll(4)) {
      EXPECT_TRUE(Fails(outcome.status, kUnavailable,
                        {"/job:ps/task:1 is not in generation 4 yet"}))
          << outcome.call;
    }
  };
  expect_unavailable();
  EXPECT_EQ(shard_.generation(), Generation(3));
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  const auto answer = LoadIn(4);
  EXPECT_FALSE(answer.came());
  EXPECT_EQ(shard_.state().phase(), proto::STARTING);
  expect_unavailable();
  disk_.FinishLoad(2, 7);
  EXPECT_EQ(answer->generation(), 4u);
  EXPECT_EQ(answer->version(), 7u);
  EXPECT_EQ(shard_.state().phase(), proto::TRAINING);
  EXPECT_THAT(NewestIn(4), Each(2.0f));
}

// ---- Restore [G4] ----

TEST_F(ShardRestoreTest, ASecondRestoreOfItsGenerationDoesNothing_R3) {
  ASSERT_TRUE(RestoreIn(2).status().ok());
  PushIn(2, Whole(0, 1, 0, 2));
  EXPECT_EQ(ApplyIn(2, 0, 1)->verdict(), proto::ACCEPTED);
  PushIn(2, Whole(0, 2, 1, 2));
  // Its content does not matter.
  proto::RestoreRequest other = Of(2, MakeRestore());
  other.mutable_declaration()->set_seed(5);
  for (const proto::RestoreRequest& request :
       {Of(2, MakeAsynchronous()), other,
        FromCheckpoint(2, MakeAsynchronous())}) {
    const auto again = Ask(shard_, &Shard::Restore, request);
    EXPECT_EQ(again->generation(), 2u);
    EXPECT_EQ(again->version(), 1u);
  }
  EXPECT_THAT(disk_.loads, IsEmpty());
  EXPECT_EQ(shard_.version(), GlobalStep(1));
  EXPECT_EQ(shard_.staged_bytes(), 24);
  EXPECT_THAT(NewestIn(2), Each(0.0f));
}

TEST_F(ShardRestoreTest, TheLossScaleIsOfTheRestoredVersion) {
  proto::RestoreRequest restore = Of(1, MakeRestore());
  restore.set_loss_scale(128);
  Ask(shard_, &Shard::Restore, restore);
  EXPECT_EQ(PullAtLeast(0)->loss_scale, 128);
  ASSERT_TRUE(RestoreIn(2).status().ok());
  proto::PullRequest request = MakePull({"w"});
  request.mutable_sender()->set_generation(2);
  EXPECT_EQ(Ask(shard_, &Shard::Pull, request)->loss_scale, 0);
}

TEST_F(ShardRestoreTest, ARepeatedRestoreWaitsForTheLoadingUnderWay_R3) {
  const auto first = LoadIn(2);
  const auto second = LoadIn(2);
  EXPECT_FALSE(first.came());
  EXPECT_FALSE(second.came());
  ASSERT_THAT(disk_.loads, SizeIs(1));
  disk_.FinishLoad(2, 7);
  EXPECT_EQ(first->version(), 7u);
  EXPECT_EQ(second->version(), 7u);
}

TEST_F(ShardRestoreTest, ARestoreForAnotherLifeIsRefused_R4) {
  ASSERT_TRUE(RestoreIn(1).status().ok());
  proto::RestoreRequest request = Of(2, MakeAsynchronous());
  request.mutable_sender()->set_receiver_nonce(kThisLife + 1);
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Restore, request).status(),
                    absl::StatusCode::kUnavailable,
                    {"generation 2", "another life of /job:ps/task:1"}));
  EXPECT_EQ(shard_.generation(), Generation(1));
  EXPECT_THAT(NewestIn(1), Each(1.0f));
}

TEST_F(ShardRestoreTest, GenerationZeroIsNone) {
  EXPECT_TRUE(Fails(RestoreIn(0).status(), kInvalid, {"generation 0"}));
}

TEST_F(ShardRestoreTest, ValuesLieInTheArena) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  SharedArena arena({"test", size_t{2} << 20});
  Shard::Options options = MakeOptions();
  options.arena = &arena;
  Shard shard(options, &clock_, &disk_);
  const auto answer = Ask(shard, &Shard::Restore, Of(1, MakeAsynchronous()));
  ASSERT_TRUE(answer.status().ok()) << answer.status();
  EXPECT_GT(arena.bytes(), 0);
  // The same if a disk makes the store.
  Ask(shard, &Shard::Restore, FromCheckpoint(2, MakeRestore(2, 2, true)));
  ASSERT_THAT(disk_.loads, SizeIs(1));
  EXPECT_EQ(disk_.loads[0].options.arena, &arena);
}

TEST_F(ShardRestoreTest, TheDiskIsToldWhatToLoad) {
  proto::RestoreRequest request = FromCheckpoint(2, MakeRestore(2, 2, true));
  request.set_warm_start("/warm");
  request.set_warm_start_slots(true);
  Ask(shard_, &Shard::Restore, request);
  ASSERT_THAT(disk_.loads, SizeIs(1));
  const ShardDisk::LoadOptions& load = disk_.loads[0].options;
  EXPECT_EQ(load.directory_nonce, 5u);
  EXPECT_EQ(load.declaration.variables_size(), 4);
  EXPECT_THAT(load.slices, SizeIs(4));
  EXPECT_THAT(load.slots_by_optimizer, ElementsAre(ElementsAre(0)));
  ASSERT_TRUE(load.checkpoint.has_value());
  EXPECT_EQ(load.checkpoint->step(), 7u);
  EXPECT_EQ(load.warm_start, "/warm");
  EXPECT_TRUE(load.warm_start_slots);
}

TEST_F(ShardRestoreTest, FirstValuesOfAJobWithADirectoryAreTheDisksToo) {
  proto::RestoreRequest request = Of(1, MakeAsynchronous());
  request.set_directory_nonce(5);
  request.set_wait_ms(1000);
  const auto answer = Ask(shard_, &Shard::Restore, request);
  ASSERT_THAT(disk_.loads, SizeIs(1));
  EXPECT_FALSE(disk_.loads[0].options.checkpoint.has_value());
  disk_.FinishLoad(1, 0);
  EXPECT_EQ(answer->version(), 0u);
}

TEST_F(ShardRestoreTest, WithoutADiskThereIsNoJobWithCheckpoints) {
  const auto refused = [&](auto change) {
    Shard shard(MakeOptions(), &clock_, nullptr);
    proto::RestoreRequest request = MakeAsynchronous();
    change(request);
    EXPECT_TRUE(Fails(Ask(shard, &Shard::Restore, request).status(), kNotReady,
                      {"/job:ps/task:1", "--checkpoint_dir"}));
    EXPECT_EQ(shard.generation(), Generation(0));
  };
  refused([](auto& r) { r.mutable_checkpoint()->set_step(1); });
  refused([](auto& r) { r.set_directory_nonce(5); });
  refused([](auto& r) { r.set_warm_start("/warm"); });
}

TEST_F(ShardRestoreTest, AFailedLoadingIsToldAndMayBeRepeated) {
  const auto first = LoadIn(2);
  disk_.loads[0].reply(absl::DataLossError("block 3 is damaged"));
  disk_.loads.pop_front();
  EXPECT_TRUE(Fails(first.status(), absl::StatusCode::kDataLoss,
                    {"/job:ps/task:1", "block 3 is damaged"}));
  EXPECT_EQ(shard_.generation(), Generation(2));
  EXPECT_EQ(shard_.state().phase(), proto::STARTING);
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Pull, PullIn(2, 0)).status(),
                    kUnavailable, {"generation 2 yet"}));
  const auto second = LoadIn(2);
  disk_.FinishLoad(2, 7);
  EXPECT_EQ(second->version(), 7u);
}

TEST_F(ShardRestoreTest, ALoadingThatTakesLongIsAskedForAgain_G4) {
  const auto first = LoadIn(2);
  disk_.progress.set_bytes_done(30);
  disk_.progress.set_bytes_total(100);
  Pass(absl::Milliseconds(999));
  EXPECT_FALSE(first.came());
  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(first->pending());
  EXPECT_EQ(first->generation(), 2u);
  EXPECT_EQ(first->progress().bytes_done(), 30u);
  EXPECT_EQ(first->progress().bytes_total(), 100u);
  proto::RestoreRequest impatient = FromCheckpoint(2, MakeAsynchronous());
  impatient.set_wait_ms(0);
  EXPECT_TRUE(Ask(shard_, &Shard::Restore, impatient)->pending()) << "at once";
  const auto second = LoadIn(2);
  EXPECT_THAT(disk_.loads, SizeIs(1));
  disk_.FinishLoad(2, 7);
  EXPECT_FALSE(second->pending());
  EXPECT_EQ(second->version(), 7u);
}

TEST_F(ShardRestoreTest, AFailureBetweenTwoQuestionsIsTold_G4) {
  LoadIn(2);
  Pass(absl::Seconds(1));
  disk_.FailLoad(absl::DataLossError("block 3 is damaged"));
  EXPECT_TRUE(Fails(LoadIn(2).status(), absl::StatusCode::kDataLoss,
                    {"/job:ps/task:1", "block 3 is damaged"}));
  EXPECT_THAT(disk_.loads, IsEmpty());
  // The error is reported once.
  EXPECT_FALSE(LoadIn(2).came());
  EXPECT_THAT(disk_.loads, SizeIs(1));
}

// Only failures of this checkpoint count, not those of a disk that is away.
TEST_F(ShardRestoreTest, ACheckpointThatStaysUnreadableIsDamaged_G4) {
  const absl::Status bad_sector = absl::UnknownError("input/output error");
  const auto fail = [&](uint64_t generation, const absl::Status& why) {
    const auto answer = LoadIn(generation);
    disk_.FailLoad(why);
    return answer.status();
  };
  for (int second = 0; second < 10; ++second) {
    EXPECT_TRUE(Fails(fail(2, bad_sector), kUnavailable,
                      {"/job:ps/task:1", "input/output error"}));
    EXPECT_TRUE(Fails(fail(2, absl::UnavailableError("no directory")),
                      kUnavailable, {"no directory"}));
    Pass(absl::Seconds(1));
  }
  EXPECT_TRUE(Fails(fail(3, bad_sector), kUnavailable)) << "another checkpoint";
  Pass(absl::Seconds(11));
  EXPECT_TRUE(Fails(fail(3, bad_sector), kUnavailable)) << "only twice";
  EXPECT_TRUE(Fails(fail(3, bad_sector), absl::StatusCode::kDataLoss,
                    {"input/output error (3 attempts)"}));
}

TEST_F(ShardRestoreTest, ANewerGenerationTakesThePlaceOfALoading) {
  const auto older = LoadIn(2);
  const auto newer = LoadIn(3);
  EXPECT_TRUE(
      Fails(older.status(), kAborted, {"generation 2", "begins generation 3"}));
  ASSERT_THAT(disk_.loads, SizeIs(2));
  disk_.FinishLoad(2, 7);
  EXPECT_FALSE(newer.came()) << "that was the older one";
  disk_.FinishLoad(3, 8);
  EXPECT_EQ(newer->version(), 8u);
  EXPECT_THAT(NewestIn(3), Each(3.0f));
}

TEST_F(ShardRestoreTest, ALateReplyToAnOlderLoadingIsNotHeard) {
  LoadIn(2);
  ASSERT_TRUE(RestoreIn(3).status().ok());
  disk_.FinishLoad(2, 7);
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  EXPECT_THAT(NewestIn(3), Each(1.0f));
}

TEST_F(ShardRestoreTest, WhatBelongedToTheOlderGenerationIsForgotten) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 2);
  Stage(Whole(0, 2, 1, 2));
  Stage(Whole(0, 4, 1, 2));
  ASSERT_TRUE(Pin().status().ok());
  Fence({Life(1)});
  const auto pull = PullAtLeast(5);
  const auto apply = Apply(0, 4);
  EXPECT_FALSE(pull.came());
  EXPECT_FALSE(apply.came());

  ASSERT_TRUE(RestoreIn(2).status().ok());
  EXPECT_TRUE(Fails(pull.status(), kAborted,
                    {"generation 1 is over at /job:ps/task:1"}));
  EXPECT_EQ(apply->verdict(), proto::ABORTED);
  EXPECT_EQ(apply->generation(), 2u);
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  EXPECT_EQ(shard_.staged_bytes(), 0);
  EXPECT_EQ(shard_.verdicts_kept(), 0u);
  EXPECT_THAT(NewestIn(2), Each(1.0f));
  proto::PullRequest pinned = Of(2, MakePull({"w"}));
  pinned.set_exact_version(1);
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Pull, pinned).status(), kNotFound));
  // Sequences begin anew, and no worker is fenced.
  for (const uint32_t worker : {0, 1}) {
    EXPECT_TRUE(PushIn(2, Whole(worker, 1, 0, 2)).status().ok());
    EXPECT_EQ(ApplyIn(2, worker, 1)->verdict(), proto::ACCEPTED);
  }
  EXPECT_THAT(NewestIn(2), Each(-1.0f));
}

TEST_F(ShardRestoreTest, AnotherDeclarationMayFollow) {
  RestoreAsynchronous();
  StageAndApply(0, 1, 2);
  proto::RestoreRequest other = Of(2, MakeRestore(2, 2, /*momentum=*/true));
  other.mutable_slices(1)->set_ps(kThisPs);  // "far"
  ASSERT_TRUE(Ask(shard_, &Shard::Restore, other).status().ok());
  proto::PullRequest pull = Of(2, MakePull({}));
  pull.add_ranges()->set_variable("far");
  pull.mutable_ranges(0)->set_size(8);
  EXPECT_THAT(Values(Ask(shard_, &Shard::Pull, pull), 0), SizeIs(8));
}

TEST_F(ShardRestoreTest, ARestoreThatCannotBeLeavesTheOlderGeneration) {
  Shard::Options options = MakeOptions();
  options.memory_limit_bytes = 28 + 4 * 24;
  Shard shard(options, &clock_, &disk_);
  ASSERT_TRUE(Ask(shard, &Shard::Restore, MakeRestore()).status().ok());
  proto::RestoreRequest more = Of(2, MakeRestore(6, 2));
  EXPECT_TRUE(Fails(Ask(shard, &Shard::Restore, more).status(), kExhausted));
  EXPECT_EQ(shard.generation(), Generation(1));
  EXPECT_TRUE(Ask(shard, &Shard::Pull, MakePull({"w"})).status().ok());
}

// ---- The end ----

TEST_F(ShardRestoreTest, TheEndComesBeforeTheState) {
  const auto loading = LoadIn(2);
  EXPECT_TRUE(Ask(shard_, &Shard::End, Of(2, EndOf(proto::FAILED, "why")))
                  .status()
                  .ok());
  EXPECT_TRUE(Fails(loading.status(), kAborted, {"why"}));
  disk_.FinishLoad(2, 7);
  EXPECT_EQ(shard_.state().phase(), proto::FAILED);
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  for (const Outcome& outcome : CallAll(2)) {
    if (outcome.call == "Pull" || outcome.call == "Unpin") continue;
    EXPECT_TRUE(Fails(outcome.status, kAborted, {"why"})) << outcome.call;
  }
  EXPECT_TRUE(Fails(LoadIn(3).status(), kAborted, {"why"}));
}

TEST_F(ShardRestoreTest, AFreshShardHearsOfTheEndInAnyGeneration) {
  EXPECT_EQ(
      Ask(shard_, &Shard::End, Of(4, EndOf(proto::DONE, "")))->generation(),
      4u);
  EXPECT_EQ(shard_.state().phase(), proto::DONE);
  const auto pull = Ask(shard_, &Shard::Pull, PullIn(4, 0));
  EXPECT_EQ(pull->state.phase(), proto::DONE);
  EXPECT_THAT(pull->tensors, IsEmpty());
}

TEST_F(ShardRestoreTest, TheEndOfANewerGenerationIsNotThatOfTheValuesHere) {
  RestoreAsynchronous();
  const auto parked = PullAtLeast(1);
  EXPECT_TRUE(
      Ask(shard_, &Shard::End, Of(2, EndOf(proto::DONE, ""))).status().ok());
  EXPECT_TRUE(Fails(parked.status(), kAborted, {"generation 1 is over"}));
  const auto pull = Ask(shard_, &Shard::Pull, PullIn(2, 0));
  EXPECT_EQ(pull->state.phase(), proto::DONE);
  EXPECT_THAT(pull->tensors, IsEmpty());
}

}  // namespace
}  // namespace holdfast
