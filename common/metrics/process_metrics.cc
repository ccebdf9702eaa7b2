// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/process_metrics.h"

#include "common/process/version.h"

namespace holdfast {

void AddProcessMetrics(const TaskId& task, const ProcessFigures& figures,
                       Metrics* metrics) {
  metrics->Gauge("holdfast_build_info", "Task and version of this process.", 1,
                 {{"task", task.ToString()}, {"version", kVersion}});
  metrics->Counter("holdfast_process_cpu_seconds_total",
                   "CPU time of the process, in user and system mode.",
                   figures.cpu_seconds);
  metrics->Gauge("holdfast_process_resident_memory_bytes",
                 "Resident memory of the process.", figures.resident_bytes);
  metrics->Gauge("holdfast_process_open_fds",
                 "Open file descriptors of the process.", figures.open_files);
  metrics->Gauge("holdfast_process_start_time_seconds",
                 "When the process began, in seconds since 1970.",
                 figures.start_time);
}

}  // namespace holdfast
