// SPDX-License-Identifier: Apache-2.0

// Checkpoints: when they are taken, what they hold, and when they count
// (docs/protocol/recovery.md, C1 to C5).
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kTick = absl::Milliseconds(250);

// Taken at every multiple of `steps`, and not by time.
proto::Declaration Every(uint64_t steps, proto::Declaration declaration) {
  declaration.mutable_checkpoints()->set_every_steps(steps);
  declaration.mutable_checkpoints()->set_every_seconds(0);
  return declaration;
}

proto::AppliedPush Applied(const TaskId& worker, uint64_t sequence) {
  proto::AppliedPush push;
  push.mutable_from()->mutable_worker()->set_job(worker.job);
  push.mutable_from()->mutable_worker()->set_index(worker.index);
  push.mutable_from()->set_incarnation(1);
  push.set_sequence(sequence);
  push.set_clip_factor(1);
  push.set_examples(10);
  return push;
}

// The pushes, like "worker0#2 worker1#1".
template <typename Pushes>
std::string Text(const Pushes& pushes) {
  std::vector<std::string> texts;
  for (const proto::AppliedPush& push : pushes) {
    EXPECT_EQ(push.scalars_size(), 1);
    texts.push_back(absl::StrCat(push.from().worker().job(),
                                 push.from().worker().index(), "#",
                                 push.sequence()));
  }
  return absl::StrJoin(texts, " ");
}

// The tickets left to hand out, like "0 2, from 4".
std::string Left(const proto::Position& position) {
  return absl::StrCat(absl::StrJoin(position.returned_tickets(), " "),
                      ", from ", position.next_ticket());
}

class CoordinatorSaveTest : public CoordinatorTest {
 protected:
  void Start(const proto::Declaration& declaration) {
    MakeWithArchive();
    StartTraining(declaration);
  }
  void TrainStep(uint64_t step) {
    OfferBoth(step);
    AckCommits();
  }
  // Asks for a checkpoint of `step`, or of the current step without one.
  Answer<proto::CheckpointResponse> Want(
      std::optional<uint64_t> step = std::nullopt, uint64_t wait_ms = 1000) {
    proto::CheckpointRequest request;
    if (step.has_value()) request.set_step(*step);
    request.set_wait_ms(wait_ms);
    return Ask(request);
  }
  void AckSaves() { PuppetLinks::AnswerAll(links_->saves); }
  void AnswerHold(uint32_t ps, const std::vector<proto::AppliedPush>& applied) {
    proto::HoldResponse response;
    for (const proto::AppliedPush& push : applied) {
      *response.add_applied() = push;
    }
    PuppetLinks::Answer(links_->holds, ps, absl::OkStatus(), response);
  }
  void FailToWrite(uint32_t ps, const std::string& why = "disk full") {
    PuppetLinks::Answer(links_->awaits, ps, absl::ResourceExhaustedError(why));
  }
  // The shard reports its progress.
  void NotYetWritten(uint32_t ps, uint64_t done, uint64_t total) {
    proto::AwaitSavedResponse response;
    response.mutable_progress()->set_bytes_done(done);
    response.mutable_progress()->set_bytes_total(total);
    PuppetLinks::Answer(links_->awaits, ps, absl::OkStatus(), response);
  }
  proto::SaveRequest Save() const {
    if (!links_->saves.empty()) return links_->saves[0].request;
    ADD_FAILURE() << "no Save was sent";
    return proto::SaveRequest();
  }
  // The position in the checkpoint with this name.
  proto::Position Position(const std::string& name) const {
    const auto found = archive_->complete.find(name);
    if (found != archive_->complete.end()) return found->second.position();
    ADD_FAILURE() << "no manifest of " << name;
    return proto::Position();
  }
};

// ---- C1: when a checkpoint is taken ----

