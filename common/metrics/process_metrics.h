// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_METRICS_PROCESS_METRICS_H_
#define HOLDFAST_COMMON_METRICS_PROCESS_METRICS_H_

#include "common/job/task_id.h"
#include "common/metrics/metrics.h"
#include "common/process/process_figures.h"

namespace holdfast {

// Adds the metrics that every daemon exports: its task and version, and the
// resources that its process uses.
void AddProcessMetrics(const TaskId& task, const ProcessFigures& figures,
                       Metrics* metrics);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_METRICS_PROCESS_METRICS_H_
