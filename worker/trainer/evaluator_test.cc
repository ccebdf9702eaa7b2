// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/evaluator.h"

#include "absl/synchronization/notification.h"
#include "client/testing/fake_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/testing/fake_model.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kNoDeadline = absl::InfiniteFuture();

proto::Evaluation InBatchesOf(uint32_t size) {
  proto::Evaluation config;
  config.set_batch_size(size);
  return config;
}

TEST(EvaluateOnTest, IsTheMeanOverAllExamples) {
  // 10 examples with labels 0 1 2 0 1 2 0 1 2 0, in batches of 4: 4, 4 and 2.
  const FakeExamples examples(10, 3);
  FakeModel model;
  const Parameters parameters = {GlobalStep(2), {{2, 2}, {2, 2, 2}}};
  const auto scores =
      EvaluateOn(examples, InBatchesOf(4), parameters, {}, &model, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  const proto::EvaluationResult& result = scores->result;
  EXPECT_EQ(result.step(), 2);
  EXPECT_EQ(result.examples(), 10);
  EXPECT_EQ(result.loss(), 2);
  EXPECT_EQ(result.accuracy(), 0.3);
  EXPECT_FALSE(result.has_mean_absolute_error());
  EXPECT_EQ(DescribeEvaluation(result), "step 2: test loss 2, accuracy 0.3");
}

TEST(EvaluateOnTest, TellsTheErrorOfANumber) {
  // From version 2 the labels 0 1 2 0 1 2 0 1 2 0 are 4 x 2 + 3 x 1 away.
  const FakeExamples examples(10, 3);
  FakeModel model;
  model.predicts_number = true;
  const Parameters parameters = {GlobalStep(2), {{2, 2}, {2, 2, 2}}};
  const auto scores =
      EvaluateOn(examples, InBatchesOf(4), parameters, {}, &model, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  const proto::EvaluationResult& result = scores->result;
  EXPECT_FALSE(result.has_accuracy());
  EXPECT_EQ(result.mean_absolute_error(), 1.1);
  EXPECT_EQ(DescribeEvaluation(result),
            "step 2: test loss 2, mean absolute error 1.1");
}

// The outputs are 0, 1, ... 9 of the labels 0 1 0 1 ...: of the 25 pairs of a 1
// and a 0, 1 + 2 + 3 + 4 + 5 are in the right order. All but the first are
// above 0, for class 1.
TEST(EvaluateOnTest, MakesTheScoresThatAreAskedFor) {
  const FakeExamples examples(10, 2);
  FakeModel model;
  const Parameters parameters = {GlobalStep(2), {{2, 2}, {2, 2, 2}}};
  proto::Evaluation config = InBatchesOf(4);
  config.set_auc(true);
  config.set_confusion_matrix(true);
  const auto scores =
      EvaluateOn(examples, config, parameters, {}, &model, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_EQ(scores->result.auc(), 15.0 / 25);
  EXPECT_EQ(DescribeEvaluation(scores->result),
            "step 2: test loss 2, accuracy 0, AUC 0.6");
  ASSERT_EQ(scores->by_class.size(), 2);
  EXPECT_THAT(scores->by_class[0].predicted(), ElementsAre(1, 4));
  EXPECT_THAT(scores->by_class[1].predicted(), ElementsAre(0, 5));
  // No scores were asked for.
  EXPECT_EQ(model.outputs_told, 3);
  EXPECT_TRUE(EvaluateOn(examples, {}, parameters, {}, &model, nullptr).ok());
  EXPECT_EQ(model.outputs_told, 3);
}

TEST(EvaluateOnTest, EndsWithTheSourcesError) {
  FakeExamples examples(10, 3);
  examples.error = absl::DataLossError("truncated");
  FakeModel model;
  const Parameters parameters = {GlobalStep(2), {{2, 2}, {2, 2, 2}}};
  EXPECT_EQ(
      EvaluateOn(examples, InBatchesOf(4), parameters, {}, &model, nullptr)
          .status()
          .code(),
      absl::StatusCode::kDataLoss);
}

class EvaluatorTest : public ::testing::Test {
 protected:
  EvaluatorTest() : cluster_(Declaration()) {}

  static proto::Declaration Declaration() {
    proto::Declaration declaration;
    for (const proto::Variable& variable : FakeModel().Variables()) {
      *declaration.add_variables() = variable;
    }
    return declaration;
  }

  const FakeExamples examples_ = FakeExamples(10, 3);
  const SteadyClock clock_;
  FakeModel model_;
  FakeCluster cluster_;
};

TEST_F(EvaluatorTest, ReportsThePinnedVersion) {
  Evaluator evaluator(&cluster_, &model_, &examples_, &clock_, {});
  EXPECT_EQ(evaluator.Start(kNoDeadline), absl::OkStatus());
  EXPECT_EQ(evaluator.Finish(kNoDeadline), absl::OkStatus());
  EXPECT_THAT(cluster_.calls(), ElementsAre("pin 0", "read 0", "report 0"));
}

TEST_F(EvaluatorTest, WaitsForTheOneBefore) {
  absl::Notification go_on;
  model_.on_evaluate = [&](int64_t) { go_on.WaitForNotification(); };
  Evaluator evaluator(&cluster_, &model_, &examples_, &clock_, {});
  EXPECT_EQ(evaluator.Start(kNoDeadline), absl::OkStatus());
  EXPECT_EQ(evaluator.Start(absl::InfinitePast()).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(cluster_.calls("pin"), ElementsAre("pin 0"));
  go_on.Notify();
  EXPECT_EQ(evaluator.Start(kNoDeadline), absl::OkStatus());
  EXPECT_EQ(evaluator.Finish(kNoDeadline), absl::OkStatus());
  EXPECT_THAT(cluster_.calls("report"), ElementsAre("report 0", "report 0"));
}

TEST_F(EvaluatorTest, TellsAnErrorOnce) {
  cluster_.errors["report 0"] = absl::UnavailableError("ps is away");
  Evaluator evaluator(&cluster_, &model_, &examples_, &clock_, {});
  EXPECT_EQ(evaluator.Start(kNoDeadline), absl::OkStatus());
  EXPECT_THAT(evaluator.Finish(kNoDeadline).message(), HasSubstr("ps is away"));
  EXPECT_EQ(evaluator.Finish(kNoDeadline), absl::OkStatus());
}

TEST_F(EvaluatorTest, DropsWhatIsUnderWay) {
  cluster_.errors["report 0"] = absl::AbortedError("rolled back");
  absl::Notification begun, go_on;
  model_.on_evaluate = [&](int64_t) {
    if (begun.HasBeenNotified()) return;
    begun.Notify();
    go_on.WaitForNotification();
  };
  Evaluator evaluator(&cluster_, &model_, &examples_, &clock_,
                      {.config = InBatchesOf(1)});
  EXPECT_EQ(evaluator.Start(kNoDeadline), absl::OkStatus());
  begun.WaitForNotification();
  // Released from another thread, while Drop waits.
  Strand releaser("releaser");
  releaser.Post([&] { go_on.Notify(); });
  evaluator.Drop();
  EXPECT_EQ(evaluator.Finish(kNoDeadline), absl::OkStatus());
  // The next evaluation runs to its end.
  EXPECT_EQ(evaluator.Start(kNoDeadline), absl::OkStatus());
  EXPECT_THAT(evaluator.Finish(kNoDeadline).message(),
              HasSubstr("rolled back"));
}

TEST_F(EvaluatorTest, GivesUpWhenDestroyed) {
  absl::Notification begun, go_on;
  model_.on_evaluate = [&](int64_t) {
    if (begun.HasBeenNotified()) return;
    begun.Notify();
    go_on.WaitForNotification();
  };
  auto evaluator =
      std::make_unique<Evaluator>(&cluster_, &model_, &examples_, &clock_,
                                  Evaluator::Options{.config = InBatchesOf(1)});
  EXPECT_EQ(evaluator->Start(kNoDeadline), absl::OkStatus());
  begun.WaitForNotification();
  // Released from another thread, while the destructor waits.
  Strand releaser("releaser");
  releaser.Post([&] { go_on.Notify(); });
  evaluator.reset();
  EXPECT_THAT(cluster_.calls("read"), ElementsAre("read 0"));
}

}  // namespace
}  // namespace holdfast
