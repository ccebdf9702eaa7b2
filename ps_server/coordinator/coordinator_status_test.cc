// SPDX-License-Identifier: Apache-2.0

// What users are told.
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/process/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/job_declaration.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

TEST_F(CoordinatorTest, StatusAtTheStart) {
  Make();
  Join(Worker(1));
  const proto::GetStatusResponse status = Status();
  EXPECT_EQ(status.version(), kVersion);
  EXPECT_EQ(status.generation(), 1u);
  EXPECT_EQ(status.state().phase(), proto::STARTING);
  EXPECT_EQ(status.global_step(), 0u);
  EXPECT_EQ(status.total_steps(), 0u);
  EXPECT_EQ(status.training_seconds(), 0);
  EXPECT_EQ(status.train_loss(), 0);
  EXPECT_FALSE(status.has_evaluation());
  ASSERT_THAT(status.tasks(), SizeIs(2));
  // The coordinator's own ps has no session.
  EXPECT_EQ(status.tasks(0).task().job(), kPsJob);
  EXPECT_EQ(status.tasks(0).task().index(), 0u);
  EXPECT_EQ(status.tasks(0).incarnation(), 0u);
  EXPECT_EQ(status.tasks(0).process(), "host-of-ps0:77");
  EXPECT_TRUE(status.tasks(0).alive());
  EXPECT_FALSE(status.tasks(0).has_silent_seconds());
  EXPECT_EQ(status.tasks(1).task().job(), kWorkerJob);
  EXPECT_EQ(status.tasks(1).task().index(), 1u);
  EXPECT_EQ(status.tasks(1).incarnation(), 1u);
  EXPECT_EQ(status.tasks(1).process(), "host-of-worker1:77");
  EXPECT_TRUE(status.tasks(1).alive());
}

TEST_F(CoordinatorTest, StatusTellsWhoIsAlive) {
  TrainToTheEnd();
  Leave(Worker(0));
  std::map<std::string, bool> alive;
  const proto::GetStatusResponse status = Status();
  for (const proto::TaskStatus& task : status.tasks()) {
    alive[absl::StrCat(task.task().job(), task.task().index())] = task.alive();
  }
  EXPECT_THAT(alive,
              ElementsAre(Pair("ps0", true), Pair("ps1", true),
                          Pair("worker0", false), Pair("worker1", true)));
}

TEST_F(CoordinatorTest, StatusTellsWhatTasksReport) {
  StartTraining();
  const auto renew = [&](const TaskId& task, auto report) {
    proto::RenewLeaseRequest request;
    *request.mutable_sender() = SenderOf(task);
    report(request);
    Ask(request);
  };
  const auto of_worker = [](proto::RenewLeaseRequest& request) {
    request.mutable_worker()->set_steps(7);
    request.mutable_worker()->set_waiting_for("verdict");
  };
  const auto of_ps = [](proto::RenewLeaseRequest& request) {
    request.mutable_ps()->set_updates(9);
  };
  renew(Worker(1), of_worker);
  renew(Ps(1), of_ps);
  // No task may report for another kind of task.
  renew(Worker(0), of_ps);
  renew(Ps(1), of_worker);
  proto::PsReport own;
  own.set_updates(5);
  OnOwnReport(own);
  Advance(absl::Seconds(2));
  const proto::GetStatusResponse status = Status();
  std::map<std::string, std::string> told;
  for (const proto::TaskStatus& task : status.tasks()) {
    told[absl::StrCat(task.task().job(), task.task().index())] =
        absl::StrCat(task.worker().steps(), task.worker().waiting_for(), " ",
                     task.ps().updates(), " ", task.silent_seconds());
  }
  EXPECT_THAT(told, ElementsAre(Pair("ps0", "0 5 0"), Pair("ps1", "0 9 2"),
                                Pair("worker0", "0 0 2"),
                                Pair("worker1", "7verdict 0 2")));
  // What it does not report stays; a report with too long a text is ignored.
  Renew(Worker(1));
  renew(Worker(1), [](proto::RenewLeaseRequest& request) {
    request.mutable_worker()->set_waiting_for(
        std::string(kMaxTextBytes + 1, 'x'));
  });
  EXPECT_EQ(Status().tasks(3).worker().steps(), 7u);
  EXPECT_EQ(Status().tasks(3).silent_seconds(), 0);
  // Kept for the life that reported it.
  Leave(Worker(1));
  Join(Worker(1), 2);
  EXPECT_FALSE(Status().tasks(3).has_worker());
}

TEST_F(CoordinatorTest, StatusTellsHowLongWorkersWaitForInput) {
  StartTraining();
  proto::RenewLeaseRequest request;
  *request.mutable_sender() = SenderOf(Worker(1));
  request.mutable_input_wait()->set_recent(0.5);
  request.mutable_input_wait()->set_overall(0.25);
  Ask(request);
  // What it does not report stays.
  request.clear_input_wait();
  Ask(request);
  const proto::GetStatusResponse status = Status();
  for (const proto::TaskStatus& task : status.tasks()) {
    const bool told = task.task().job() == "worker" && task.task().index() == 1;
    EXPECT_EQ(task.has_input_wait(), told);
    if (!told) continue;
    EXPECT_EQ(task.input_wait().recent(), 0.5);
    EXPECT_EQ(task.input_wait().overall(), 0.25);
  }
}

