// SPDX-License-Identifier: Apache-2.0
#include "worker/metrics/worker_metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(WorkerMetricsTest, PhasesStepsAndWaits) {
  proto::WorkerReport report;
  report.mutable_phases()->set_compute(12.5);
  report.mutable_phases()->set_verdict(3);
  report.set_steps(100);
  report.set_skipped_rows(7);
  report.set_waiting_for("verdict");
  report.set_waiting_seconds(0.5);
  Metrics metrics;
  AddWorkerMetrics(report, &metrics);
  const std::string text = metrics.ToText();
  for (const char* line : {
           "\nholdfast_worker_phase_seconds_total{phase=\"compute\"} 12.5\n",
           "\nholdfast_worker_phase_seconds_total{phase=\"verdict\"} 3\n",
           "\nholdfast_worker_phase_seconds_total{phase=\"input\"} 0\n",
           "\nholdfast_worker_steps_total 100\n",
           "\nholdfast_worker_skipped_rows 7\n",
           "\nholdfast_worker_waiting_seconds{waiting_for=\"verdict\"} 0.5\n",
           "\nholdfast_worker_waiting_seconds{waiting_for=\"input\"} 0\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(WorkerMetricsTest, GpusThatTell) {
  Metrics metrics;
  AddGpuMetrics({0, 2, 3}, {GpuUsage{1, 4, 0.25}, std::nullopt, GpuUsage{}},
                &metrics);
  const std::string text = metrics.ToText();
  for (const char* line : {
           "\nholdfast_gpu_memory_used_bytes{gpu=\"0\"} 1\n",
           "\nholdfast_gpu_memory_bytes{gpu=\"0\"} 4\n",
           "\nholdfast_gpu_utilization_ratio{gpu=\"0\"} 0.25\n",
           "\nholdfast_gpu_memory_bytes{gpu=\"3\"} 0\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("gpu=\"2\"")));
}

}  // namespace
}  // namespace holdfast
