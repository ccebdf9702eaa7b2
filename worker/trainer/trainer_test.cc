// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/trainer.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/failure.h"
#include "common/tensor/digest.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "worker/trainer/testing/trainer_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ReadFile(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

using TrainerTest = TrainerTestBase;

TEST_F(TrainerTest, ChiefDeclaresFirstAndReadsThePinnedEndLast) {
  SetUpJob(0, 2, 2, 1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls(),
              ElementsAre("declare", "await variables", "pull 0",
                          "await pull 0", "push #1 of step 0", "add 1", "add 0",
                          "contribute #1: step 0, seat 0, 8 examples", "pull 1",
                          "await push #1", "await verdict #1", "await pull 1",
                          "await done", "status", "pin 1", "read 1", "status",
                          "leave"));
  EXPECT_EQ(cluster_->declared().SerializeAsString(),
            options_.declaration.SerializeAsString());
}

TEST_F(TrainerTest, StragglerStopsWhenTheJobIsDone) {
  SetUpJob(1, 1, 2, 6);
  cluster_->errors["await pull 3"] = absl::UnavailableError("ps has gone");
  cluster_->phase = proto::DONE;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(cluster_->calls().back(), "leave");
}

TEST_F(TrainerTest, StragglerIsNotRolledBackWhenTheJobIsDone) {
  SetUpJob(1, 1, 2, 6);
  cluster_->roll_backs["await pull 3"].version = 0;
  cluster_->phase = proto::DONE;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("await variables"),
              ElementsAre("await variables"));
}

TEST_F(TrainerTest, EvaluatesEverySoManyStepsAndAtTheEnd) {
  SetUpJob(0, 2, 2, 7);
  has_test_set_ = true;
  options_.evaluation.set_every_steps(3);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("pin"), ElementsAre("pin 3", "pin 6", "pin 7"));
  EXPECT_THAT(cluster_->calls("report"),
              ElementsAre("report 3", "report 6", "report 7"));
  const proto::EvaluationResult& first = cluster_->reports().front();
  EXPECT_EQ(first.examples(), 40);
  EXPECT_EQ(first.loss(), 3);
  EXPECT_EQ(first.accuracy(), 0.1);
}

TEST_F(TrainerTest, EvaluatesTheEndOnceWhenItIsDueThereAnyway) {
  SetUpJob(0, 2, 2, 4);
  has_test_set_ = true;
  options_.evaluation.set_every_steps(2);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("report"), ElementsAre("report 2", "report 4"));
}

TEST_F(TrainerTest, ChiefThatSkipsVersionsStillEvaluatesWhenDue) {
  SetUpJob(0, 1, 2, 10);
  has_test_set_ = true;
  options_.evaluation.set_every_steps(3);
  cluster_->newest[1] = 5;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("pin"),
              ElementsAre("pin 5", "pin 6", "pin 9", "pin 10"));
}

TEST_F(TrainerTest, OtherWorkersDoNotEvaluate) {
  SetUpJob(1, 2, 2, 4);
  has_test_set_ = true;
  options_.evaluation.set_every_steps(2);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("pin"), IsEmpty());
}

TEST_F(TrainerTest, TrainsOnWhileItEvaluates) {
  SetUpJob(0, 2, 2, 9);
  has_test_set_ = true;
  options_.evaluation.set_every_steps(5);
  // The evaluation of version 5 ends only when training has reached version 8.
  absl::Notification at_eight;
  evaluation_model_.on_evaluate = [&](int64_t) {
    at_eight.WaitForNotification();
  };
  model_.on_compute = [&](int64_t version) {
    if (version == 8) at_eight.Notify();
  };
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("report"), ElementsAre("report 5", "report 9"));
}

TEST_F(TrainerTest, FailedEvaluationEndsTheJob) {
  SetUpJob(0, 2, 2, 9);
  has_test_set_ = true;
  options_.evaluation.set_every_steps(2);
  cluster_->errors["read 2"] = absl::NotFoundError("version 2 is not held");
  EXPECT_THAT(Run().message(), HasSubstr("version 2 is not held"));
  EXPECT_EQ(cluster_->calls().back(), "leave: version 2 is not held");
}

