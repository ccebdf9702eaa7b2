#include "worker/trainer/trainer.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "worker/trainer/digest.h"
#include "worker/trainer/fake_cluster.h"
#include "worker/trainer/fake_model.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class StoppedClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::Now();
};

std::string ReadFile(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

class TrainerTest : public ::testing::Test {
 protected:
  // A job of `n` = N and `m` = M, seen by its replica `replica`.
  void SetUpJob(uint32_t replica, uint32_t n, uint32_t m, uint64_t steps) {
    proto::Declaration& declaration = options_.declaration;
    for (const proto::Variable& variable : model_.Variables()) {
      *declaration.add_variables() = variable;
    }
    auto* synchronous =
        declaration.mutable_consistency()->mutable_synchronous();
    synchronous->set_replicas_to_aggregate(n);
    synchronous->set_total_num_replicas(m);
    declaration.set_total_steps(steps);
    cluster_ = std::make_unique<FakeCluster>(declaration);

    options_.replica = replica;
    options_.is_chief = replica == 0;
    BatchPipeline::Options batches;
    batches.batch_size = 8;
    batches.seats_per_step = std::max(n, m);
    batches.seats.clear();
    for (uint32_t seat = replica; seat < std::max(n, m); seat += m) {
      batches.seats.push_back(seat);
    }
    auto pipeline = BatchPipeline::Start(&train_set_, batches);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    batches_ = *std::move(pipeline);
  }

  absl::Status Run() {
    Trainer::Parts parts;
    parts.cluster = cluster_.get();
    parts.model = &model_;
    parts.batches = batches_.get();
    parts.clock = &clock_;
    if (has_test_set_) {
      parts.test_set = &test_set_;
      parts.evaluation_model = &evaluation_model_;
    }
    Trainer trainer(parts, options_);
    const absl::Status status = trainer.Run();
    counts_ = trainer.counts();
    return status;
  }

  // The first input value of the batch that belongs to (step, seat).
  float FirstInput(uint64_t step, int64_t seat, int64_t seats_per_step) {
    BatchPipeline::Options options;
    options.batch_size = 8;
    options.seats_per_step = seats_per_step;
    options.seats = {seat};
    auto pipeline = BatchPipeline::Start(&train_set_, options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    auto batch =
        (*pipeline)->Next(GlobalStep(step), seat, absl::InfiniteFuture());
    EXPECT_TRUE(batch.ok()) << batch.status();
    return batch->inputs[0];
  }

  FakeExamples train_set_ = FakeExamples(1000, 10);
  // Labels 0 to 9, each four times: at versions below 10 a tenth is right.
  FakeExamples test_set_ = FakeExamples(40, 10);
  FakeModel model_;
  FakeModel evaluation_model_;
  StoppedClock clock_;
  bool has_test_set_ = false;
  Trainer::Options options_;
  std::unique_ptr<FakeCluster> cluster_;
  std::unique_ptr<BatchPipeline> batches_;
  Trainer::Counts counts_;
};

TEST_F(TrainerTest, WorkerTrainsFromTheFirstStepToTheLast) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("await variables", "pull 0", "await pull 0",
                  // The last layer's gradient leaves first.
                  "push #1 of step 0", "add 1", "add 0", "await push #1",
                  "contribute #1: step 0, seat 1, 8 examples",
                  // The pull is parked before the verdict is there.
                  "pull 1", "await verdict #1", "await pull 1",
                  "push #2 of step 1", "add 1", "add 0", "await push #2",
                  "contribute #2: step 1, seat 1, 8 examples", "pull 2",
                  "await verdict #2", "await pull 2", "leave"));
  EXPECT_EQ(counts_.accepted, 2);
  // Computed on version 1, as FakeModel does.
  EXPECT_THAT(cluster_->pushed(2),
              ElementsAre(Pair(0, std::vector<float>{-1, -1}),
                          Pair(1, std::vector<float>{1, 1, 1})));
  EXPECT_EQ(cluster_->contributions()[1].loss, 1);
}

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

// N = 2 M: the next seat is filled before the verdict on the one before it.
TEST_F(TrainerTest, FillsAllItsSeatsBeforeItWaitsForVerdicts) {
  SetUpJob(/*replica=*/1, /*n=*/4, /*m=*/2, /*steps=*/1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("await variables", "pull 0", "await pull 0",
                  "push #1 of step 0", "add 1", "add 0", "await push #1",
                  "contribute #1: step 0, seat 1, 8 examples",
                  "push #2 of step 0", "add 1", "add 0", "await push #2",
                  "contribute #2: step 0, seat 3, 8 examples", "pull 1",
                  "await verdict #1", "await verdict #2", "await pull 1",
                  "leave"));
}

