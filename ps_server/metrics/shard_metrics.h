// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_METRICS_SHARD_METRICS_H_
#define HOLDFAST_PS_SERVER_METRICS_SHARD_METRICS_H_

#include "common/metrics/metrics.h"
#include "ps_server/shard/shard_figures.h"

namespace holdfast {

// Adds the metrics whose names begin with holdfast_shard_
// (docs/operating/metrics.md).
void AddShardMetrics(const ShardFigures& figures, Metrics* metrics);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_METRICS_SHARD_METRICS_H_