TEST_F(TrainerTest, WritesTheResult) {
  SetUpJob(0, 2, 2, 5);
  has_test_set_ = true;
  options_.result_file = absl::StrCat(::testing::TempDir(), "/result.json");
  options_.result.set_job("example");
  cluster_->status.set_global_step(5);
  cluster_->status.set_examples(80);
  cluster_->status.set_training_seconds(2);
  EXPECT_EQ(Run(), absl::OkStatus());
  proto::TrainingResult result;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  ReadFile(options_.result_file), &result)
                  .ok());
  EXPECT_EQ(result.job(), "example");
  EXPECT_EQ(result.global_step(), 5);
  EXPECT_EQ(result.examples_per_second(), 40);
  EXPECT_EQ(result.test_loss(), 5);
  EXPECT_EQ(result.test_accuracy(), 0.1);
  EXPECT_EQ(result.digest(),
            DigestOfVariables(model_.Variables(), {{5, 5}, {5, 5, 5}}));
}

class ReporterTest : public TrainerTest {
 protected:
  // Sets up a worker, and the reporter.
  void SetUpReporter(uint32_t replica, uint32_t reporter) {
    SetUpJob(replica, 2, 2, 5);
    options_.task = {kWorkerJob, replica};
    options_.result_file = absl::StrCat(
        ::testing::TempDir(), "/",
        ::testing::UnitTest::GetInstance()->current_test_info()->name(),
        ".json");
    cluster_->reporter.emplace().set_job(kWorkerJob);
    cluster_->reporter->set_index(reporter);
    cluster_->status.set_global_step(5);
  }
  proto::TrainingResult Result() {
    proto::TrainingResult result;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(
                    ReadFile(options_.result_file), &result)
                    .ok());
    return result;
  }
};

TEST_F(ReporterTest, AnotherWorkerReportsWhereTheChiefIsLost) {
  SetUpReporter(1, 1);
  read_test_set_ = [this] { return &test_set_; };
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("report"), ElementsAre("report 5"));
  EXPECT_EQ(Result().test_loss(), 5);
  EXPECT_EQ(Result().digest(),
            DigestOfVariables(model_.Variables(), {{5, 5}, {5, 5, 5}}));
}

TEST_F(ReporterTest, ATestSetThatItHasNotIsNoReasonForNoResult) {
  SetUpReporter(1, 1);
  read_test_set_ = [] { return absl::NotFoundError("t10k-images"); };
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("report"), IsEmpty());
  EXPECT_EQ(Result().global_step(), 5);
}

TEST_F(ReporterTest, AChiefThatDoesNotReportLeaves) {
  SetUpReporter(0, 1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("pin"), IsEmpty());
  EXPECT_EQ(ReadFile(options_.result_file), "");
}

TEST_F(TrainerTest, ResultFileThatCannotBeWrittenIsAnError) {
  SetUpJob(0, 2, 2, 1);
  options_.result_file = "/no/such/folder/result.json";
  EXPECT_THAT(Run().message(), HasSubstr("/no/such/folder/result.json"));
}

TEST_F(TrainerTest, EveryWaitHasTheJobsDeadline) {
  SetUpJob(0, 2, 2, 1);
  options_.start_timeout = absl::Seconds(1000);
  options_.step_timeout = absl::Seconds(100);
  options_.recovery_timeout = absl::Seconds(10);
  options_.margin = absl::Seconds(1);
  options_.leave_timeout = absl::Seconds(3);
  EXPECT_EQ(Run(), absl::OkStatus());
  const std::map<std::string, int> kSeconds = {
      {"declare", 1011},      {"await pull 0", 111}, {"await push", 111},
      {"await verdict", 111}, {"await pull 1", 111}, {"pin", 111},
      {"read", 111},          {"status", 111},       {"leave", 3}};
  for (const auto& [call, seconds] : kSeconds) {
    EXPECT_EQ(cluster_->deadline_of(call) - clock_.now, absl::Seconds(seconds))
        << call;
  }
  // There is no limit for the disk: the coordinator judges it.
  for (const char* call : {"await variables", "await done"}) {
    EXPECT_EQ(cluster_->deadline_of(call), absl::InfiniteFuture()) << call;
  }
}