TEST_F(CoordinatorSaveTest, AtEveryMultipleOfSoManySteps_C1) {
  Start(Every(2, MakeDeclaration()));
  TrainStep(0);
  EXPECT_THAT(links_->saves, IsEmpty());
  OfferBoth(1);
  EXPECT_THAT(links_->saves, IsEmpty()) << "the commit is under way";
  AckCommits();
  ASSERT_THAT(PuppetLinks::To(links_->saves), ElementsAre(0, 1));
  EXPECT_EQ(Save().sender().generation(), 1u);
  EXPECT_EQ(Save().number(), 1u);
  EXPECT_EQ(Save().step(), 2u);
  // It is between two commits.
  OfferBoth(2);
  EXPECT_THAT(links_->commits, IsEmpty());
  PuppetLinks::Answer(links_->saves, 0);
  EXPECT_THAT(links_->awaits, IsEmpty());
  PuppetLinks::Answer(links_->saves, 1);
  // Steps go on while it is written.
  EXPECT_THAT(PuppetLinks::To(links_->commits), ElementsAre(0, 1));
  EXPECT_THAT(PuppetLinks::To(links_->awaits), ElementsAre(0, 1));
  AckCommits();
  TrainStep(3);
  EXPECT_THAT(links_->saves, IsEmpty()) << "one at a time";
  FinishSave();
  EXPECT_EQ(Save().step(), 4u);
  FinishSave();
  EXPECT_EQ(archive_->Checkpoints(), "1/2 1/4");
}

TEST_F(CoordinatorSaveTest, SoLongAfterTheLastOneBegan_C1) {
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_checkpoints()->set_every_seconds(30);
  Start(declaration);
  Pass(absl::Seconds(31), AllTasks());
  EXPECT_THAT(links_->saves, IsEmpty()) << "nothing has changed";
  TrainStep(0);
  EXPECT_EQ(Save().step(), 1u);
  AckSaves();
  Pass(absl::Seconds(10), AllTasks());
  FinishSave();
  TrainStep(1);
  Pass(absl::Seconds(20) - kTick, AllTasks());
  EXPECT_THAT(links_->saves, IsEmpty());
  Pass(kTick, AllTasks());
  EXPECT_EQ(Save().step(), 2u);
}

// The save of step 2 lasts until step 5, which is not a multiple.
TEST_F(CoordinatorSaveTest, ASlowSaveMovesNoneOffItsMultiple_C1) {
  Start(Every(2, MakeDeclaration()));
  TrainStep(0);
  TrainStep(1);
  AckSaves();
  AckCommits();
  for (uint64_t step = 2; step < 5; ++step) TrainStep(step);
  FinishSave();
  EXPECT_EQ(archive_->Checkpoints(), "1/2");
  EXPECT_THAT(links_->saves, IsEmpty());
  TrainStep(5);
  EXPECT_EQ(Save().step(), 6u);
}

// A minute apart or, if they take 10 s each, 500 s.
TEST_F(CoordinatorSaveTest, WhereNothingIsSaidTheyFollowTheirCost_C1) {
  Start(MakeDeclaration());
  TrainStep(0);
  Pass(absl::Minutes(1) - kTick, AllTasks());
  EXPECT_THAT(links_->saves, IsEmpty());
  Pass(kTick, AllTasks());
  EXPECT_EQ(Save().step(), 1u);
  AckSaves();
  Pass(absl::Seconds(10), AllTasks());
  FinishSave();
  for (uint64_t step = 1; step < 8; ++step) {
    TrainStep(step);
    Pass(absl::Seconds(70) - (step == 7 ? kTick : absl::ZeroDuration()),
         AllTasks());
  }
  EXPECT_THAT(links_->saves, IsEmpty());
  Pass(kTick, AllTasks());
  EXPECT_EQ(Save().step(), 8u);
}

TEST_F(CoordinatorSaveTest, WhenItIsAskedFor_C1) {
  Start(Every(0, MakeDeclaration()));
  EXPECT_EQ(Want()->step(), 0u) << "there is nothing to save";
  TrainStep(0);
  OfferBoth(1);
  const auto asked = Want();
  const auto no_wait = Want(std::nullopt, 0);
  EXPECT_EQ(no_wait->step(), 2u);
  EXPECT_EQ(no_wait->durable_step(), 0u);
  EXPECT_THAT(links_->saves, IsEmpty());
  AckCommits();
  EXPECT_EQ(Save().step(), 2u);
  AckSaves();
  EXPECT_FALSE(asked.came());
  FinishSave();
  EXPECT_EQ(asked->step(), 2u);
  EXPECT_EQ(asked->durable_step(), 2u);
  EXPECT_EQ(Want(1)->durable_step(), 2u);
  EXPECT_THAT(links_->saves, IsEmpty()) << "it is on disk";
  EXPECT_EQ(archive_->Checkpoints(), "1/2");
}

