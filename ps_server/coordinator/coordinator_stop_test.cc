// SPDX-License-Identifier: Apache-2.0

// A job that an operator stops: pushes in flight are decided, then saved, and
// the next start resumes from there (docs/protocol/recovery.md, E1 to E4).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class CoordinatorStopTest : public CoordinatorTest {
 protected:
  Answer<proto::StopResponse> Stop(
      bool without_checkpoint = false,
      std::optional<uint64_t> generation = std::nullopt) {
    proto::StopRequest request;
    request.set_without_checkpoint(without_checkpoint);
    request.set_wait_ms(1000);
    if (generation.has_value()) request.set_generation(*generation);
    return Ask(&Coordinator::Stop, request);
  }
  // The kinds of the events since training began.
  std::vector<proto::Event::Kind> EventsOfTheStop() const {
    std::vector<proto::Event::Kind> kinds;
    for (const proto::Event& event : coordinator_->events().events()) {
      if (event.kind() == proto::Event::STOPPING ||
          event.kind() == proto::Event::STOPPED) {
        kinds.push_back(event.kind());
      }
    }
    return kinds;
  }
  // A shard's report that a worker's first push was applied.
  static proto::HoldResponse HoldOf(const TaskId& worker,
                                    const proto::Sender& sender) {
    proto::HoldResponse response;
    proto::AppliedPush& push = *response.add_applied();
    push.mutable_from()->mutable_worker()->set_job(worker.job);
    push.mutable_from()->mutable_worker()->set_index(worker.index);
    push.mutable_from()->set_incarnation(sender.incarnation());
    push.set_sequence(1);
    push.set_clip_factor(1);
    push.set_examples(10);
    return response;
  }
};

// ---- E1: the order to stop ----

TEST_F(CoordinatorStopTest, WithoutACheckpointDirectoryItIsRefused_E1) {
  StartTraining();
  const auto answer = Stop();
  EXPECT_EQ(answer.status().code(), kNotReady);
  EXPECT_THAT(
      std::string(answer.status().message()),
      AllOf(HasSubstr("--checkpoint_dir"), HasSubstr("--without_checkpoint")));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_THAT(EventsOfTheStop(), IsEmpty());
}

TEST_F(CoordinatorStopTest, AJobThatHasEndedIsOnlyToldOf_E1) {
  TrainToTheEnd();
  EXPECT_EQ(Stop()->state().phase(), proto::DONE);
  EXPECT_EQ(Stop()->step(), 2u);

  Make();
  StartTraining();
  coordinator_->Fail("the roof is on fire");
  const auto answer = Stop();
  EXPECT_EQ(answer->state().phase(), proto::FAILED);
  EXPECT_EQ(answer->state().reason(), "the roof is on fire");
  EXPECT_THAT(EventsOfTheStop(), IsEmpty());
}

// Like a call that is resent after the job was stopped and started again.
TEST_F(CoordinatorStopTest, ALaterGenerationThanTheCallersIsNotStopped_E1) {
  MakeWithArchive();
  StartTraining();
  Begin();
  StartTraining();
  ASSERT_EQ(coordinator_->generation(), Generation(2));
  const auto answer = Stop(false, 1);
  EXPECT_EQ(answer->generation(), 2u);
  EXPECT_EQ(answer->state().phase(), proto::TRAINING);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Stop(false, 2);
  EXPECT_EQ(state().phase(), proto::STOPPING);
  // The job was asked to stop: later callers wait, too.
  EXPECT_FALSE(Stop(false, 1).came());
}

TEST_F(CoordinatorStopTest, ACallIsParkedForSoLong_E1) {
  MakeWithArchive();
  StartTraining();
  const auto answer = Stop();
  EXPECT_FALSE(answer.came());
  Pass(absl::Seconds(2), AllTasks());
  ASSERT_TRUE(answer.came());
  EXPECT_EQ(answer->state().phase(), proto::STOPPING);
  EXPECT_NE(answer->waiting_for(), "");
}

// ---- E2: what is in flight ----