TEST_F(TrainerTest, LeavesWithWhatWentWrong) {
  const std::string no_result = "the job is done, but has no result: ";
  const struct {
    std::string call;
    std::string error;
    std::string before = "";
  } kCases[] = {{"declare", "another declaration stands"},
                {"await variables", "/job:ps/task:1 has not joined"},
                {"await pull 0", "ps is away"},
                {"add 0", "wrong length"},
                {"await push #1", "no answer from /job:ps/task:1"},
                {"await verdict #1", "/job:worker/task:1 is lost"},
                {"await pull 1", "ps is away"},
                {"await done", "the disk is full"},
                {"pin 1", "not held", no_result},
                {"read 1", "not held", no_result},
                {"status", "coordinator is away", no_result}};
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.call);
    options_.declaration.Clear();
    SetUpJob(0, 2, 2, 1);
    cluster_->errors[test.call] = absl::DeadlineExceededError(test.error);
    const std::string message = absl::StrCat(test.before, test.error);
    EXPECT_EQ(Run(), absl::DeadlineExceededError(message));
    EXPECT_EQ(cluster_->calls().back(), absl::StrCat("leave: ", message));
  }
}

// A ps is unreachable, or the worker is fenced.
TEST_F(TrainerTest, StepsDownWhereTheJobMayGoOn) {
  for (const absl::Status& error :
       {absl::UnavailableError("ps is away"), absl::AbortedError("fenced")}) {
    for (const char* call :
         {"declare", "await variables", "await pull 0", "add 0",
          "await push #1", "await verdict #1", "await pull 1", "await done"}) {
      SCOPED_TRACE(call);
      options_.declaration.Clear();
      SetUpJob(0, 2, 2, 1);
      cluster_->errors[call] = error;
      EXPECT_EQ(Run(), error);
      EXPECT_EQ(cluster_->calls().back(), "leave");
      EXPECT_TRUE(IsWorkersOwn(error, cluster_->state()));
    }
  }
}

// Whatever it was waiting for, or doing, when it learned of it.
TEST_F(TrainerTest, OfAJobThatIsStoppedItLeavesInOrderWithoutAResult) {
  for (const char* call : {"declare", "await variables", "await pull 0",
                           "await verdict #1", "await done"}) {
    SCOPED_TRACE(call);
    options_.declaration.Clear();
    SetUpJob(0, 2, 2, 1);
    cluster_->phase = proto::STOPPED;
    cluster_->errors[call] = absl::AbortedError("the job was stopped");
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_EQ(cluster_->calls().back(), "leave");
    EXPECT_THAT(cluster_->calls("pin 1"), IsEmpty());
  }
}

TEST_F(TrainerTest, OfAJobThatIsStoppingItWaitsForTheEnd) {
  SetUpJob(0, 2, 2, 1);
  cluster_->phase = proto::STOPPING;
  cluster_->errors["await verdict #1"] =
      absl::DeadlineExceededError("no verdict");
  cluster_->errors["await done"] = absl::AbortedError("the job was stopped");
  EXPECT_TRUE(absl::IsAborted(Run()));
  EXPECT_THAT(cluster_->calls("await done").size(), 1);
}

// A checkpoint of step 2 is on disk. Whenever the worker learns of the
// roll-back, the steps from 2 on are made again, with the same examples.
TEST_F(TrainerTest, GoesOnFromTheRestoredStep) {
  for (const char* call :
       {"push #4 of step 3", "add 1", "await push #4",
        "contribute #4: step 3, seat 1, 8 examples", "pull 4",
        "await verdict #4", "await pull 4", "await done"}) {
    SCOPED_TRACE(call);
    options_.declaration.Clear();
    SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/5);
    cluster_->roll_backs[call].version = 2;
    // Such a line is first written in step 0.
    const bool early = call == "add 1";
    model_.first_inputs.clear();
    EXPECT_EQ(Run(), absl::OkStatus());
    const std::vector<float> batches = model_.first_inputs;
    ASSERT_GE(batches.size(), 3);
    EXPECT_THAT(std::vector<float>(batches.end() - 3, batches.end()),
                ElementsAre(FirstInput(2, 1, 2), FirstInput(3, 1, 2),
                            FirstInput(4, 1, 2)));
    EXPECT_EQ(batches.size(), (early ? 1 : call == "await done" ? 5 : 4) + 3);
    EXPECT_THAT(cluster_->calls("await variables"),
                ElementsAre("await variables", "await variables"));
    EXPECT_THAT(cluster_->calls("await done").size(),
                call == "await done" ? 2 : 1);
    EXPECT_EQ(cluster_->calls().back(), "leave");
  }
}