// The workers were told that the step is made.
TEST_F(CoordinatorSaveTest, WhatWasAcceptedIsInThoughItsCommitIsUnderWay_C1) {
  Start(Every(0, MakeDeclaration()));
  TrainStep(0);
  Want();
  FinishSave();
  OfferBoth(1);
  const auto asked = Want();
  const auto no_wait = Want(std::nullopt, 0);
  EXPECT_EQ(no_wait->step(), 2u);
  EXPECT_EQ(no_wait->durable_step(), 1u);
  EXPECT_FALSE(asked.came());
  AckCommits();
  FinishSave();
  EXPECT_EQ(asked->step(), 2u);
  EXPECT_EQ(archive_->Checkpoints(), "1/1 1/2");
}

TEST_F(CoordinatorSaveTest, OneOfAStepAheadIsTakenWhenItIsReached_C1) {
  Start(Every(0, MakeDeclaration()));
  const auto ahead = Want(3, 30000);
  TrainStep(0);
  TrainStep(1);
  EXPECT_THAT(links_->saves, IsEmpty());
  TrainStep(2);
  EXPECT_EQ(Save().step(), 3u);
  FinishSave();
  EXPECT_EQ(ahead->durable_step(), 3u);
  // There is no step beyond the end.
  EXPECT_EQ(Want(99, 0)->step(), 10u);
}

TEST_F(CoordinatorSaveTest, WhoMayNotAskForOne) {
  Make();
  StartTraining();
  EXPECT_TRUE(Fails(Want().status(), kNotReady, {"--checkpoint_dir"}));
  MakeWithArchive();
  EXPECT_TRUE(Fails(Want().status(), kNotReady, {"no variables yet"}));
  StartTraining();
  TrainStep(0);
  const auto parked = Want();
  Fail("told to stop");
  EXPECT_EQ(parked->state().reason(), "told to stop");
  EXPECT_TRUE(Fails(Want().status(), kAborted, {"told to stop"}));
}

TEST_F(CoordinatorSaveTest, AShutOutGoesFirst_C1_T6) {
  Start(Every(1, Asynchronous(20)));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  Leave(Worker(1));
  Book(Worker(0), 1);
  EXPECT_THAT(links_->holds, IsEmpty()) << "a fence is under way";
  PuppetLinks::AnswerAll(links_->fences);
  EXPECT_THAT(links_->holds, IsEmpty()) << "and is not resolved";
  PuppetLinks::AnswerAll(links_->resolves);
  ASSERT_THAT(PuppetLinks::To(links_->holds), ElementsAre(0, 1));
  // No commit is begun between Hold and Save either.
  Leave(Worker(0));
  AnswerHold(0, {});
  AnswerHold(1, {});
  EXPECT_THAT(links_->fences, IsEmpty());
  AckSaves();
  EXPECT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1));
}

// ---- C2, C3: what it holds ----

TEST_F(CoordinatorSaveTest, ThePositionOfStepsIsTheirNumber_C3) {
  Start(Every(0, MakeDeclaration()));
  TrainStep(0);
  Offer(Worker(0), 1, 0, 2, 0);
  Offer(Worker(1), 1, 1, 2, 0);
  AckCommits();
  Offer(Worker(0), 2, 0, 3);
  Want();
  FinishSave();
  const proto::Manifest& manifest = archive_->complete.at("1/2");
  EXPECT_THAT(manifest.declaration().variables(), SizeIs(2));
  ASSERT_THAT(manifest.files(), SizeIs(2));
  EXPECT_EQ(manifest.files(0).name(), "ps0");
  EXPECT_EQ(manifest.files(1).name(), "ps1");
  EXPECT_FALSE(manifest.finished());
  EXPECT_EQ(manifest.position().step(), 2u);
  EXPECT_EQ(manifest.position().updates(), 1u) << "step 1 changed nothing";
  EXPECT_EQ(manifest.position().pushes().accepted(), 4u);
  EXPECT_EQ(manifest.position().examples(), 20u);
  EXPECT_EQ(manifest.position().next_ticket(), 0u);
}

