// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_METRICS_NEIGHBOR_METRICS_H_
#define HOLDFAST_PS_SERVER_METRICS_NEIGHBOR_METRICS_H_

#include "common/metrics/metrics.h"
#include "ps_server/service/neighbor_figures.h"

namespace holdfast {

// Adds the metrics whose names begin with holdfast_neighbor_
// (docs/operating/metrics.md).
void AddNeighborMetrics(const NeighborFigures& figures, Metrics* metrics);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_METRICS_NEIGHBOR_METRICS_H_
