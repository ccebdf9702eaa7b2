// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_METRICS_WORKER_METRICS_H_
#define HOLDFAST_WORKER_METRICS_WORKER_METRICS_H_

#include <optional>
#include <vector>

#include "common/metrics/metrics.h"
#include "proto/coordinator.pb.h"
#include "worker/backend/cuda/gpu_usage.h"

namespace holdfast {

// Adds the metrics of `report`, whose names begin with holdfast_worker_
// (docs/operating/metrics.md).
void AddWorkerMetrics(const proto::WorkerReport& report, Metrics* metrics);

// Adds the metrics of GPUs, whose names begin with holdfast_gpu_. `gpus` and
// `indices` are in the same order; a GPU's index is its label. GPUs that did
// not answer are left out.
void AddGpuMetrics(const std::vector<int>& indices,
                   const std::vector<std::optional<GpuUsage>>& gpus,
                   Metrics* metrics);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_METRICS_WORKER_METRICS_H_