TEST_F(CoordinatorSaveTest, TicketsThatAreOutCountAsUnspent_C3) {
  Start(Every(0, ByTicket(2, 2, 20)));
  for (const uint32_t w : {0, 1}) Take(Worker(w), 1);
  TrainStep(0);
  for (const uint32_t w : {0, 1}) Take(Worker(w), 2);
  Offer(Worker(0), 1, 0, 2);
  Want();
  FinishSave();
  EXPECT_EQ(Position("1/1").step(), 1u);
  EXPECT_EQ(Left(Position("1/1")), "2 3, from 4");
  // The verdict of a push in the open step, or of one not offered, is not
  // final.
  EXPECT_EQ(Take(Worker(0), 2)->durable_through(), 1u);
  EXPECT_EQ(Take(Worker(1), 2)->durable_through(), 1u);
}

TEST_F(CoordinatorSaveTest, WhatIsBookedAndTheUnionIsSavedAsDone_T9_C2) {
  Start(Every(0, Asynchronous(20, /*depth=*/3)));
  for (uint64_t i = 1; i <= 4; ++i) Take(Worker(0), i);  // tickets 0 to 3
  for (uint64_t i = 1; i <= 2; ++i) Take(Worker(1), i);  // 4 and 5
  Book(Worker(0), 1);
  Want();
  ASSERT_THAT(PuppetLinks::To(links_->holds), ElementsAre(0, 1));
  EXPECT_EQ(links_->holds[0].request.number(), 1u);
  // Both have applied push 2 of worker 0, one has applied 3, none 4. That of
  // worker 1 is booked between the two reports.
  AnswerHold(
      0, {Applied(Worker(0), 1), Applied(Worker(0), 2), Applied(Worker(1), 1)});
  EXPECT_THAT(links_->saves, IsEmpty());
  Book(Worker(1), 1);
  AnswerHold(
      1, {Applied(Worker(0), 2), Applied(Worker(0), 3), Applied(Worker(1), 1)});
  ASSERT_THAT(PuppetLinks::To(links_->saves), ElementsAre(0, 1));
  EXPECT_EQ(Text(Save().applied()), "worker0#2 worker0#3");
  EXPECT_EQ(Save().step(), 4u) << "two are booked, two are in the union";
  // Booking a push from here on does not change whether the checkpoint includes
  // it.
  Book(Worker(0), 2);
  FinishSave();
  EXPECT_EQ(archive_->Checkpoints(), "1/4");
  EXPECT_EQ(Position("1/4").step(), 4u);
  EXPECT_EQ(Left(Position("1/4")), "3 5, from 6");
  EXPECT_EQ(Position("1/4").pushes().accepted(), 4u);
  EXPECT_EQ(Status().global_step(), 3u);
  EXPECT_EQ(Status().durable_step(), 4u);
  EXPECT_EQ(Take(Worker(0), 4)->durable_through(), 3u);
  EXPECT_EQ(Take(Worker(1), 0)->durable_through(), 1u) << "also without one";
}

TEST_F(CoordinatorSaveTest, TheUnionIsOfThisHoldAlone_T6) {
  Start(Every(0, Asynchronous(20)));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  Book(Worker(0), 1);
  Want();
  AnswerHold(0, {Applied(Worker(0), 2)});
  Pass(kResendAfter, AllTasks());
  AnswerHold(1, {});
  const auto first = Save();
  FinishSave();
  Take(Worker(0), 3, {Spent(2)});
  Take(Worker(1), 1);
  Book(Worker(1), 1);
  Want();
  // The late answer to a message that was resent.
  AnswerHold(1, {Applied(Worker(0), 3)});
  AnswerHold(0, {});
  EXPECT_THAT(links_->saves, IsEmpty());
  AnswerHold(1, {});
  EXPECT_EQ(Save().number(), 2u);
  EXPECT_EQ(Text(Save().applied()), "");
  EXPECT_EQ(Text(first.applied()), "worker0#2");
}

// ---- C4: when it counts ----

