// SPDX-License-Identifier: Apache-2.0
#include "worker/metrics/worker_metrics.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {

void AddWorkerMetrics(const proto::WorkerReport& report, Metrics* metrics) {
  const proto::PhaseSeconds& phases = report.phases();
  for (const auto& [phase, seconds] : {
           std::pair("input", phases.input()),
           std::pair("version", phases.version()),
           std::pair("compute", phases.compute()),
           std::pair("push", phases.push()),
           std::pair("verdict", phases.verdict()),
           std::pair("ticket", phases.ticket()),
       }) {
    metrics->Counter("holdfast_worker_phase_seconds_total",
                     "Training time by phase.", seconds, {{"phase", phase}});
  }
  metrics->Counter("holdfast_worker_steps_total",
                   "Steps, or tickets, that this worker has finished.",
                   report.steps());
  metrics->Gauge("holdfast_worker_skipped_rows",
                 "Malformed rows of the training set that were left out.",
                 report.skipped_rows());
  for (const char* what : {"input", "version", "verdict", "ticket"}) {
    const bool waits = report.waiting_for() == what;
    metrics->Gauge(
        "holdfast_worker_waiting_seconds",
        "How long the worker has been waiting, by what it waits for; "
        "0 if it does not wait for it.",
        waits ? report.waiting_seconds() : 0, {{"waiting_for", what}});
  }
}

void AddGpuMetrics(const std::vector<int>& indices,
                   const std::vector<std::optional<GpuUsage>>& gpus,
                   Metrics* metrics) {
  for (size_t i = 0; i < std::min(indices.size(), gpus.size()); ++i) {
    if (!gpus[i].has_value()) continue;
    const Metrics::Labels labels = {{"gpu", absl::StrCat(indices[i])}};
    metrics->Gauge("holdfast_gpu_memory_used_bytes",
                   "Memory of the GPU that all processes together use.",
                   gpus[i]->memory_used_bytes, labels);
    metrics->Gauge("holdfast_gpu_memory_bytes", "Memory of the GPU.",
                   gpus[i]->memory_total_bytes, labels);
    metrics->Gauge("holdfast_gpu_utilization_ratio",
                   "Share of time in which the GPU ran a kernel.",
                   gpus[i]->utilization, labels);
  }
}

}  // namespace holdfast