TEST_F(CoordinatorStopTest, AStepThatIsNotCompleteIsDropped_E2) {
  MakeWithArchive();
  StartTraining();
  OfferBoth(0);
  AckCommits();
  const auto seated = Offer(Worker(0), 1, 0, 2);
  const auto first = Stop();
  EXPECT_EQ(state().phase(), proto::STOPPING);
  // The offer that would have completed the step.
  const auto late = Offer(Worker(1), 1, 1, 2);
  EXPECT_FALSE(late.came());
  EXPECT_THAT(links_->commits, IsEmpty());
  ASSERT_THAT(PuppetLinks::To(links_->saves), ElementsAre(0, 1));
  EXPECT_EQ(links_->saves[0].request.step(), 1u);
  EXPECT_FALSE(links_->saves[0].request.last()) << "only Commit changes values";

  FinishSave();
  EXPECT_EQ(state().phase(), proto::STOPPED);
  EXPECT_EQ(state().reason(),
            "the job was stopped at step 1 of 10; started again with the same "
            "checkpoint directory, it goes on from there");
  EXPECT_FALSE(archive_->journal.finished());
  EXPECT_EQ(archive_->Checkpoints(), "1/1");
  for (const auto& answer : {&seated, &late}) {
    EXPECT_EQ((*answer)->verdict(), proto::VERDICT_UNSPECIFIED);
    EXPECT_EQ((*answer)->state().phase(), proto::STOPPED);
  }
  EXPECT_EQ(first->state().phase(), proto::STOPPED);
  EXPECT_EQ(first->step(), 1u);
  EXPECT_EQ(first->durable_step(), 1u);
  EXPECT_EQ(first->waiting_for(), "");
  // Decided pushes stay decided; the others are told of the end.
  EXPECT_EQ(Offer(Worker(0), 0, 0, 1)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(Offer(Worker(0), 1, 0, 2)->state().phase(), proto::STOPPED);
  EXPECT_THAT(EventsOfTheStop(),
              ElementsAre(proto::Event::STOPPING, proto::Event::STOPPED));
}

TEST_F(CoordinatorStopTest, AStepThatIsCompleteIsCommittedFirst_E2) {
  MakeWithArchive();
  StartTraining();
  OfferBoth(0);
  const auto zero = Offer(Worker(0), 1, 0, 2);
  const auto one = Offer(Worker(1), 1, 1, 2);
  Stop();
  EXPECT_THAT(links_->saves, IsEmpty()) << "Commit 0 is under way";
  PuppetLinks::Answer(links_->commits, 0);
  PuppetLinks::Answer(links_->commits, 1);
  ASSERT_THAT(PuppetLinks::To(links_->commits), ElementsAre(0, 1));
  EXPECT_EQ(Commit().step(), 1u);
  EXPECT_EQ(zero->verdict(), proto::ACCEPTED);
  EXPECT_EQ(one->verdict(), proto::ACCEPTED);
  EXPECT_THAT(links_->saves, IsEmpty()) << "Commit 1 is under way";
  // No step opens.
  EXPECT_FALSE(Offer(Worker(0), 2, 0, 3).came());
  EXPECT_FALSE(Offer(Worker(1), 2, 1, 3).came());
  AckCommits();
  EXPECT_THAT(links_->commits, IsEmpty());
  ASSERT_THAT(PuppetLinks::To(links_->saves), ElementsAre(0, 1));
  EXPECT_EQ(links_->saves[0].request.step(), 2u);
  FinishSave();
  EXPECT_EQ(state().phase(), proto::STOPPED);
  EXPECT_EQ(archive_->Checkpoints(), "1/2");
  EXPECT_EQ(Status().global_step(), 2u);
}

TEST_F(CoordinatorStopTest, AJobWhoseLastStepIsCompleteIsDone_E2) {
  MakeWithArchive();
  StartTraining(MakeDeclaration(1));
  OfferBoth(0);
  const auto answer = Stop();
  EXPECT_EQ(state().phase(), proto::STOPPING);
  AckCommits();
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(archive_->journal.finished());
  EXPECT_EQ(answer->state().phase(), proto::DONE);
  EXPECT_EQ(Offer(Worker(0), 1, 0, 2)->verdict(), proto::STALE);
}

TEST_F(CoordinatorStopTest, TicketsThatAreOutCountAsUnspent_E2) {
  MakeWithArchive();
  StartTraining(ByTicket(2, 2, 8));
  EXPECT_EQ(Index(Take(Worker(0), 1)), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
  OfferBoth(0);
  AckCommits();
  EXPECT_EQ(Index(Take(Worker(0), 2)), 2u);
  Offer(Worker(0), 1, 0, 2);
  Stop();
  const auto waiting = Take(Worker(1), 2);
  EXPECT_FALSE(waiting.came()) << "no ticket is handed out";
  FinishSave();
  EXPECT_TRUE(Empty(waiting));
  EXPECT_EQ(waiting->state().phase(), proto::STOPPED);
  const proto::Position& position = archive_->complete["1/1"].position();
  EXPECT_EQ(position.next_ticket(), 3u);
  EXPECT_THAT(position.returned_tickets(), ElementsAre(2));
}

TEST_F(CoordinatorStopTest, OfAsynchronousPushesTheUnionCounts_E2_E3) {
  MakeWithArchive();
  StartTraining(Asynchronous(10));
  EXPECT_EQ(Index(Take(Worker(0), 1)), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
  Stop();
  const auto waiting = Take(Worker(0), 2);
  EXPECT_FALSE(waiting.came()) << "no ticket is handed out";
  ASSERT_THAT(PuppetLinks::To(links_->holds), ElementsAre(0, 1));
  // One shard has applied the push of worker 0, and none that of worker 1.
  PuppetLinks::Answer(links_->holds, 0);
  PuppetLinks::Answer(links_->holds, 1, absl::OkStatus(),
                      HoldOf(Worker(0), SenderOf(Worker(0))));
  ASSERT_THAT(PuppetLinks::To(links_->saves), ElementsAre(0, 1));
  EXPECT_TRUE(links_->saves[0].request.last());
  EXPECT_EQ(links_->saves[0].request.step(), 1u);
  EXPECT_THAT(links_->saves[0].request.applied(), SizeIs(1));
  FinishSave();
  EXPECT_EQ(state().phase(), proto::STOPPED);
  const proto::Position& position = archive_->complete["1/1"].position();
  EXPECT_EQ(position.next_ticket(), 2u);
  EXPECT_THAT(position.returned_tickets(), ElementsAre(1));
  EXPECT_TRUE(Empty(waiting));
  // The push that no worker had reported is in the figures, once.
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Status().pushes().accepted(), 1u);
  EXPECT_TRUE(Empty(Book(Worker(0), 1)));
  EXPECT_EQ(Status().global_step(), 1u);
}

// ---- E3: the last checkpoint ----

TEST_F(CoordinatorStopTest, OneThatIsBeingWrittenIsNotTheLast_E3) {
  MakeWithArchive();
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_checkpoints()->set_every_steps(1);
  StartTraining(declaration);
  OfferBoth(0);
  AckCommits();
  PuppetLinks::AnswerAll(links_->saves);  // of step 1, which is being written
  OfferBoth(1);
  Stop();
  AckCommits();
  EXPECT_THAT(links_->saves, IsEmpty()) << "one at a time";
  AnswerWritten(0);
  AnswerWritten(1);
  EXPECT_EQ(state().phase(), proto::STOPPING);
  ASSERT_THAT(PuppetLinks::To(links_->saves), ElementsAre(0, 1));
  FinishSave();
  EXPECT_EQ(state().phase(), proto::STOPPED);
  EXPECT_EQ(archive_->Checkpoints(), "1/1 1/2");
}

TEST_F(CoordinatorStopTest, OneThatCannotBeWrittenIsToldAndTakenAgain_E3) {
  MakeWithArchive();
  StartTraining();
  OfferBoth(0);
  AckCommits();
  Stop();
  PuppetLinks::AnswerAll(links_->saves);
  PuppetLinks::Answer(links_->awaits, 0, absl::InternalError("no space"));
  AnswerWritten(1);
  EXPECT_EQ(state().phase(), proto::STOPPING);
  EXPECT_THAT(Status().checkpoint_error(), HasSubstr("no space"));
  for (int i = 0; i < 50 && links_->saves.empty(); ++i) {
    Pass(absl::Milliseconds(250), AllTasks());
  }
  ASSERT_THAT(PuppetLinks::To(links_->saves), ElementsAre(0, 1));
  FinishSave();
  EXPECT_EQ(state().phase(), proto::STOPPED);
}

TEST_F(CoordinatorStopTest, OneThatNeverCanBeFailsTheJob_E3) {
  MakeWithArchive();
  StartTraining();
  Stop();
  for (int i = 0; i < 100 && state().phase() == proto::STOPPING; ++i) {
    PuppetLinks::AnswerAll(links_->saves);
    while (!links_->awaits.empty()) {
      PuppetLinks::Answer(links_->awaits, links_->awaits.front().ps,
                          absl::InternalError("no space"));
    }
    Pass(absl::Seconds(10), AllTasks());
  }
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("no space"));
}

TEST_F(CoordinatorStopTest, WhoAsksAgainMayDoWithoutIt_E3) {
  MakeWithArchive();
  StartTraining();
  OfferBoth(0);
  AckCommits();
  const auto waiting = Stop();
  ASSERT_THAT(links_->saves, SizeIs(2));
  const auto answer = Stop(/*without_checkpoint=*/true);
  EXPECT_EQ(state().phase(), proto::STOPPED);
  EXPECT_EQ(state().reason(),
            "the job was stopped at step 1 of 10 without a checkpoint; started "
            "again with the same checkpoint directory, it begins from scratch");
  EXPECT_EQ(answer->durable_step(), 0u);
  EXPECT_EQ(waiting->state().phase(), proto::STOPPED);
  EXPECT_EQ(archive_->Checkpoints(), "");
}

TEST_F(CoordinatorStopTest, WithoutADirectoryItWaitsForTheCommitAlone_E3) {
  StartTraining();
  OfferBoth(0);
  const auto answer = Stop(/*without_checkpoint=*/true);
  EXPECT_EQ(state().phase(), proto::STOPPING);
  AckCommits();
  EXPECT_EQ(state().phase(), proto::STOPPED);
  EXPECT_EQ(answer->step(), 1u);
  EXPECT_EQ(state().reason(),
            "the job was stopped at step 1 of 10, and nothing was saved: "
            "started again, it begins from scratch");
}

// ---- Tasks that are lost meanwhile ----

TEST_F(CoordinatorStopTest, NoWorkerIsWaitedFor_E2) {
  MakeWithArchive();
  StartTraining();
  OfferBoth(0);
  Stop();
  Leave(Worker(0));
  Leave(Worker(1), "an error of a worker that nobody needs");
  Pass(2 * kLease, {Ps(1)});
  EXPECT_EQ(state().phase(), proto::STOPPING);
  AckCommits();
  FinishSave();
  EXPECT_EQ(state().phase(), proto::STOPPED);
}

TEST_F(CoordinatorStopTest, APsThatLosesItsStateLeavesWhatIsOnDisk_E2) {
  MakeWithArchive();
  StartTraining();
  OfferBoth(0);
  AckCommits();
  const auto answer = Stop();
  ASSERT_THAT(links_->saves, SizeIs(2));
  Leave(Ps(1));
  Join(Ps(1), /*nonce=*/2);
  EXPECT_EQ(state().phase(), proto::STOPPED);
  EXPECT_EQ(answer->step(), 0u) << "nothing was saved before";
  EXPECT_EQ(coordinator_->generation(), Generation(2));
  EXPECT_THAT(links_->restores, IsEmpty()) << "nobody needs it";
}

TEST_F(CoordinatorStopTest, AJobThatHasNotBegunIsStoppedAtOnce_E2) {
  MakeWithArchive();
  Join(Worker(0));
  Join(Ps(1));
  EXPECT_EQ(Stop()->state().phase(), proto::STOPPED);
  EXPECT_EQ(state().reason(),
            "the job was stopped at step 0; started again with the same "
            "checkpoint directory, it goes on from there");
  // A worker that joins late is told of it.
  Join(Worker(1));
  EXPECT_EQ(Renew(Worker(1))->state().phase(), proto::STOPPED);
  EXPECT_TRUE(Declare(MakeDeclaration(), Worker(1)).status().ok());
  EXPECT_EQ(GetPlacement(1000)->state().phase(), proto::STOPPED);
}

// ---- E4: the end, and what comes after ----

TEST_F(CoordinatorStopTest, OneThatComesLateFindsNoVariables_E4) {
  MakeWithArchive();
  StartTraining();
  EXPECT_TRUE(GetPlacement(0)->ready());
  Stop();
  FinishSave();
  ASSERT_THAT(links_->ends, IsEmpty()) << "the shards are still there";
  const auto placement = GetPlacement(1000);
  EXPECT_FALSE(placement->ready());
  EXPECT_EQ(placement->state().phase(), proto::STOPPED);
}

TEST_F(CoordinatorStopTest, TheShardsAreEndedWhenTheWorkersHaveLeft_E4) {
  MakeWithArchive();
  StartTraining();
  const auto renewal = Renew(Worker(0), 1000);
  Stop();
  EXPECT_EQ(renewal->state().phase(), proto::STOPPING) << "told at once";
  FinishSave();
  EXPECT_EQ(Renew(Worker(0))->state().phase(), proto::STOPPED);
  EXPECT_FALSE(state().has_reporter()) << "there is no result";
  EXPECT_EQ(Leave(Worker(0))->state().phase(), proto::STOPPED);
  EXPECT_THAT(links_->ends, IsEmpty()) << "worker 1 does not know yet";
  Leave(Worker(1));
  ASSERT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
  EXPECT_EQ(links_->ends[0].request.state().phase(), proto::STOPPED);
  AckEnds();
  EXPECT_TRUE(coordinator_->finished());
}

TEST_F(CoordinatorStopTest, TheNextStartGoesOnFromThere_E4) {
  MakeWithArchive();
  StartTraining();
  OfferBoth(0);
  AckCommits();
  Stop();
  FinishSave();
  ASSERT_EQ(state().phase(), proto::STOPPED);
  ASSERT_THAT(archive_->history.events(), Not(IsEmpty()));
  EXPECT_EQ(archive_->history.events().rbegin()->kind(), proto::Event::STOPPED);

  Begin();
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare().status().ok());
  ASSERT_THAT(links_->restores, SizeIs(2));
  EXPECT_EQ(links_->restores[0].request.checkpoint().step(), 1u);
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Status().global_step(), 1u);
  Offer(Worker(0), 1, 0, 1);
  Offer(Worker(1), 1, 1, 1);
  EXPECT_EQ(Commit().step(), 1u);
}

}  // namespace
}  // namespace holdfast
