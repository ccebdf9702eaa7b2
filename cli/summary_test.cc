// SPDX-License-Identifier: Apache-2.0
#include "cli/summary.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(SummaryOfTest, TellsTheResult) {
  const auto summary = SummaryOf(
      R"({"job": "example", "global_step": 3000, "wall_seconds": 12,
          "steps_per_second": 250, "examples_per_second": 50000,
          "train_loss": 0.43214, "test_loss": 0.45, "test_accuracy": 0.84,
          "digest": "0123"})");
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(
      *summary,
      "example: done\n"
      "  steps          3000 in 12.0 s (250.0 steps/s, 50000 examples/s)\n"
      "  train loss     0.4321\n"
      "  test loss      0.4500\n"
      "  test accuracy  0.8400\n"
      "  digest         0123\n");
}

TEST(SummaryOfTest, TellsOfAnAsynchronousJobWhatEachWorkerGave) {
  const auto summary = SummaryOf(
      R"({"job": "example", "global_step": 3000, "wall_seconds": 12,
          "steps_per_second": 250, "examples_per_second": 50000,
          "train_loss": 0.5, "test_mean_absolute_error": 0.25,
          "pushes": {"accepted": 3000, "not_finite": 4},
          "staleness": {"mean": 1.016, "max": 7, "counts": []},
          "by_worker": [
            {"task": "/job:chief/task:0", "pushes": 2000, "examples": 4e5},
            {"task": "/job:worker/task:1", "pushes": 1000, "examples": 2e5,
             "input_wait": 0.126}],
          "recoveries": 2, "digest": "0123"})");
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(
      *summary,
      "example: done\n"
      "  steps          3000 in 12.0 s (250.0 steps/s, 50000 examples/s)\n"
      "  train loss     0.5000\n"
      "  mean abs error 0.2500\n"
      "  not finite     4 pushes, which changed nothing\n"
      "  staleness      mean 1.02, at most 7\n"
      "  chief:0        2000 pushes, 400000 examples\n"
      "  worker:1       1000 pushes, 200000 examples, 13% of its time waiting "
      "for input\n"
      "  resumed        2 times\n"
      "  digest         0123\n");
}

TEST(SummaryOfTest, LeavesOutTheTestOfAJobWithoutOne) {
  const auto summary = SummaryOf(
      R"({"job": "example", "global_step": 3, "wall_seconds": 1,
          "steps_per_second": 3, "examples_per_second": 60,
          "train_loss": 0.5, "digest": "0123"})");
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(*summary,
            "example: done\n"
            "  steps          3 in 1.0 s (3.0 steps/s, 60 examples/s)\n"
            "  train loss     0.5000\n"
            "  digest         0123\n");
}

TEST(SummaryOfTest, RefusesWhatIsNotAResult) {
  for (const char* json : {"", "{", "[1]", "3"}) {
    EXPECT_EQ(SummaryOf(json).status().code(),
              absl::StatusCode::kInvalidArgument)
        << json;
  }
}

}  // namespace
}  // namespace holdfast
