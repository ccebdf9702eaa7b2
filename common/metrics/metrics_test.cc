// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(MetricsTest, Text) {
  Metrics metrics;
  metrics.Counter("holdfast_pushes_total", "Pushes.", 3,
                  {{"verdict", "stale"}});
  metrics.Gauge("holdfast_step", "The step.", 12.5);
  metrics.Counter("holdfast_pushes_total", "Pushes.", 4,
                  {{"verdict", "a \"quoted\" one"}});
  metrics.Summary("holdfast_rpc_seconds", "Calls.", 7, 1.5);
  EXPECT_EQ(metrics.ToText(),
            "# HELP holdfast_pushes_total Pushes.\n"
            "# TYPE holdfast_pushes_total counter\n"
            "holdfast_pushes_total{verdict=\"stale\"} 3\n"
            "holdfast_pushes_total{verdict=\"a \\\"quoted\\\" one\"} 4\n"
            "# HELP holdfast_step The step.\n"
            "# TYPE holdfast_step gauge\n"
            "holdfast_step 12.5\n"
            "# HELP holdfast_rpc_seconds Calls.\n"
            "# TYPE holdfast_rpc_seconds summary\n"
            "holdfast_rpc_seconds_count 7\n"
            "holdfast_rpc_seconds_sum 1.5\n");
  EXPECT_EQ(metrics.num_series(), 2 + 1 + 2);
}

// Two below 0.1 s, one more below 1 s, and one above.
TEST(MetricsTest, Histogram) {
  Metrics metrics;
  metrics.Histogram("holdfast_step_seconds", "Steps.",
                    {{0.125, 1}, {2, 3, 4}, 10}, {{"phase", "commit"}});
  EXPECT_EQ(metrics.ToText(),
            "# HELP holdfast_step_seconds Steps.\n"
            "# TYPE holdfast_step_seconds histogram\n"
            "holdfast_step_seconds_count{phase=\"commit\"} 4\n"
            "holdfast_step_seconds_sum{phase=\"commit\"} 10\n"
            "holdfast_step_seconds_bucket{phase=\"commit\",le=\"0.125\"} 2\n"
            "holdfast_step_seconds_bucket{phase=\"commit\",le=\"1\"} 3\n"
            "holdfast_step_seconds_bucket{phase=\"commit\",le=\"+Inf\"} 4\n");
  EXPECT_EQ(metrics.num_series(), 5);
}

TEST(MetricsTest, AHistogramOfNothingIsWhole) {
  Metrics metrics;
  metrics.Histogram("holdfast_step_seconds", "Steps.", {});
  EXPECT_EQ(metrics.ToText(),
            "# HELP holdfast_step_seconds Steps.\n"
            "# TYPE holdfast_step_seconds histogram\n"
            "holdfast_step_seconds_count 0\n"
            "holdfast_step_seconds_sum 0\n"
            "holdfast_step_seconds_bucket{le=\"+Inf\"} 0\n");
}

TEST(MetricsTest, ThinsToSomeOfTheBounds) {
  const Metrics::Distribution all = {
      {1, 2, 3, 4, 5, 6}, {1, 3, 6, 10, 15, 21, 28}, 99};
  const Metrics::Distribution some = Thin(all, 3);
  EXPECT_EQ(some.bounds, (std::vector<double>{2, 4, 6}));
  EXPECT_EQ(some.counts, (std::vector<uint64_t>{3, 10, 21, 28}));
  EXPECT_EQ(some.sum, 99);
  EXPECT_EQ(Thin(all, 6).bounds, all.bounds);
}

}  // namespace
}  // namespace holdfast