// As reported to workers: a verdict comes before every shard has committed.
TEST_F(CoordinatorTest, StatusCountsDecidedStepsAndTheirExamples) {
  StartTraining();
  const auto offer = [&](uint32_t worker, uint64_t step, uint64_t examples,
                         double loss) {
    proto::ContributeRequest request =
        OfferOf(Worker(worker), step, worker, step + 1, examples);
    request.set_loss(loss);
    Contribute(request);
  };
  offer(0, 0, 10, 1);
  EXPECT_EQ(Status().global_step(), 0u);
  EXPECT_EQ(Status().examples(), 0u) << "not decided yet";
  EXPECT_EQ(Status().train_loss(), 0);
  EXPECT_EQ(Status().pushes().accepted(), 0u);
  EXPECT_THAT(Status().workers(), IsEmpty());
  offer(1, 0, 30, 2);
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Status().pushes().accepted(), 2u);
  AckCommits();
  EXPECT_EQ(Status().pushes().accepted(), 2u);
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Status().total_steps(), 10u);
  EXPECT_EQ(Status().examples(), 40u);
  // (10 x 1 + 30 x 2) / 40.
  EXPECT_DOUBLE_EQ(Status().train_loss(), 1.75);
  // The loss of a push without examples is not looked at:
  // (70 + 40 x 0.5) / 80.
  offer(0, 1, 40, 0.5);
  offer(1, 1, 0, 1e30);
  AckCommits();
  EXPECT_EQ(Status().examples(), 80u);
  EXPECT_DOUBLE_EQ(Status().train_loss(), 1.125);
}

TEST_F(CoordinatorTest, TrainLossIsOfPushesWhoseLossIsKnown) {
  StartTraining();
  const auto offer = [&](uint32_t worker, uint64_t step, bool unknown) {
    proto::ContributeRequest request =
        OfferOf(Worker(worker), step, worker, step + 1, 10);
    request.set_loss(unknown ? 0 : 3);
    request.set_loss_unknown(unknown);
    Contribute(request);
  };
  offer(0, 0, true);
  offer(1, 0, true);
  AckCommits();
  EXPECT_EQ(Status().examples(), 20u);
  EXPECT_FALSE(Status().has_train_loss());
  offer(0, 1, true);
  offer(1, 1, false);
  AckCommits();
  EXPECT_EQ(Status().train_loss(), 3) << "of one push in four";
}

TEST_F(CoordinatorTest, TrainLossIsOfTheLast100Steps) {
  Make(1, 1);
  StartTraining(MakeDeclaration(200));
  for (uint64_t step = 0; step < 103; ++step) {
    proto::ContributeRequest request = OfferOf(Worker(0), step, 0, step + 1);
    request.set_acked_through(step);
    request.set_loss(static_cast<double>(step));
    Contribute(request);
    AckCommits();
    // The mean of 0 to `step`, and, from step 99 on, of the last 100:
    // step - 49.5.
    const double last = static_cast<double>(step);
    EXPECT_DOUBLE_EQ(Status().train_loss(),
                     step < 100 ? last / 2 : last - 49.5);
  }
  EXPECT_EQ(Status().examples(), 1030u);
}

TEST_F(CoordinatorTest,
       TrainingSecondsAreFromTheFirstStepsStartToTheLastCommit) {
  Make();
  Join(Ps(1));
  Join(Worker(0));
  Declare();
  PuppetLinks::AnswerAll(links_->restores);
  Advance(absl::Seconds(3));
  EXPECT_EQ(Status().training_seconds(), 0) << "worker 1 has not joined";
  Join(Worker(1));
  Advance(absl::Seconds(2));
  EXPECT_EQ(Status().training_seconds(), 0) << "no step is committed";
  OfferBoth(0);
  Advance(absl::Seconds(1));
  AckCommits();
  EXPECT_DOUBLE_EQ(Status().training_seconds(), 3);
  Advance(absl::Seconds(4));
  EXPECT_DOUBLE_EQ(Status().training_seconds(), 3);
  OfferBoth(1);
  AckCommits();
  EXPECT_DOUBLE_EQ(Status().training_seconds(), 7);
}

TEST_F(CoordinatorTest, StatusTellsWhoIsWaitedForOnlyWhenItIsLate) {
  Make();
  Join(Worker(0));
  Pass(absl::Seconds(2), AllTasks());
  EXPECT_EQ(Status().waiting_for(), "");
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_THAT(Status().waiting_for(), HasSubstr("/job:ps/task:1 (not joined)"));

  Make();
  StartTraining();
  Offer(Worker(0), 0, 0, 1);
  Pass(absl::Seconds(2), AllTasks());
  EXPECT_EQ(Status().waiting_for(), "");
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_EQ(Status().waiting_for(), "/job:worker/task:1 (host-of-worker1:77)");
  Offer(Worker(1), 0, 1, 1);
  EXPECT_EQ(Status().waiting_for(), "") << "step 1 has just opened";
  Pass(absl::Seconds(2) + absl::Milliseconds(250), AllTasks());
  EXPECT_EQ(Status().waiting_for(),
            "the commit of step 0 at /job:ps/task:0, /job:ps/task:1");
}

TEST_F(CoordinatorTest, StatusTellsTheLatestEvaluation) {
  StartTraining();
  const auto report = [&](uint64_t step, double accuracy) {
    proto::ReportEvaluationRequest request;
    *request.mutable_sender() = SenderOf(Worker(0));
    request.mutable_result()->set_step(step);
    request.mutable_result()->set_examples(1000);
    request.mutable_result()->set_loss(0.5);
    request.mutable_result()->set_accuracy(accuracy);
    EXPECT_EQ(Ask(request)->generation(), 1u);
  };
  report(5, 0.75);
  report(3, 0.5);  // came late
  EXPECT_EQ(Status().evaluation().step(), 5u);
  EXPECT_EQ(Status().evaluation().examples(), 1000u);
  EXPECT_EQ(Status().evaluation().loss(), 0.5);
  EXPECT_EQ(Status().evaluation().accuracy(), 0.75);
  report(8, 0.875);
  EXPECT_EQ(Status().evaluation().step(), 8u);
}

}  // namespace
}  // namespace holdfast