TEST_F(TrainerTest, TakesTheBatchOfStepAndSeat) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/3);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(model_.first_inputs,
              ElementsAre(FirstInput(0, 1, 2), FirstInput(1, 1, 2),
                          FirstInput(2, 1, 2)));
}

TEST_F(TrainerTest, LateBackupWorkerGoesOnWithTheNewestVersion) {
  SetUpJob(/*replica=*/1, /*n=*/1, /*m=*/2, /*steps=*/6);
  // The contribution to step 0 comes too late: version 4 is there by then. The
  // push for step 4 is told so by a shard already, and offered all the same, to
  // be counted; the next pull finds the end.
  cluster_->verdicts[{0, 1}] = proto::STALE;
  cluster_->newest[1] = 4;
  cluster_->early_verdicts[4] = proto::STALE;
  cluster_->verdicts[{4, 1}] = proto::STALE;
  cluster_->newest[5] = 6;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("await variables", "pull 0", "await pull 0",
                  "push #1 of step 0", "add 1", "add 0", "await push #1",
                  "contribute #1: step 0, seat 1, 8 examples", "pull 1",
                  "await verdict #1", "await pull 1", "push #2 of step 4",
                  "add 1", "add 0", "await push #2",
                  "contribute #2: step 4, seat 1, 8 examples", "pull 5",
                  "await verdict #2", "await pull 5", "leave"));
  EXPECT_EQ(counts_.accepted, 0);
  EXPECT_EQ(counts_.stale, 2);
  EXPECT_THAT(model_.first_inputs,
              ElementsAre(FirstInput(0, 1, 2), FirstInput(4, 1, 2)));
}

TEST_F(TrainerTest, StragglerStopsWhenTheJobIsDone) {
  SetUpJob(1, 1, 2, 6);
  cluster_->errors["await pull 3"] = absl::UnavailableError("ps has gone");
  cluster_->phase = proto::DONE;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(cluster_->calls().back(), "leave");
}

TEST_F(TrainerTest, ContributesNothingWhenTheLossIsNotFinite) {
  SetUpJob(1, 2, 2, 3);
  model_.at.nan_loss = 1;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 8 examples",
                          "contribute #2: step 1, seat 1, 0 examples",
                          "contribute #3: step 2, seat 1, 8 examples"));
  EXPECT_EQ(counts_.not_finite, 1);
  EXPECT_EQ(counts_.accepted, 3);
}

TEST_F(TrainerTest, ContributesNothingWhenAGradientIsNotFinite) {
  SetUpJob(1, 2, 2, 2);
  model_.at.infinite_gradient = 0;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 0 examples",
                          "contribute #2: step 1, seat 1, 8 examples"));
  // That of b had left before that of a was known; it weighs nothing.
  EXPECT_THAT(cluster_->pushed(1),
              ElementsAre(Pair(1, std::vector<float>{0, 0, 0})));
  EXPECT_THAT(cluster_->calls("await push #1"), IsEmpty());
  EXPECT_EQ(counts_.not_finite, 1);
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
      {"await pull 0", 101}, {"await push", 11},
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

TEST_F(TrainerTest, EndsWhenItIsShutOut) {
  const std::map<proto::Verdict, std::string> kCases = {
      {proto::FENCED, "seat 1 was shut out"},
      {proto::ABORTED, "seat 1 was dropped"},
      {proto::VERDICT_UNSPECIFIED, "seat 1 got no verdict"}};
  for (const auto& [verdict, error] : kCases) {
    options_.declaration.Clear();
    SetUpJob(1, 2, 2, 3);
    cluster_->verdicts[{1, 1}] = verdict;
    EXPECT_THAT(Run().message(), HasSubstr(error));
  }
}

TEST_F(TrainerTest, EndsWithTheReasonForWhichTheJobFailed) {
  SetUpJob(1, 2, 2, 3);
  cluster_->verdicts[{1, 1}] = proto::ABORTED;
  cluster_->phase = proto::FAILED;
  cluster_->reason = "/job:ps/task:1 is lost";
  EXPECT_EQ(Run(), absl::AbortedError("/job:ps/task:1 is lost"));
}

TEST_F(TrainerTest, DuplicateSeatIsCounted) {
  SetUpJob(1, 2, 2, 3);
  cluster_->verdicts[{1, 1}] = proto::DUPLICATE;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(counts_.duplicate, 1);
  EXPECT_EQ(counts_.accepted, 2);
}

TEST_F(TrainerTest, CallsTheHookBeforeEachStep) {
  SetUpJob(1, 2, 2, 3);
  std::vector<uint64_t> steps;
  options_.before_step = [&](GlobalStep step) {
    steps.push_back(step.value());
  };
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(steps, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace holdfast
