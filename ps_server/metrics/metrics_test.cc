// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "ps_server/metrics/job_metrics.h"
#include "ps_server/metrics/neighbor_metrics.h"
#include "ps_server/metrics/ps_metrics.h"
#include "ps_server/metrics/rpc_metrics.h"
#include "ps_server/metrics/shard_metrics.h"
#include "ps_server/metrics/testing/full_figures.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string JobText(const proto::GetStatusResponse& status) {
  Metrics metrics;
  AddJobMetrics(status, &metrics);
  return metrics.ToText();
}

TEST(JobMetricsTest, TellsWhatTheStatusTells) {
  const std::string text = JobText(FullStatus(/*asynchronous=*/false, 2, 2));
  for (const char* line : {
           "\nholdfast_job_state{state=\"starting\"} 0\n",
           "\nholdfast_job_state{state=\"training\"} 1\n",
           "\nholdfast_job_generation 2\n",
           "\nholdfast_job_global_step 1000\n",
           "\nholdfast_job_total_steps 4000\n",
           "\nholdfast_job_durable_step 900\n",
           "\nholdfast_job_examples 64000\n",
           "\nholdfast_job_contributions{verdict=\"accepted\"} 2000\n",
           "\nholdfast_job_contributions{verdict=\"stale\"} 5\n",
           "\nholdfast_job_not_finite_contributions 1\n",
           "\nholdfast_job_since_progress_seconds 0.25\n",
           "\nholdfast_job_train_loss 0.5\n",
           "\nholdfast_job_evaluation_accuracy_ratio 0.75\n",
           "\nholdfast_job_checkpoints_written_total 9\n",
           "\nholdfast_job_checkpoints_failed_total 1\n",
           "\nholdfast_job_checkpoint_age_seconds 20\n",
           "\nholdfast_job_checkpoint_failing 0\n",
           "\nholdfast_job_lease_seconds 10\n",
           "\nholdfast_job_tasks{role=\"chief\",state=\"alive\"} 1\n",
           "\nholdfast_job_tasks{role=\"ps\",state=\"alive\"} 2\n",
           "\nholdfast_job_tasks{role=\"ps\",state=\"lost\"} 0\n",
           "\nholdfast_job_task_silent_seconds{task=\"/job:ps/task:1\"} 1\n",
           "\nholdfast_job_worker_step_seconds{worker=\"/job:chief/task:0\"} "
           "0.125\n",
           "\nholdfast_job_worker_waiting_seconds{worker=\"/job:worker/task:0\""
           ",waiting_for=\"verdict\"} 2\n",
           "\nholdfast_job_worker_slow{worker=\"/job:worker/task:0\"} 1\n",
           "\nholdfast_job_slow_workers 2\n",
           "\nholdfast_job_step_seconds_count{phase=\"collect\"} 1000\n",
           "\nholdfast_job_step_seconds_sum{phase=\"commit\"} 30\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("holdfast_job_staleness")));
}

// 10 pushes each of staleness 0, 1, 3 and 100.
TEST(JobMetricsTest, StalenessOfAsynchronousJobs) {
  const std::string text = JobText(FullStatus(/*asynchronous=*/true, 1, 1));
  for (const char* line : {
           "\nholdfast_job_staleness_bucket{le=\"0\"} 10\n",
           "\nholdfast_job_staleness_bucket{le=\"1\"} 20\n",
           "\nholdfast_job_staleness_bucket{le=\"2\"} 20\n",
           "\nholdfast_job_staleness_bucket{le=\"4\"} 30\n",
           "\nholdfast_job_staleness_bucket{le=\"32\"} 30\n",
           "\nholdfast_job_staleness_bucket{le=\"+Inf\"} 40\n",
           "\nholdfast_job_staleness_sum 1040\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("holdfast_job_step_seconds")));
}

TEST(JobMetricsTest, WhatIsNotKnownIsAbsent) {
  const std::string text = JobText(proto::GetStatusResponse());
  for (const char* name :
       {"job_train_loss", "evaluation", "checkpoint_age", "silent_seconds",
        "waiting_seconds", "worker_slow"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
}

TEST(JobMetricsTest, ALostWorkerWaitsForNothing) {
  proto::GetStatusResponse status = FullStatus(false, 1, 1);
  status.mutable_tasks(1)->set_alive(false);
  const std::string text = JobText(status);
  EXPECT_THAT(text, Not(HasSubstr("worker_waiting_seconds")));
  EXPECT_THAT(
      text, HasSubstr("holdfast_job_tasks{role=\"chief\",state=\"lost\"} 1\n"));
}

TEST(ShardMetricsTest, TellsTheFigures) {
  Metrics metrics;
  AddShardMetrics(FullShardFigures(), &metrics);
  const std::string text = metrics.ToText();
  for (const char* line : {
           "\nholdfast_shard_memory_bytes{kind=\"versions\"} 1500\n",
           "\nholdfast_shard_memory_limit_bytes 10000\n",
           "\nholdfast_shard_updates_total 100\n",
           "\nholdfast_shard_update_seconds_total 0.25\n",
           "\nholdfast_shard_received_bytes_total{encoding=\"top_k\"} 5\n",
           "\nholdfast_shard_sent_bytes_total{encoding=\"bfloat16\"} 8\n",
           "\nholdfast_shard_saves_failed_total 1\n",
           "\nholdfast_shard_save_seconds 2\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("sent_bytes_total{encoding=\"int8\"}")));
  EXPECT_THAT(text, Not(HasSubstr("table")));
}

TEST(ShardMetricsTest, EmbeddingTablesWhereThereAreSome) {
  ShardFigures figures = FullShardFigures();
  figures.tables = 700;
  figures.table_rows = 12;
  figures.by_table.resize(2);
  proto::TableReport& items = figures.by_table[0];
  items.set_name("items");
  items.set_rows(11);
  items.set_candidates(2);
  items.set_reads(30);
  items.set_hits(20);
  items.set_admissions(16);
  items.set_expirations(4);
  items.set_evictions(1);
  figures.by_table[1].set_name("users");
  figures.by_table[1].set_rows(1);
  Metrics metrics;
  AddShardMetrics(figures, &metrics);
  const std::string text = metrics.ToText();
  EXPECT_THAT(
      text, HasSubstr("\nholdfast_shard_memory_bytes{kind=\"tables\"} 700\n"));
  for (const char* line : {
           "\nholdfast_shard_table_rows 12\n",
           "\nholdfast_shard_table_present_rows{table=\"items\"} 11\n",
           "\nholdfast_shard_table_present_rows{table=\"users\"} 1\n",
           "\nholdfast_shard_table_candidates{table=\"items\"} 2\n",
           "\nholdfast_shard_table_reads_total{table=\"items\"} 30\n",
           "\nholdfast_shard_table_hits_total{table=\"items\"} 20\n",
           "\nholdfast_shard_table_admissions_total{table=\"items\"} 16\n",
           "\nholdfast_shard_table_expirations_total{table=\"items\"} 4\n",
           "\nholdfast_shard_table_evictions_total{table=\"items\"} 1\n",
           "\nholdfast_shard_table_evictions_total{table=\"users\"} 0\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(RpcMetricsTest, MethodsOfEachStepAndTheSumOfTheOthers) {
  RpcFigures figures;
  figures["/holdfast.proto.Shard/Push"] = {10, 1, absl::Seconds(2),
                                           absl::Seconds(1)};
  figures["/holdfast.proto.Shard/Pin"] = {3, 1, absl::Seconds(4),
                                          absl::Seconds(3)};
  figures["/holdfast.proto.Coordinator/Leave"] = {4, 0, absl::Seconds(1),
                                                  absl::Seconds(1)};
  Metrics metrics;
  AddRpcMetrics(figures, &metrics);
  const std::string text = metrics.ToText();
  for (const char* line : {
           "\nholdfast_rpc_seconds_count{method=\"Push\"} 10\n",
           "\nholdfast_rpc_seconds_sum{method=\"Push\"} 2\n",
           "\nholdfast_rpc_seconds_count{method=\"other\"} 7\n",
           "\nholdfast_rpc_seconds_sum{method=\"other\"} 5\n",
           "\nholdfast_debug_rpc_handler_seconds_total 5\n",
           "\nholdfast_rpc_failed_total 2\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(NeighborMetricsTest, TellsTheFigures) {
  Metrics metrics;
  AddNeighborMetrics({.links = 2,
                      .lent_now = 30,
                      .borrowed_now = 40,
                      .lent = 500,
                      .borrowed = 600,
                      .refused_requests = 1,
                      .refused_peers = 2,
                      .refused_loans = 3,
                      .refused_places = 4},
                     &metrics);
  const std::string text = metrics.ToText();
  for (const char* line : {
           "\nholdfast_neighbor_links 2\n",
           "\nholdfast_neighbor_bytes_total{kind=\"values\"} 500\n",
           "\nholdfast_neighbor_bytes_total{kind=\"gradients\"} 600\n",
           "\nholdfast_neighbor_refused_total 10\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// The limit that the documentation gives, for a job with everything that a job
// can have.
TEST(PsMetricsTest, AtMost300SeriesWith64WorkersAnd4Ps) {
  for (const bool asynchronous : {false, true}) {
    const Metrics metrics = PsMetrics(FullSnapshot(asynchronous, 4, 64));
    EXPECT_LE(metrics.num_series(), 300u);
    EXPECT_GE(metrics.num_series(), 200u) << "is anything missing?";
  }
}

}  // namespace
}  // namespace holdfast