TEST_F(TrainerTest, MayBeRolledBackAgainAndAgain) {
  SetUpJob(/*replica=*/0, /*n=*/2, /*m=*/2, /*steps=*/3);
  cluster_->roll_backs["await verdict #2"].version = 0;
  cluster_->roll_backs["await pull 0"].version = 0;
  cluster_->roll_backs["declare"].version = 1;
  cluster_->roll_backs["await variables"].version = 1;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("declare").size(), 5);
  EXPECT_EQ(cluster_->calls().back(), "leave");
}

TEST_F(TrainerTest, ErrorOfTheJobsOwnEndsARolledBackJobToo) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/3);
  cluster_->roll_backs["await verdict #2"].version = 1;
  model_.on_compute = [&, computed = 0](int64_t) mutable {
    if (++computed == 3) model_.at.error = 1;
  };
  EXPECT_THAT(Run().message(), HasSubstr("the model broke"));
  EXPECT_EQ(cluster_->calls().back(), "leave: the model broke");
}

// Seen from step 4, version 3 is evaluated while a roll-back to 2 comes.
TEST_F(TrainerTest, DropsTheEvaluationOfAStepThatIsRolledBack) {
  for (const char* call : {"await verdict #5", "read 3", "report 3"}) {
    SCOPED_TRACE(call);
    options_.declaration.Clear();
    SetUpJob(/*replica=*/0, /*n=*/2, /*m=*/2, /*steps=*/8);
    has_test_set_ = true;
    options_.evaluation.set_every_steps(3);
    cluster_->roll_backs[call].version = 2;
    EXPECT_EQ(Run(), absl::OkStatus());
    const std::vector<std::string> calls = cluster_->calls();
    const auto restored =
        std::find(std::find(calls.begin(), calls.end(), "await variables") + 1,
                  calls.end(), "await variables");
    ASSERT_NE(restored, calls.end());
    std::vector<std::string> reports;
    std::copy_if(restored, calls.end(), std::back_inserter(reports),
                 [](const std::string& line) {
                   return absl::StartsWith(line, "report");
                 });
    EXPECT_THAT(reports, ElementsAre("report 3", "report 6", "report 8"));
  }
}

TEST_F(TrainerTest, GivesUpTheEvaluationThatARollBackFinds) {
  SetUpJob(/*replica=*/0, /*n=*/2, /*m=*/2, /*steps=*/8);
  has_test_set_ = true;
  options_.evaluation.set_every_steps(3);
  cluster_->roll_backs["await verdict #5"].version = 4;
  absl::Notification begun;
  evaluation_model_.on_evaluate = [&](int64_t) {
    if (begun.HasBeenNotified()) return;
    begun.Notify();
    cluster_->AwaitRollBack();
  };
  model_.on_compute = [&](int64_t version) {
    if (version == 4) begun.WaitForNotification();
  };
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("pin"), ElementsAre("pin 3", "pin 6", "pin 8"));
}

// If an evaluation is due at the restored version, it is made once more;
// earlier ones are not.
TEST_F(TrainerTest, ComesLate) {
  for (const auto& [first, due] :
       {std::pair(3,
                  std::vector<std::string>{"report 3", "report 6", "report 7"}),
        std::pair(4, std::vector<std::string>{"report 6", "report 7"})}) {
    options_.declaration.Clear();
    SetUpJob(/*replica=*/0, /*n=*/2, /*m=*/2, /*steps=*/7);
    has_test_set_ = true;
    options_.evaluation.set_every_steps(3);
    cluster_->first_version = first;
    model_.first_inputs.clear();
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_THAT(cluster_->calls("report"), ElementsAreArray(due));
    EXPECT_EQ(model_.first_inputs.size(), 7 - first);
    EXPECT_EQ(model_.first_inputs[0], FirstInput(first, 0, 2));
  }
}

TEST_F(TrainerTest, ComesWhenThereIsNothingLeftButTheResult) {
  SetUpJob(/*replica=*/0, /*n=*/2, /*m=*/2, /*steps=*/7);
  cluster_->first_version = 7;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls(),
              ElementsAre("declare", "await variables", "pull 0",
                          "await pull 0", "await done", "status", "pin 7",
                          "read 7", "status", "leave"));
}

