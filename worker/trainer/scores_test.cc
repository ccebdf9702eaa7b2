// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/scores.h"

#include <cmath>
#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Adds the examples in batches of `batch_size`.
absl::Status AddAll(absl::Span<const int32_t> labels,
                    absl::Span<const float> outputs, Score* score,
                    size_t batch_size = 4) {
  const size_t width = outputs.size() / labels.size();
  for (size_t i = 0; i < labels.size(); i += batch_size) {
    Batch batch;
    batch.labels = labels.subspan(i, batch_size);
    const absl::Status status =
        score->Add(batch, outputs.subspan(i * width, batch.size() * width));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

EvaluationScores Told(Score* score) {
  EvaluationScores scores;
  score->Tell(&scores);
  return scores;
}

// Ten examples of four classes, with figures of scikit-learn 1.9.1 below.
constexpr int32_t kLabels[] = {0, 3, 2, 0, 3, 1, 2, 3, 0, 2};
constexpr float kOutputs[] = {2,  1,  0,   -1,    // 0
                              .5, 3,  1,   2,     // 3, second
                              1,  0,  2,   1.5f,  // 2
                              0,  1,  2,   3,     // 0, last
                              -1, -2, .5f, .25f,  // 3, second
                              3,  2,  1,   0,     // 1, second
                              .1, .2, .4f, .3f,   // 2
                              1,  4,  2,   3,     // 3, second
                              2,  0,  1,   -1,    // 0
                              0,  2,  1,   3};    // 2, third

TEST(TopKAccuracyTest, IsScikitLearns) {
  // top_k_accuracy_score(kLabels, kOutputs, k=k).
  for (const auto& [k, expected] : {std::pair(2, 0.8), std::pair(3, 0.9)}) {
    TopKAccuracy score(k, 4);
    ASSERT_EQ(AddAll(kLabels, kOutputs, &score), absl::OkStatus());
    EXPECT_EQ(Told(&score).result.top_k_accuracy(), expected);
  }
}

// Among equals the lower class ranks first: 1 is second, and 2 is third. A NaN
// has no rank, and ranks before nothing.
TEST(TopKAccuracyTest, OrdersEquals) {
  TopKAccuracy score(2, 3);
  ASSERT_EQ(
      AddAll({1, 2, 0, 1}, {5, 5, 5, 5, 5, 5, kNan, 1, 2, kNan, 1, 2}, &score),
      absl::OkStatus());
  EXPECT_EQ(Told(&score).result.top_k_accuracy(), 0.5);
}

TEST(AreaUnderCurveTest, IsScikitLearns) {
  // roc_auc_score of these, with 6 pairs of equals among 36, is
  // 0.7777777777777778: 28 / 36.
  const std::vector<int32_t> labels = {0, 0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 0};
  const std::vector<float> outputs = {-1.5f, .25f, .25f, 2,  .25f, -.5f,
                                      1,     1,    3,    -2, .25f, -.5f};
  for (const size_t batch_size : {1, 5, 12}) {
    AreaUnderCurve score(1, 12);
    ASSERT_EQ(AddAll(labels, outputs, &score, batch_size), absl::OkStatus());
    EXPECT_EQ(Told(&score).result.auc(), 28.0 / 36);
  }
}

// Differences 1, 0.5, 0 / 3, -1, 0.5 for classes 0, 0, 1 / 1, 0, 1: of the nine
// pairs, all three with 3 are in the right order, one with 0, and one and a
// half with 0.5.
TEST(AreaUnderCurveTest, OfTwoOutputsIsThatOfTheirDifference) {
  AreaUnderCurve score(2, 6);
  ASSERT_EQ(AddAll({0, 0, 1, 1, 0, 1},
                   {1, 2, 0, .5f, 3, 3, -1, 2, 2, 1, 0, .5f}, &score),
            absl::OkStatus());
  EXPECT_EQ(Told(&score).result.auc(), 5.5 / 9);
}

TEST(AreaUnderCurveTest, OfAllOrderedAndAllEqual) {
  AreaUnderCurve ordered(1, 4);
  ASSERT_EQ(AddAll({0, 1, 0, 1}, {-2, 1, -1, 2}, &ordered), absl::OkStatus());
  EXPECT_EQ(Told(&ordered).result.auc(), 1);
  AreaUnderCurve reversed(1, 4);
  ASSERT_EQ(AddAll({1, 0, 1, 0}, {-2, 1, -1, 2}, &reversed), absl::OkStatus());
  EXPECT_EQ(Told(&reversed).result.auc(), 0);
  AreaUnderCurve equal(1, 3);
  ASSERT_EQ(AddAll({1, 0, 1}, {3, 3, 3}, &equal), absl::OkStatus());
  EXPECT_EQ(Told(&equal).result.auc(), 0.5);
}

TEST(AreaUnderCurveTest, IsNotToldWhereThereIsNone) {
  AreaUnderCurve one_class(1, 2);
  ASSERT_EQ(AddAll({1, 1}, {1, 2}, &one_class), absl::OkStatus());
  EXPECT_FALSE(Told(&one_class).result.has_auc());
  AreaUnderCurve diverged(1, 2);
  ASSERT_EQ(AddAll({0, 1}, {1, kNan}, &diverged), absl::OkStatus());
  EXPECT_FALSE(Told(&diverged).result.has_auc());
}

TEST(AreaUnderCurveTest, NamesAnExampleOfAThirdClass) {
  AreaUnderCurve score(1, 6);
  EXPECT_THAT(
      AddAll({0, 1, 0, 1, 1, 2}, {1, 2, 3, 4, 5, 6}, &score).message(),
      HasSubstr("evaluation.auc: example 5 of the test set has the label 2"));
}

// The sigmoids are 1/2, 3/4, 1/4 and 1; two examples are of class 1.
TEST(CalibrationTest, IsPredictedOverFound) {
  const float log3 = std::log(3.0f);
  Calibration score;
  ASSERT_EQ(AddAll({0, 1, 0, 1}, {0, log3, -log3, 1000}, &score, 3),
            absl::OkStatus());
  EXPECT_NEAR(Told(&score).result.calibration(), 2.5 / 2, 1e-7);
}

TEST(CalibrationTest, IsNotToldWhereThereIsNone) {
  Calibration one_class;
  ASSERT_EQ(AddAll({0, 0}, {1, 2}, &one_class), absl::OkStatus());
  EXPECT_FALSE(Told(&one_class).result.has_calibration());
  Calibration diverged;
  ASSERT_EQ(AddAll({0, 1}, {1, kNan}, &diverged), absl::OkStatus());
  EXPECT_FALSE(Told(&diverged).result.has_calibration());
  Calibration third;
  EXPECT_THAT(AddAll({0, 1, 2}, {1, 2, 3}, &third).message(),
              HasSubstr("evaluation.calibration: example 2 of the test set has "
                        "the label 2"));
}

// confusion_matrix(kLabels, argmax(kOutputs)) and
// precision_recall_fscore_support of the same.
TEST(ConfusionMatrixTest, IsScikitLearns) {
  ConfusionMatrix score(4);
  ASSERT_EQ(AddAll(kLabels, kOutputs, &score), absl::OkStatus());
  const auto by_class = Told(&score).by_class;
  ASSERT_EQ(by_class.size(), 4);
  EXPECT_THAT(by_class[0].predicted(), ElementsAre(2, 0, 0, 1));
  EXPECT_THAT(by_class[1].predicted(), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(by_class[2].predicted(), ElementsAre(0, 0, 2, 1));
  EXPECT_THAT(by_class[3].predicted(), ElementsAre(0, 2, 1, 0));
  EXPECT_EQ(by_class[0].precision(), 2.0 / 3);
  EXPECT_EQ(by_class[0].recall(), 2.0 / 3);
  EXPECT_EQ(by_class[1].precision(), 0);
  EXPECT_EQ(by_class[1].recall(), 0);
  EXPECT_EQ(by_class[2].precision(), 2.0 / 3);
  EXPECT_EQ(by_class[2].recall(), 2.0 / 3);
  EXPECT_EQ(by_class[3].precision(), 0);
  EXPECT_EQ(by_class[3].recall(), 0);
}

// A single output above 0 predicts class 1. Class 0 has no example, and is
// predicted once; in the other matrix class 1 has neither.
TEST(ConfusionMatrixTest, OfOneOutput) {
  ConfusionMatrix score(1);
  ASSERT_EQ(AddAll({1, 1, 1}, {.5f, 0, 2}, &score), absl::OkStatus());
  auto by_class = Told(&score).by_class;
  ASSERT_EQ(by_class.size(), 2);
  EXPECT_THAT(by_class[0].predicted(), ElementsAre(0, 0));
  EXPECT_THAT(by_class[1].predicted(), ElementsAre(1, 2));
  EXPECT_EQ(by_class[0].precision(), 0);
  EXPECT_FALSE(by_class[0].has_recall());
  EXPECT_EQ(by_class[1].precision(), 1);
  EXPECT_EQ(by_class[1].recall(), 2.0 / 3);
  ConfusionMatrix none(1);
  ASSERT_EQ(AddAll({0}, {-1}, &none), absl::OkStatus());
  by_class = Told(&none).by_class;
  EXPECT_FALSE(by_class[1].has_precision() || by_class[1].has_recall());
}

proto::Evaluation All() {
  proto::Evaluation config;
  config.set_top_k(2);
  config.set_auc(true);
  config.set_confusion_matrix(true);
  return config;
}

TEST(MakeScoresTest, MakesWhatIsAskedFor) {
  EXPECT_THAT(MakeScores({}, {4, true}, 10), IsEmpty());
  EXPECT_EQ(MakeScores(All(), {4, true}, 10).size(), 3);
  proto::Evaluation calibration;
  calibration.set_calibration(true);
  EXPECT_EQ(MakeScores(calibration, {1, true}, 10).size(), 1);
}

TEST(CheckScoresTest, NamesTheFieldThatDoesNotFit) {
  ExampleSpec labels;
  labels.shape = {2};
  labels.num_classes = 3;
  ExampleSpec targets;
  targets.shape = {2};
  targets.num_targets = 1;
  EXPECT_EQ(CheckScores({}, {}, targets), absl::OkStatus());
  proto::Evaluation top_k, auc, matrix, calibration;
  top_k.set_top_k(3);
  auc.set_auc(true);
  matrix.set_confusion_matrix(true);
  calibration.set_calibration(true);
  EXPECT_EQ(CheckScores(calibration, {1, true}, labels), absl::OkStatus());
  EXPECT_THAT(CheckScores(calibration, {2, true}, labels).message(),
              HasSubstr("evaluation.calibration: the model has 2 outputs"));
  EXPECT_THAT(CheckScores(calibration, {1, false}, labels).message(),
              HasSubstr("its loss is not sigmoid_cross_entropy"));
  EXPECT_EQ(CheckScores(top_k, {4, true}, labels), absl::OkStatus());
  EXPECT_THAT(CheckScores(top_k, {3, true}, labels).message(),
              HasSubstr("evaluation.top_k: 3 of the model's 3 outputs"));
  EXPECT_EQ(CheckScores(auc, {2, true}, labels), absl::OkStatus());
  EXPECT_EQ(CheckScores(auc, {1, false}, labels), absl::OkStatus());
  EXPECT_THAT(CheckScores(auc, {3, true}, labels).message(),
              HasSubstr("evaluation.auc: the model has 3 outputs"));
  EXPECT_EQ(CheckScores(matrix, {100, true}, labels), absl::OkStatus());
  EXPECT_THAT(
      CheckScores(matrix, {101, true}, labels).message(),
      HasSubstr("evaluation.confusion_matrix: the model tells 101 "
                "classes apart; the matrix is reported for at most 100"));
  EXPECT_THAT(CheckScores(matrix, {1, false}, labels).message(),
              HasSubstr("predicts a number"));
  for (const proto::Evaluation& config : {top_k, auc, matrix, calibration}) {
    EXPECT_THAT(CheckScores(config, {1, false}, targets).message(),
                HasSubstr("the data have targets"));
    EXPECT_THAT(CheckScores(config, {}, labels).message(),
                HasSubstr("the model returns no outputs"));
  }
}

}  // namespace
}  // namespace holdfast
