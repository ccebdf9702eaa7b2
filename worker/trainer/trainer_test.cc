#include "worker/trainer/trainer.h"

#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "worker/trainer/digest.h"
#include "worker/trainer/trainer_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
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
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("declare", "await variables", "pull 0", "await pull 0",
                  "push #1 of step 0", "add 1", "add 0", "await push #1",
                  "contribute #1: step 0, seat 0, 8 examples", "pull 1",
                  "await verdict #1", "await pull 1", "pin 1", "read 1",
                  "status", "leave"));
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

TEST_F(TrainerTest, EvaluatesEverySoManyStepsAndAtTheEnd) {
  SetUpJob(0, 2, 2, 7);
  has_test_set_ = true;
  options_.evaluate_every_steps = 3;
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
  options_.evaluate_every_steps = 2;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("report"), ElementsAre("report 2", "report 4"));
}

TEST_F(TrainerTest, ChiefThatSkipsVersionsStillEvaluatesWhenDue) {
  SetUpJob(0, 1, 2, 10);
  has_test_set_ = true;
  options_.evaluate_every_steps = 3;
  cluster_->newest[1] = 5;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("pin"),
              ElementsAre("pin 5", "pin 6", "pin 9", "pin 10"));
}

TEST_F(TrainerTest, OtherWorkersDoNotEvaluate) {
  SetUpJob(1, 2, 2, 4);
  has_test_set_ = true;
  options_.evaluate_every_steps = 2;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("pin"), IsEmpty());
}

TEST_F(TrainerTest, TrainsOnWhileItEvaluates) {
  SetUpJob(0, 2, 2, 9);
  has_test_set_ = true;
  options_.evaluate_every_steps = 5;
  // The evaluation of version 5 ends only when training has come to version 8.
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
  options_.evaluate_every_steps = 2;
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

TEST_F(TrainerTest, ResultFileThatCannotBeWrittenIsAnError) {
  SetUpJob(0, 2, 2, 1);
  options_.result_file = "/no/such/folder/result.json";
  EXPECT_THAT(Run().message(), HasSubstr("/no/such/folder/result.json"));
}

TEST_F(TrainerTest, EveryWaitHasTheJobsDeadline) {
  SetUpJob(0, 2, 2, 1);
  options_.start_timeout = absl::Seconds(100);
  options_.step_timeout = absl::Seconds(10);
  options_.margin = absl::Seconds(1);
  options_.leave_timeout = absl::Seconds(3);
  EXPECT_EQ(Run(), absl::OkStatus());
  const std::map<std::string, int> kSeconds = {
      {"declare", 101},      {"await variables", 101},
      {"await pull 0", 11},  {"await push", 11},
      {"await verdict", 11}, {"await pull 1", 11},
      {"pin", 11},           {"read", 11},
      {"status", 11},        {"leave", 3}};
  for (const auto& [call, seconds] : kSeconds) {
    EXPECT_EQ(cluster_->deadline_of(call) - clock_.now, absl::Seconds(seconds))
        << call;
  }
}

TEST_F(TrainerTest, LeavesWithWhatWentWrong) {
  const struct {
    std::string call;
    std::string error;
  } kCases[] = {{"declare", "another declaration stands"},
                {"await variables", "/job:ps/task:1 has not joined"},
                {"await pull 0", "ps is away"},
                {"add 0", "wrong length"},
                {"await push #1", "no answer from /job:ps/task:1"},
                {"await verdict #1", "/job:worker/task:1 is lost"},
                {"await pull 1", "ps is away"},
                {"pin 1", "not held"},
                {"read 1", "not held"},
                {"status", "coordinator is away"}};
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.call);
    options_.declaration.Clear();
    SetUpJob(0, 2, 2, 1);
    cluster_->errors[test.call] = absl::UnavailableError(test.error);
    EXPECT_EQ(Run(), absl::UnavailableError(test.error));
    EXPECT_EQ(cluster_->calls().back(), absl::StrCat("leave: ", test.error));
  }
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
