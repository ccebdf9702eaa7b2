// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/evaluation_metric.h"

#include <cmath>
#include <optional>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

proto::Metric Of(const char* name,
                 proto::Metric::Goal goal = proto::Metric::DEFAULT) {
  proto::Metric metric;
  metric.set_name(name);
  metric.set_goal(goal);
  return metric;
}

TEST(EvaluationMetricTest, LossIsTheDefaultAndLessIsBetter) {
  EXPECT_EQ(NameOf(proto::Metric()), "loss");
  EXPECT_TRUE(IsBetter(proto::Metric(), 1, 2));
  EXPECT_FALSE(IsBetter(proto::Metric(), 2, 2));
  EXPECT_FALSE(IsBetter(proto::Metric(), 1.5, 2, /*min_delta=*/0.5));
  EXPECT_TRUE(IsBetter(proto::Metric(), 1.25, 2, /*min_delta=*/0.5));
}

TEST(EvaluationMetricTest, SharesAreMaximizedUnlessTheGoalSaysOtherwise) {
  for (const char* name : {"accuracy", "top_k_accuracy", "auc"}) {
    EXPECT_TRUE(IsBetter(Of(name), 0.75, 0.5)) << name;
    EXPECT_FALSE(IsBetter(Of(name), 0.75, 0.5, 0.25)) << name;
  }
  EXPECT_FALSE(IsMaximized(Of("mean_squared_error")));
  EXPECT_TRUE(IsMaximized(Of("f1", proto::Metric::MAXIMIZE)));
  EXPECT_FALSE(IsMaximized(Of("auc", proto::Metric::MINIMIZE)));
}

TEST(EvaluationMetricTest, FindsFieldsAndFurtherMetrics) {
  proto::EvaluationResult result;
  result.set_loss(3);
  result.set_accuracy(0.5);
  (*result.mutable_metrics())["f1"] = 0.25;
  EXPECT_EQ(FigureOf(result, proto::Metric()), 3);
  EXPECT_EQ(FigureOf(result, Of("accuracy")), 0.5);
  EXPECT_EQ(FigureOf(result, Of("f1")), 0.25);
  EXPECT_EQ(FigureOf(result, Of("auc")), std::nullopt);
  result.set_loss(std::nan(""));
  EXPECT_EQ(FigureOf(result, proto::Metric()), std::nullopt);
}

}  // namespace
}  // namespace holdfast
