// SPDX-License-Identifier: Apache-2.0

// Figures that workers and evaluators report through the C API, to real ps
// servers over loopback.

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c_api/holdfast.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"
#include "tests/c_api/calls.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

TEST_F(CApiClusterTest, AnyFigureMayBeReported) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const cluster = Ready(Worker(0), Synchronous(5));
  const auto report = [&](const std::vector<holdfast_metric>& metrics) {
    return Call(holdfast_report_metrics, cluster,
                static_cast<const holdfast_evaluation*>(nullptr), uint64_t{0},
                uint64_t{8}, metrics.data(), metrics.size(), int64_t{-1});
  };
  ASSERT_OK(report(
      {{"auc", 0.75}, {"loss", 0.5}, {"mean_squared_error", 4}, {"f1", 0.25}}));
  char* text = nullptr;
  ASSERT_OK(Call(holdfast_get_status, cluster, int64_t{-1}, &text));
  const std::string status = Take(text);
  for (const char* figure :
       {"\"auc\":0.75", "\"loss\":0.5", "\"mean_squared_error\":4",
        "\"metrics\":{\"f1\":0.25}", "\"examples\":\"8\""}) {
    EXPECT_THAT(status, HasSubstr(figure));
  }
  const auto refusal = [&](const std::vector<holdfast_metric>& metrics) {
    const Result result = report(metrics);
    EXPECT_EQ(result.kind, HOLDFAST_INVALID);
    return result.message;
  };
  EXPECT_THAT(refusal({{"auc", 1}}), HasSubstr("\"loss\" is missing"));
  EXPECT_THAT(refusal({{"loss", 1}, {"f", 1}, {"f", 1}}),
              HasSubstr("\"f\" is given twice"));
  EXPECT_THAT(refusal({{"loss", 1}, {nullptr, 1}}), HasSubstr("has no name"));
  holdfast_evaluation evaluation;
  const Result next =
      Call(holdfast_next_evaluation, cluster, int64_t{-1}, &evaluation);
  EXPECT_EQ(next.kind, HOLDFAST_INVALID);
  EXPECT_THAT(next.message, HasSubstr("worker/task:0 is not an evaluator"));
  holdfast_close(cluster);
}

// The cluster spec does not list the evaluator. It ends without an error when
// it has seen that the job is done.
TEST_F(CApiClusterTest, AnEvaluatorIsGivenCheckpointsUntilTheJobIsDone) {
  StartWithCheckpoints(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const evaluator =
      Connect(Options(cluster_->spec(), "evaluator", 0));
  holdfast_place place;
  ASSERT_OK(Call(holdfast_get_place, evaluator, &place));
  EXPECT_STREQ(place.job, "evaluator");
  EXPECT_EQ(place.is_chief, 0);
  EXPECT_EQ(
      Call(holdfast_declare, evaluator, "", nullptr, size_t{0}, int64_t{-1})
          .kind,
      HOLDFAST_INVALID);
  holdfast_evaluation evaluation;
  EXPECT_EQ(
      Call(holdfast_next_evaluation, evaluator, int64_t{0}, &evaluation).kind,
      HOLDFAST_TIMED_OUT);

  const std::string text =
      absl::StrCat(Synchronous(4), " checkpoints { every_steps: 2 }");
  std::thread worker([&] {
    double sum = 0;
    const Options worker = Worker(0);
    const auto options = worker.Get();
    EXPECT_STREQ(
        TrainInC(options.data(), options.size(), text.c_str(), 1, &sum),
        nullptr);
  });
  uint64_t last = 0;
  for (;;) {
    const Result next =
        Call(holdfast_next_evaluation, evaluator, int64_t{-1}, &evaluation);
    EXPECT_EQ(next.kind, HOLDFAST_OK) << next.message;
    if (next.kind != HOLDFAST_OK || evaluation.done) break;
    EXPECT_GT(evaluation.step, last);
    last = evaluation.step;
    holdfast_values* values = nullptr;
    EXPECT_OK(Call(holdfast_load_checkpoint,
                   absl::StrCat(checkpoints_, "/", evaluation.name).c_str(),
                   &values));
    holdfast_variable w;
    EXPECT_OK(Call(holdfast_values_get_variable, values, size_t{0}, &w));
    EXPECT_EQ(w.data[5], 10.f - last);
    holdfast_values_free(values);
    const holdfast_metric metrics[] = {{"loss", 1. / last}, {"f1", 0.5}};
    EXPECT_OK(Call(holdfast_report_metrics, evaluator, &evaluation, uint64_t{0},
                   uint64_t{8}, metrics, size_t{2}, int64_t{-1}));
  }
  EXPECT_EQ(last, 4);
  worker.join();
  holdfast_close(evaluator);
  ExpectDone();
}

}  // namespace
}  // namespace holdfast