TEST_F(CoordinatorSaveTest, ItIsDurableWhenTheJournalSaysSo_C4) {
  Start(Every(0, MakeDeclaration()));
  TrainStep(0);
  archive_->quick = false;
  const auto asked = Want(std::nullopt, 30000);
  AckSaves();
  const auto expect = [&](uint64_t durable, const char* when) {
    SCOPED_TRACE(when);
    EXPECT_EQ(Status().durable_step(), durable);
    EXPECT_EQ(Renew(Worker(0))->durable_step(), durable);
    EXPECT_EQ(Offer(Worker(0), 0, 0, 1)->durable_step(), durable);
    EXPECT_EQ(asked.came(), durable > 0);
  };
  AnswerWritten(1);
  EXPECT_THAT(archive_->manifests, IsEmpty()) << "shard 0 is writing";
  AnswerWritten(0);
  expect(0, "without a manifest");
  ASSERT_THAT(archive_->manifests, SizeIs(1));
  EXPECT_THAT(archive_->journals, IsEmpty());
  archive_->AnswerManifest();
  expect(0, "without the journal");
  ASSERT_THAT(archive_->journals, SizeIs(1));
  archive_->AnswerJournal(absl::UnavailableError("disk full"));
  expect(0, "while the journal cannot be written");
  Pass(absl::Seconds(1), AllTasks());
  archive_->AnswerJournal();
  expect(1, "with the journal");
}

TEST_F(CoordinatorSaveTest, AShardIsAskedUntilItHasWritten_C4) {
  Start(Every(0, MakeDeclaration()));
  TrainStep(0);
  Want();
  AckSaves();
  EXPECT_EQ(links_->awaits[0].request.number(), 1u);
  AnswerWritten(0);
  PuppetLinks::Answer(links_->awaits, 1);  // not yet
  Pass(kTick, AllTasks());
  ASSERT_THAT(PuppetLinks::To(links_->awaits), ElementsAre(1));
  PuppetLinks::Answer(links_->awaits, 1, absl::UnavailableError("lost"));
  Pass(kTick, AllTasks());
  ASSERT_THAT(PuppetLinks::To(links_->awaits), ElementsAre(1));
  // Silence: 2 s that the shard may park it, and the usual time.
  Pass(absl::Seconds(7), AllTasks());
  ASSERT_THAT(PuppetLinks::To(links_->awaits), ElementsAre(1, 1));
  AnswerWritten(1);
  EXPECT_EQ(archive_->Checkpoints(), "1/1");
  AnswerWritten(1);
  EXPECT_EQ(archive_->Checkpoints(), "1/1") << "once";
}

TEST_F(CoordinatorSaveTest, OneThatCannotBeWrittenIsToldAndTakenAgain_C4) {
  Start(Every(1, MakeDeclaration()));
  TrainStep(0);
  AckSaves();
  const auto asked = Want(std::nullopt, 30000);
  FailToWrite(1);
  EXPECT_FALSE(asked.came()) << "shard 0 takes no other while it writes";
  TrainStep(1);
  EXPECT_THAT(links_->saves, IsEmpty());
  AnswerWritten(0);
  EXPECT_EQ(asked->durable_step(), 0u);
  EXPECT_EQ(asked->error(), "/job:ps/task:1: disk full");
  EXPECT_EQ(Status().checkpoint_error(), "/job:ps/task:1: disk full");
  EXPECT_THAT(archive_->manifests, IsEmpty());
  // Training continues; the next checkpoint is taken 10 s later at the
  // earliest.
  Pass(absl::Seconds(10) - kTick, AllTasks());
  TrainStep(2);
  EXPECT_THAT(links_->saves, IsEmpty());
  Pass(kTick, AllTasks());
  EXPECT_EQ(Save().step(), 3u);
  EXPECT_EQ(Save().number(), 2u);
  FinishSave();
  EXPECT_EQ(archive_->Checkpoints(), "1/3");
  EXPECT_EQ(Status().checkpoint_error(), "");
}

