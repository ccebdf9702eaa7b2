// SPDX-License-Identifier: Apache-2.0

// What the coordinator measures and keeps for users: paces, times, rates,
// events, and the history of the job.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/events.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FiguresTest : public CoordinatorTest {
 protected:
  // Events like "JOINED: /job:worker/task:0 (host-of-worker0:77) joined".
  std::vector<std::string> Events(uint64_t after = 0) {
    proto::GetEventsRequest request;
    request.set_after(after);
    const auto answer = Ask(request);
    std::vector<std::string> events;
    for (const proto::Event& event : answer->events()) {
      events.push_back(absl::StrCat(proto::Event::Kind_Name(event.kind()), ": ",
                                    event.text()));
    }
    return events;
  }
  // The kinds of the events since the last call.
  std::vector<std::string> NewKinds() {
    const auto& log = events();
    std::vector<std::string> kinds;
    const proto::GetEventsResponse unseen = log.After(seen_);
    for (const proto::Event& event : unseen.events()) {
      kinds.push_back(proto::Event::Kind_Name(event.kind()));
    }
    seen_ = log.last_number();
    return kinds;
  }
  proto::GetHistoryResponse History() {
    return *Ask(proto::GetHistoryRequest());
  }
  std::vector<uint64_t> HistorySteps() {
    std::vector<uint64_t> steps;
    const proto::GetHistoryResponse history = History();
    for (const auto& point : history.points()) steps.push_back(point.step());
    return steps;
  }
  proto::WorkerPace Pace(uint32_t worker) {
    const proto::GetStatusResponse status = Status();
    for (const proto::TaskStatus& task : status.tasks()) {
      if (task.task().job() == kWorkerJob && task.task().index() == worker) {
        return task.pace();
      }
    }
    return {};
  }
  // Worker 0 takes `first`, worker 1 `second` after that; then it is committed.
  void Step(uint64_t step, absl::Duration first, absl::Duration second) {
    Advance(first);
    Offer(Worker(0), step, 0, step + 1);
    Advance(second);
    Offer(Worker(1), step, 1, step + 1);
    AckCommits();
    for (const TaskId& task : AllTasks()) Renew(task);
    Tick();
  }

  uint64_t seen_ = 0;
};

TEST_F(FiguresTest, EventsOfAJob) {
  StartTraining(MakeDeclaration(2));
  Pass(kLease / 2, AllTasks());
  OfferBoth(0);
  AckCommits();
  OfferBoth(1);
  AckCommits();
  EXPECT_THAT(Events(),
              ElementsAre("JOINED: /job:ps/task:1 (host-of-ps1:77) joined",
                          "JOINED: /job:worker/task:0 (host-of-worker0:77) "
                          "joined",
                          "JOINED: /job:worker/task:1 (host-of-worker1:77) "
                          "joined",
                          "TRAINING: training begins",
                          "DONE: the job is done: 2 steps"));
  EXPECT_THAT(Events(4), SizeIs(1));
  const proto::Event& last = events().events().back();
  EXPECT_EQ(last.number(), 5u);
  EXPECT_EQ(last.step(), 2u);
  EXPECT_EQ(last.generation(), 1u);
  EXPECT_EQ(last.time(), 1700000000);
  EXPECT_FALSE(last.has_task());
  EXPECT_EQ(events().events()[1].task().job(), kWorkerJob);
  // Leaving a job that is done is not an event.
  Leave(Worker(0));
  EXPECT_THAT(Events(5), IsEmpty());
}

TEST_F(FiguresTest, EventsOfALostWorker) {
  StartTraining();
  NewKinds();
  Pass(kLease + absl::Seconds(1), AllBut(Worker(1)));
  EXPECT_THAT(NewKinds(), ElementsAre("SLOW", "LOST"));
  EXPECT_THAT(Events(4),
              ElementsAre(HasSubstr("/job:worker/task:1 (host-of-worker1:77) "
                                    "is slow: silent for "),
                          "LOST: /job:worker/task:1 (host-of-worker1:77) is "
                          "lost: nothing was heard from it for 10s; the job "
                          "waits for it for 5m at most"));
  Renew(Worker(1));
  EXPECT_THAT(NewKinds(), ElementsAre("BACK"));
  Leave(Worker(1));
  EXPECT_THAT(NewKinds(), ElementsAre("LEFT"));
  Join(Worker(1), 2);
  EXPECT_THAT(NewKinds(), ElementsAre("FENCED", "JOINED"));
  Leave(Worker(0), "no data");
  EXPECT_THAT(NewKinds(), ElementsAre("LEFT", "FAILED"));
  EXPECT_THAT(Events().back(), HasSubstr("the job has failed: "));
  EXPECT_THAT(Events().back(), HasSubstr("left before the end: no data"));
}