TEST_F(TrainerTest, ComesWhenTheJobWasFinishedBefore) {
  for (const uint32_t replica : {0, 1}) {
    options_.declaration.Clear();
    SetUpJob(replica, /*n=*/2, /*m=*/2, /*steps=*/7);
    options_.result_file = absl::StrCat(::testing::TempDir(), "/none.json");
    cluster_->phase = proto::DONE;
    cluster_->errors["await variables"] = absl::FailedPreconditionError(
        "the job is done, its variables are gone");
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_THAT(cluster_->calls("pin"), IsEmpty());
    EXPECT_EQ(cluster_->calls().back(), "leave");
    EXPECT_EQ(ReadFile(options_.result_file), "");
  }
}

// A ps that dies after the job is done does not roll it back.
TEST_F(TrainerTest, SaysThatThereIsNoResultWhenAPsDiesAtTheEnd) {
  SetUpJob(/*replica=*/0, /*n=*/2, /*m=*/2, /*steps=*/1);
  cluster_->phase = proto::DONE;
  cluster_->roll_backs["read 1"].version = 0;
  const absl::Status status = Run();
  EXPECT_THAT(status.message(),
              HasSubstr("the job is done, but has no result: a ps"));
  EXPECT_FALSE(IsWorkersOwn(status, cluster_->state()));
  EXPECT_THAT(cluster_->calls("declare").size(), 1);
}

// Everything lost with it is on disk.
TEST_F(TrainerTest, IsDoneWithoutAResultWhenTheEndIsOnDisk) {
  for (const std::string call : {"pin 1", "read 1"}) {
    SCOPED_TRACE(call);
    options_.declaration.Clear();
    SetUpJob(/*replica=*/0, /*n=*/2, /*m=*/2, /*steps=*/1);
    cluster_->phase = proto::DONE;
    cluster_->durable = GlobalStep(1);
    cluster_->errors[call] = absl::DeadlineExceededError("a ps is away");
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_EQ(cluster_->calls().back(), "leave");
    EXPECT_EQ(ReadFile(options_.result_file), "");
    // A ps that will not be restored is not waited for as in training.
    EXPECT_EQ(cluster_->deadline_of("pin") - clock_.now, options_.margin);
    if (call == "pin 1") continue;
    EXPECT_EQ(cluster_->deadline_of("read") - clock_.now,
              options_.recovery_timeout + options_.margin);
  }
}

// The response that reported the end may not have reported the last durable
// step.
TEST_F(TrainerTest, AsksWhetherTheEndIsOnDisk) {
  SetUpJob(/*replica=*/0, /*n=*/2, /*m=*/2, /*steps=*/1);
  cluster_->phase = proto::DONE;
  cluster_->status.set_durable_step(1);
  cluster_->errors["pin 1"] = absl::DeadlineExceededError("a ps is away");
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(ReadFile(options_.result_file), "");
  EXPECT_EQ(cluster_->deadline_of("pin") - clock_.now, options_.margin);
}

TEST_F(TrainerTest, LeavesWhenTheModelFails) {
  SetUpJob(1, 2, 2, 3);
  model_.at.error = 1;
  EXPECT_THAT(Run().message(), HasSubstr("the model broke"));
  EXPECT_EQ(cluster_->calls().back(), "leave: the model broke");
}

TEST_F(TrainerTest, LeavesWhenTheDataFail) {
  train_set_.error = absl::DataLossError("images.idx: truncated at byte 77");
  SetUpJob(1, 2, 2, 3);
  EXPECT_EQ(Run().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(cluster_->calls().back(),
              HasSubstr("images.idx: truncated at byte 77"));
}

TEST_F(TrainerTest, EndsWithTheReasonForWhichTheJobFailed) {
  SetUpJob(1, 2, 2, 3);
  cluster_->verdicts[{1, 1}] = proto::ABORTED;
  cluster_->phase = proto::FAILED;
  cluster_->reason = "/job:ps/task:1 is lost";
  EXPECT_EQ(Run(), absl::AbortedError("/job:ps/task:1 is lost"));
}

}  // namespace
}  // namespace holdfast