TEST_F(CoordinatorSaveTest, AManifestThatCannotBeWrittenIsToldToo_C4) {
  Start(Every(0, MakeDeclaration()));
  TrainStep(0);
  archive_->quick = false;
  const auto asked = Want();
  FinishSave();
  archive_->AnswerManifest(absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(asked->error(), "/job:ps/task:0: disk full");
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_THAT(archive_->journals, IsEmpty());
}

TEST_F(CoordinatorSaveTest, SoManyAreKept_C4) {
  proto::Declaration declaration = Every(1, MakeDeclaration());
  declaration.mutable_checkpoints()->set_keep(2);
  Start(declaration);
  for (uint64_t step = 0; step < 4; ++step) {
    TrainStep(step);
    // The checkpoint in progress is spared, from before any shard writes.
    EXPECT_EQ(archive_->removals.back(), absl::StrCat("1/", step + 1));
    FinishSave();
  }
  EXPECT_EQ(archive_->Checkpoints(), "1/3 1/4");

  Start(Every(1, MakeDeclaration()));
  for (uint64_t step = 0; step < 7; ++step) {
    TrainStep(step);
    FinishSave();
  }
  EXPECT_EQ(archive_->Checkpoints(), "1/3 1/4 1/5 1/6 1/7") << "5 by default";
}

// ---- C5: the end ----

TEST_F(CoordinatorSaveTest, NobodyIsToldDoneBeforeTheLastIsOnDisk_R10) {
  Start(Every(0, Asynchronous(1)));
  Take(Worker(0), 1);
  const auto ticket = Take(Worker(1), 1);
  const auto renewal = Renew(Worker(1), 3000);
  archive_->quick = false;
  const auto booked = Book(Worker(0), 1);
  const auto expect_training = [&](const char* when) {
    SCOPED_TRACE(when);
    EXPECT_EQ(booked->state().phase(), proto::TRAINING);
    EXPECT_FALSE(ticket.came() || renewal.came());
    EXPECT_EQ(Renew(Worker(0))->state().phase(), proto::TRAINING);
    EXPECT_EQ(Book(Worker(0), 1)->state().phase(), proto::TRAINING);
    EXPECT_EQ(Status().state().phase(), proto::TRAINING);
    EXPECT_EQ(GetPlacement(0)->state().phase(), proto::TRAINING);
    EXPECT_THAT(links_->ends, IsEmpty());
  };
  expect_training("nothing is held");
  AnswerHold(0, {});
  AnswerHold(1, {});
  AckSaves();
  expect_training("nothing is written");
  FinishSave();
  ASSERT_THAT(archive_->manifests, SizeIs(1));
  EXPECT_TRUE(archive_->manifests[0].request.finished());
  expect_training("no manifest");
  archive_->AnswerManifest();
  ASSERT_THAT(archive_->journals, SizeIs(1));
  EXPECT_TRUE(archive_->journals[0].request.finished());
  expect_training("no journal");
  archive_->AnswerJournal();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(ticket->state().phase(), proto::DONE);
  EXPECT_EQ(renewal->state().phase(), proto::DONE);
  EXPECT_EQ(archive_->removals.back(), "");
}

TEST_F(CoordinatorSaveTest, OneThatIsBeingWrittenIsNotTheLast_R10) {
  Start(Every(1, MakeDeclaration(2)));
  TrainStep(0);
  AckSaves();
  TrainStep(1);
  EXPECT_THAT(links_->saves, IsEmpty());
  AnswerWritten(0);
  AnswerWritten(1);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Save().step(), 2u);
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(archive_->Checkpoints(), "1/1 1/2");
}

TEST_F(CoordinatorSaveTest, OneThatHoldsTheEndStandsInTheJournalOnce_C5) {
  Start(Every(0, Asynchronous(2)));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  Book(Worker(0), 1);
  Want();
  AnswerHold(0, {Applied(Worker(0), 2)});
  AnswerHold(1, {});
  FinishSave();
  EXPECT_EQ(archive_->Checkpoints(), "1/2");
  EXPECT_FALSE(archive_->journal.finished()) << "not everything is booked";
  Book(Worker(0), 2);
  PuppetLinks::AnswerAll(links_->holds);
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(archive_->journal.finished());
  EXPECT_EQ(archive_->Checkpoints(), "1/2");
}

