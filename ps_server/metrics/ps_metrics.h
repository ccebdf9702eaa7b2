// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_METRICS_PS_METRICS_H_
#define HOLDFAST_PS_SERVER_METRICS_PS_METRICS_H_

#include <optional>

#include "common/job/task_id.h"
#include "common/metrics/metrics.h"
#include "common/process/process_figures.h"
#include "proto/coordinator.pb.h"
#include "ps_server/service/neighbor_figures.h"
#include "ps_server/service/rpc_figures.h"
#include "ps_server/shard/shard_figures.h"

namespace holdfast {

// The figures that a ps reports to Prometheus at a scrape.
struct PsSnapshot {
  TaskId task;
  ProcessFigures process;
  ShardFigures shard;
  RpcFigures rpc;
  NeighborFigures neighbors;
  // Set on ps 0, unless its coordinator is too busy to answer.
  std::optional<proto::GetStatusResponse> status;
};

Metrics PsMetrics(const PsSnapshot& snapshot);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_METRICS_PS_METRICS_H_
