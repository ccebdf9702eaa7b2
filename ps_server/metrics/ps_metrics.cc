// SPDX-License-Identifier: Apache-2.0
#include "ps_server/metrics/ps_metrics.h"

#include "common/metrics/process_metrics.h"
#include "ps_server/metrics/job_metrics.h"
#include "ps_server/metrics/neighbor_metrics.h"
#include "ps_server/metrics/rpc_metrics.h"
#include "ps_server/metrics/shard_metrics.h"

namespace holdfast {

Metrics PsMetrics(const PsSnapshot& snapshot) {
  Metrics metrics;
  AddProcessMetrics(snapshot.task, snapshot.process, &metrics);
  if (snapshot.status.has_value()) AddJobMetrics(*snapshot.status, &metrics);
  AddShardMetrics(snapshot.shard, &metrics);
  AddRpcMetrics(snapshot.rpc, &metrics);
  AddNeighborMetrics(snapshot.neighbors, &metrics);
  return metrics;
}

}  // namespace holdfast