TEST_F(FiguresTest, AnEventSaysThatPs0IsToldToStop) {
  StartTraining();
  NewKinds();
  OnToldToStop("/job:ps/task:0 was told to stop by SIGTERM");
  EXPECT_THAT(NewKinds(), ElementsAre("LEFT"));
  const proto::Event& event = events().events().back();
  EXPECT_EQ(event.task().job(), kPsJob);
  EXPECT_EQ(
      event.text(),
      "/job:ps/task:0 was told to stop by SIGTERM; the job continues when "
      "it is started again");
}

TEST_F(FiguresTest, ThatPs0IsToldToStopIsWrittenWithoutACheckpoint) {
  MakeWithArchive();
  StartTraining();
  OfferBoth(0);
  AckCommits();
  OnToldToStop("/job:ps/task:0 was told to stop by SIGTERM");
  ASSERT_GT(archive_->history.events_size(), 0);
  EXPECT_THAT(archive_->history.events().rbegin()->text(),
              HasSubstr("was told to stop by SIGTERM"));
}

TEST_F(FiguresTest, EventsOfCheckpoints) {
  MakeWithArchive();
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_checkpoints()->set_every_steps(1);
  StartTraining(declaration);
  NewKinds();
  OfferBoth(0);
  AckCommits();
  FinishSave();
  EXPECT_THAT(NewKinds(), ElementsAre("CHECKPOINT"));
  EXPECT_THAT(Events().back(), HasSubstr("step 1 (generation 1) is on disk, "));
  EXPECT_EQ(Status().checkpoints().written(), 1u);
  EXPECT_EQ(Status().checkpoints().age_seconds(), 0);

  // The disk is full for a while: reported once.
  uint64_t step = 1;
  const auto fail = [&](absl::StatusCode code) {
    OfferBoth(step++);
    AckCommits();
    if (links_->saves.empty()) Pass(absl::Seconds(11), AllTasks());
    PuppetLinks::AnswerAll(links_->saves);
    while (!links_->awaits.empty()) {
      PuppetLinks::Answer(links_->awaits, links_->awaits.front().ps,
                          absl::Status(code, absl::StrCat("bad ", step)));
    }
  };
  fail(absl::StatusCode::kResourceExhausted);
  NewKinds();
  fail(absl::StatusCode::kResourceExhausted);
  fail(absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(NewKinds(), IsEmpty());
  EXPECT_THAT(Events().back(),
              "CHECKPOINT_FAILED: checkpoints cannot be written: "
              "/job:ps/task:0: bad 2");
  fail(absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(NewKinds(), ElementsAre("CHECKPOINT_FAILED"));
  EXPECT_EQ(Status().checkpoints().failed(), 4u);
  Pass(absl::Seconds(11), AllTasks());
  FinishSave();
  EXPECT_THAT(NewKinds(), ElementsAre("CHECKPOINT"));
  EXPECT_EQ(Status().checkpoint_error(), "");
}

TEST_F(FiguresTest, AJournalThatCannotBeWrittenIsTold) {
  MakeWithArchive();
  StartTraining();
  NewKinds();
  archive_->quick = false;
  proto::CheckpointRequest request;
  OfferBoth(0);
  AckCommits();
  request.set_wait_ms(1000);
  Ask(request);
  Tick();
  FinishSave();
  archive_->AnswerManifest();
  archive_->AnswerJournal(absl::UnavailableError("gone"));
  Pass(absl::Seconds(1), AllTasks());
  EXPECT_THAT(NewKinds(), ElementsAre("CHECKPOINT_FAILED"));
  EXPECT_THAT(Events().back(),
              HasSubstr("the journal cannot be written: gone"));
  Pass(absl::Seconds(3), AllTasks());
  EXPECT_THAT(NewKinds(), IsEmpty());
}

TEST_F(FiguresTest, EvaluationsAreTold) {
  StartTraining();
  OfferBoth(0);
  AckCommits();
  NewKinds();
  proto::ReportEvaluationRequest request;
  *request.mutable_sender() = SenderOf(Worker(0));
  request.mutable_result()->set_step(1);
  request.mutable_result()->set_loss(0.5);
  request.mutable_result()->set_accuracy(0.75);
  Ask(request);
  // Like a client that has not received the answer.
  Ask(request);
  EXPECT_THAT(NewKinds(), ElementsAre("EVALUATION"));
  EXPECT_EQ(Events().back(),
            "EVALUATION: evaluation of step 1: loss 0.5, accuracy 0.75");
  ASSERT_THAT(History().evaluations(), SizeIs(1));
  EXPECT_EQ(History().evaluations(0).accuracy(), 0.75);
}

TEST_F(FiguresTest, PacesOfSynchronousWorkers) {
  StartTraining(MakeDeclaration(100));
  for (uint64_t step = 0; step < 10; ++step) {
    Step(step, absl::Milliseconds(100), absl::Milliseconds(900));
  }
  EXPECT_NEAR(Pace(0).seconds_per_push(), 0.1, 1e-6);
  EXPECT_NEAR(Pace(1).seconds_per_push(), 1, 1e-6);
  EXPECT_EQ(Pace(0).last_share(), 0);
  EXPECT_EQ(Pace(1).last_share(), 1);
  EXPECT_FALSE(Pace(0).slow());
  EXPECT_TRUE(Pace(1).slow());
  EXPECT_EQ(Events().back(),
            "SLOW: /job:worker/task:1 (host-of-worker1:77) is slow: 1s per "
            "push, where the median is 100ms");
  // 25 quick steps, and then the seconds needed to notice.
  for (uint64_t step = 10; step < 35; ++step) {
    Step(step, absl::Milliseconds(100), absl::Milliseconds(10));
  }
  Pass(absl::Seconds(1.75), AllTasks());
  EXPECT_TRUE(Pace(1).slow());
  for (uint64_t step = 35; step < 70; ++step) {
    Step(step, absl::Milliseconds(100), absl::Milliseconds(10));
  }
  EXPECT_FALSE(Pace(1).slow());
  EXPECT_THAT(Events().back(), HasSubstr("is no longer slow: "));
}

TEST_F(FiguresTest, PacesOfBackupReplicas) {
  // Worker 1 of two is always too late for a step of one.
  StartTraining(WithMode(1, 2, 1000));
  uint64_t sequence = 0;
  for (uint64_t step = 0; step < 100; ++step) {
    Advance(absl::Milliseconds(100));
    Offer(Worker(0), step, 0, step + 1);
    AckCommits();
    if (step % 10 == 9) Offer(Worker(1), step - 9, 1, ++sequence);
    for (const TaskId& task : AllTasks()) Renew(task);
    Tick();
  }
  EXPECT_NEAR(Pace(0).seconds_per_push(), 0.1, 1e-6);
  EXPECT_NEAR(Pace(1).seconds_per_push(), 1, 1e-6);
  EXPECT_EQ(Pace(1).last_share(), 0);
  EXPECT_TRUE(Pace(1).slow());
  EXPECT_EQ(Status().pushes().stale(), 10u);
}

TEST_F(FiguresTest, PacesOfTickets) {
  StartTraining(ByTicket(2, 2, 200));
  for (uint64_t step = 0; step < 10; ++step) {
    Take(Worker(0), step + 1);
    Take(Worker(1), step + 1);
    Step(step, absl::Milliseconds(100), absl::Milliseconds(900));
  }
  EXPECT_NEAR(Pace(0).seconds_per_push(), 0.1, 1e-6);
  EXPECT_NEAR(Pace(1).seconds_per_push(), 1, 1e-6);
  EXPECT_TRUE(Pace(1).slow());
}

TEST_F(FiguresTest, PacesOfAsynchronousWorkers) {
  // Neither worker gets ahead of the other, so both push once a second.
  StartTraining(Bounded(0, 1000));
  for (uint64_t sequence = 1; sequence <= 10; ++sequence) {
    Take(Worker(0), sequence);
    Take(Worker(1), sequence);
    Advance(absl::Milliseconds(100));
    Book(Worker(0), sequence);
    Advance(absl::Milliseconds(900));
    Book(Worker(1), sequence);
    for (const TaskId& task : AllTasks()) Renew(task);
    Tick();
  }
  EXPECT_NEAR(Pace(0).seconds_per_push(), 0.1, 1e-6);
  EXPECT_NEAR(Pace(1).seconds_per_push(), 1, 1e-6);
  EXPECT_EQ(Pace(1).last_share(), 0) << "of synchronous jobs";
  EXPECT_TRUE(Pace(1).slow());
  EXPECT_FALSE(Status().has_step_times());
}

// A stalled ps holds up all workers.
TEST_F(FiguresTest, NobodyIsSlowWhileAShardIsWaitedFor) {
  StartTraining();
  for (uint64_t step = 0; step < 5; ++step) {
    Step(step, absl::Milliseconds(100), absl::Milliseconds(10));
  }
  OfferBoth(5);
  Pass(absl::Seconds(30), AllTasks());
  EXPECT_FALSE(Pace(0).slow());
  EXPECT_FALSE(Pace(1).slow());
  AckCommits();
  Offer(Worker(0), 6, 0, 7);
  Pass(absl::Seconds(1), AllTasks());
  EXPECT_FALSE(Pace(1).slow());
  Pass(absl::Seconds(3), AllTasks());
  EXPECT_TRUE(Pace(1).slow()) << "it is the only one that owes a push";
}

TEST_F(FiguresTest, TimesAndRates) {
  StartTraining();
  EXPECT_EQ(Status().steps_per_second(), 0);
  EXPECT_EQ(Status().lease_seconds(), 10);
  Advance(absl::Seconds(1));
  Offer(Worker(0), 0, 0, 1);
  Advance(absl::Seconds(1));
  Offer(Worker(1), 0, 1, 1);
  Advance(absl::Seconds(3));
  EXPECT_EQ(Status().seconds_since_progress(), 3);
  AckCommits();
  // A step of 20 examples in 5 s.
  EXPECT_DOUBLE_EQ(Status().steps_per_second(), 0.2);
  EXPECT_DOUBLE_EQ(Status().examples_per_second(), 4);
  EXPECT_DOUBLE_EQ(Status().step_times().collect().sum_seconds(), 2);
  EXPECT_DOUBLE_EQ(Status().step_times().commit().sum_seconds(), 3);
}

TEST_F(FiguresTest, HistoryOfAJob) {
  StartTraining(MakeDeclaration(3));
  EXPECT_THAT(HistorySteps(), IsEmpty());
  Advance(absl::Seconds(2));
  OfferBoth(0);
  EXPECT_THAT(HistorySteps(), IsEmpty()) << "not committed yet";
  AckCommits();
  ASSERT_THAT(HistorySteps(), ElementsAre(1));
  const proto::HistoryPoint point = History().points(0);
  EXPECT_EQ(point.loss(), 1);
  EXPECT_EQ(point.examples(), 20u);
  EXPECT_EQ(point.time(), 1700000000);
  EXPECT_EQ(point.steps_per_second(), 0.5);
  EXPECT_EQ(point.examples_per_second(), 10);
  for (uint64_t step : {1, 2}) {
    OfferBoth(step);
    AckCommits();
  }
  EXPECT_THAT(HistorySteps(), ElementsAre(1, 2, 3));
}

TEST_F(FiguresTest, HistoryOfAnAsynchronousJob) {
  StartTraining(Asynchronous(3));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  Take(Worker(0), 3, {Spent(1, 10, 0.5), Spent(2, 30, 1)});
  ASSERT_THAT(HistorySteps(), ElementsAre(1, 2));
  EXPECT_EQ(History().points(0).loss(), 0.5);
  EXPECT_EQ(History().points(1).loss(), 1);
  EXPECT_EQ(History().points(1).examples(), 40u);
}

// ---- On disk ----

class HistoryOnDiskTest : public FiguresTest {
 protected:
  HistoryOnDiskTest() {
    MakeWithArchive();
    declaration_.mutable_checkpoints()->set_every_steps(2);
  }
  void Make(uint64_t steps, uint64_t from = 0) {
    for (uint64_t step = from; step < steps; ++step) {
      OfferBoth(step);
      AckCommits();
      if (!links_->saves.empty()) FinishSave();
    }
  }
  // ps 0 is started again, and all tasks register anew.
  void Restart() {
    const uint64_t nonce = ++lives_;
    Begin();
    for (const TaskId& task : AllTasks()) Join(task, nonce);
    ASSERT_TRUE(Declare(declaration_).status().ok());
    PuppetLinks::AnswerAll(links_->restores);
    ASSERT_EQ(state().phase(), proto::TRAINING);
  }

  proto::Declaration declaration_ = MakeDeclaration(10);
  uint64_t lives_ = 1;
};

TEST_F(HistoryOnDiskTest, LivesOnWithTheCheckpoint) {
  StartTraining(declaration_);
  Make(5);
  EXPECT_THAT(HistorySteps(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(archive_->history.directory_nonce(), 4711u);
  EXPECT_EQ(archive_->history.points_size(), 4) << "with the checkpoint of 4";
  EXPECT_EQ(archive_->history.events().rbegin()->kind(),
            proto::Event::CHECKPOINT);
  const uint64_t last = archive_->history.events().rbegin()->number();
  Restart();
  EXPECT_EQ(Status().global_step(), 4u);
  EXPECT_THAT(HistorySteps(), ElementsAre(1, 2, 3, 4));
  const auto since = Events(last);
  ASSERT_THAT(since, SizeIs(5));
  EXPECT_EQ(
      since[0],
      "GENERATION: generation 2 begins: /job:ps/task:0 has started; resumes "
      "from step 4");
  EXPECT_EQ(since[4], "TRAINING: training resumes from step 4");
  Make(6, 4);
  EXPECT_THAT(HistorySteps(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(HistoryOnDiskTest, IsCutWhereTheJobGoesBack) {
  StartTraining(declaration_);
  Make(3);
  proto::ReportEvaluationRequest request;
  *request.mutable_sender() = SenderOf(Worker(0));
  for (const uint64_t step : {2, 3}) {
    request.mutable_result()->set_step(step);
    Ask(request);
  }
  // ps 1 has lost its state.
  Leave(Ps(1));
  Join(Ps(1), 2);
  EXPECT_THAT(HistorySteps(), ElementsAre(1, 2));
  ASSERT_THAT(History().evaluations(), SizeIs(1));
  EXPECT_EQ(History().evaluations(0).step(), 2u);
  EXPECT_EQ(Status().steps_per_second(), 0);
}

TEST_F(HistoryOnDiskTest, StatusTellsTheLatestEvaluationAfterARestart) {
  StartTraining(declaration_);
  Make(3);
  proto::ReportEvaluationRequest request;
  *request.mutable_sender() = SenderOf(Worker(0));
  request.mutable_result()->set_step(2);
  request.mutable_result()->set_examples(10);
  request.mutable_result()->set_accuracy(0.5);
  Ask(request);
  Make(5, 3);
  Restart();
  EXPECT_EQ(Status().evaluation().step(), 2u);
  EXPECT_EQ(Status().evaluation().accuracy(), 0.5);
}

TEST_F(HistoryOnDiskTest, EveryTenSecondsAndAtTheEnd) {
  StartTraining(declaration_);
  Make(1);
  EXPECT_EQ(archive_->history.points_size(), 0);
  Pass(absl::Seconds(11), AllTasks());
  EXPECT_EQ(archive_->history.points_size(), 1);
  Make(10, 1);
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(archive_->history.points_size(), 10);
  EXPECT_EQ(archive_->history.events().rbegin()->kind(), proto::Event::DONE);
  // A job that was done already tells nothing new.
  const int events = archive_->history.events_size();
  Begin();
  Pass(absl::Seconds(301), {});
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_THAT(Events(), SizeIs(events));
}

TEST_F(HistoryOnDiskTest, AFullDiskDoesNotEndTheJob) {
  archive_->history_status = absl::ResourceExhaustedError("disk full");
  StartTraining(declaration_);
  Make(10);
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(archive_->history.points_size(), 0);
}

TEST_F(HistoryOnDiskTest, AFailedJobIsToldToo) {
  StartTraining(declaration_);
  Make(1);
  Fail("told to");
  EXPECT_EQ(archive_->history.points_size(), 1);
  EXPECT_EQ(archive_->history.events().rbegin()->text(),
            "the job has failed: told to");
}

}  // namespace
}  // namespace holdfast