TEST_F(CoordinatorSaveTest, TheLastIsTriedForAWhile_C5) {
  Start(Every(0, MakeDeclaration(1)));
  TrainStep(0);
  for (int i = 0; i < 5; ++i) {
    AckSaves();
    FailToWrite(0);
    AnswerWritten(1);
    EXPECT_EQ(state().phase(), proto::TRAINING);
    Pass(absl::Seconds(1), AllTasks());
  }
  // Workers have everything that they need; none of them is missed.
  Leave(Worker(1));
  Pass(absl::Seconds(100), AllBut(Worker(1)));
  EXPECT_EQ(Status().waiting_for(),
            "taking a checkpoint at /job:ps/task:0, /job:ps/task:1");
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
}

TEST_F(CoordinatorSaveTest, ThenTheJobFailsWithTheDisksReason_C5) {
  Start(Every(0, MakeDeclaration(1)));
  TrainStep(0);
  const absl::Time begun = clock_.Now();
  while (state().phase() == proto::TRAINING &&
         clock_.Now() - begun < 2 * recovery_timeout_) {
    AckSaves();
    FailToWrite(0);
    AnswerWritten(1);
    Pass(absl::Seconds(1), AllTasks());
  }
  EXPECT_EQ(clock_.Now() - begun, recovery_timeout_ + absl::Seconds(1));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_EQ(state().reason(),
            "the last checkpoint cannot be written: /job:ps/task:0: disk full");
}

TEST_F(CoordinatorSaveTest, AnEndThatHangsIsNamed_C5) {
  Start(Every(0, MakeDeclaration(1)));
  TrainStep(0);
  AckSaves();
  AnswerWritten(0);
  Pass(recovery_timeout_, AllTasks());
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(kTick, AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(),
              AllOf(HasSubstr("could not end: nothing was written for 5m"),
                    HasSubstr("the last checkpoint, written by "
                              "/job:ps/task:1")));
}

TEST_F(CoordinatorSaveTest, TheEndMayTakeAsLongAsItMoves_C5) {
  proto::Declaration declaration = Every(0, MakeDeclaration(1));
  declaration.mutable_timeouts()->set_disk_seconds(20);
  Start(declaration);
  TrainStep(0);
  AckSaves();
  AnswerWritten(0);
  for (uint64_t bytes = 0; bytes < 100; ++bytes) {
    NotYetWritten(1, bytes, 100);
    Pass(absl::Seconds(19), AllTasks());
    ASSERT_EQ(state().phase(), proto::TRAINING) << bytes;
  }
  EXPECT_EQ(Status().waiting_for(),
            "the last checkpoint, written by /job:ps/task:1 (99 of 100 bytes)");
  ASSERT_EQ(Status().disk_progress_size(), 2);
  EXPECT_EQ(Status().disk_progress(1).bytes_done(), 99u);
  NotYetWritten(1, 99, 100);
  Pass(absl::Seconds(2), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("nothing was written for 20.25s"));
}

// During training it is reported, and has no other effect.
TEST_F(CoordinatorSaveTest, AShareThatStandsStillIsTold_C4) {
  Start(Every(1, MakeDeclaration()));
  TrainStep(0);
  AckSaves();
  AnswerWritten(0);
  NotYetWritten(1, 30, 100);
  for (uint64_t step = 1; step < 9; ++step) {
    Pass(absl::Seconds(99), AllTasks());
    TrainStep(step);
  }
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Status().checkpoint_error(),
            "the checkpoint of step 1 has made no progress for 13m12s at "
            "/job:ps/task:1 (30 of 100 bytes)");
  EXPECT_THAT(links_->saves, IsEmpty()) << "one at a time";
}

// The journal that is being written decides the outcome once it is on disk.
TEST_F(CoordinatorSaveTest, NothingFailsAJobThatIsBeingFinished_C5) {
  Start(Every(0, MakeDeclaration(1)));
  TrainStep(0);
  archive_->quick = false;
  FinishSave();
  archive_->AnswerManifest();
  ASSERT_TRUE(archive_->journals[0].request.finished());
  Leave(Worker(1), "out of memory");
  Fail("told to stop");
  EXPECT_EQ(state().phase(), proto::TRAINING);
  archive_->AnswerJournal(absl::UnavailableError("input/output error"));
  Fail("told to stop");
  EXPECT_EQ(state().phase(), proto::TRAINING) << "it may be there all the same";
  Pass(absl::Seconds(1), AllBut(Worker(1)));
  archive_->AnswerJournal();
  EXPECT_EQ(state().phase(), proto::DONE);
}

TEST_F(CoordinatorSaveTest, ADiskThatHangsAtTheEndFailsTheJob_C5) {
  Start(Every(0, MakeDeclaration(1)));
  TrainStep(0);
  archive_->quick = false;
  FinishSave();
  archive_->AnswerManifest();
  Pass(absl::Seconds(300), AllTasks());
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(kTick, AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
}

// Its checkpoint holds all that the new generation would make again.
TEST_F(CoordinatorSaveTest, AGenerationAfterTheFinishedJournalIsDone_C5) {
  Start(Every(0, MakeDeclaration(1)));
  TrainStep(0);
  archive_->quick = false;
  FinishSave();
  archive_->AnswerManifest();
  Leave(Ps(1));
  const auto ps = Register(Ps(1), 2);
  EXPECT_EQ(state().phase(), proto::STARTING);
  archive_->AnswerJournal();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(ps->generation(), 1u);
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_THAT(links_->restores, IsEmpty());
}

// A job that continues without lost workers needs none for the last checkpoint.
TEST_F(CoordinatorSaveTest, NoWorkerIsMissedAtTheEnd_C5) {
  Start(Every(0, Asynchronous(1)));
  Take(Worker(0), 1);
  Book(Worker(0), 1);
  Leave(Worker(0));
  Leave(Worker(1));
  EXPECT_THAT(links_->fences, IsEmpty());
  PuppetLinks::AnswerAll(links_->holds);
  Pass(recovery_timeout_ - absl::Seconds(1), {Ps(1)});
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
}

// The final state is lost with a ps: some steps are made again.
TEST_F(CoordinatorSaveTest, ANewGenerationAtTheEndGoesBack_C5_G1) {
  Start(Every(1, MakeDeclaration(2)));
  TrainStep(0);
  FinishSave();
  TrainStep(1);
  AckSaves();
  Leave(Ps(1));
  Join(Ps(1), 2);
  PuppetLinks::AnswerAll(links_->restores);
  PuppetLinks::AnswerAll(links_->awaits);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Status().global_step(), 1u);
  Offer(Worker(0), 1, 0, 1);
  Offer(Worker(1), 1, 1, 1);
  AckCommits();
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(archive_->Checkpoints(), "1/1 2/2");
}

TEST_F(CoordinatorSaveTest, AFinishedJournalIsDone_C5) {
  Start(Every(0, MakeDeclaration(1)));
  TrainStep(0);
  FinishSave();
  ASSERT_TRUE(archive_->journal.finished());
  Begin();
  Join(Ps(1));
  const auto worker = Register(Worker(0));
  EXPECT_EQ(worker->generation(), 2u);
  incarnations_[Worker(0)] = worker->incarnation();
  EXPECT_TRUE(Declare(Every(0, MakeDeclaration(1))).status().ok());
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_THAT(links_->restores, IsEmpty());
  EXPECT_EQ(Renew(Worker(0), 3000)->state().phase(), proto::DONE);
  EXPECT_EQ(GetPlacement(3000)->state().phase(), proto::DONE);
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Want()->durable_step(), 1u);
  Join(Worker(1));
  Leave(Worker(0));
  Leave(Worker(1));
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
}

// Its steps were complete, but its end was not: the job is restored, and ended
// again.
TEST_F(CoordinatorSaveTest, AJobThatHadMadeAllStepsEndsAgain_C5) {
  Start(Every(1, MakeDeclaration(1)));
  TrainStep(0);
  FinishSave();
  archive_->journal.set_finished(false);
  Begin();
  Join(Ps(1));
  Join(Worker(0));
  EXPECT_TRUE(Declare(Every(1, MakeDeclaration(1))).status().ok());
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Save().step(), 1u);
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(archive_->Checkpoints(), "1/1 2/1");
}

}  // namespace
}  // namespace holdfast
