// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_METRICS_RPC_METRICS_H_
#define HOLDFAST_PS_SERVER_METRICS_RPC_METRICS_H_

#include "common/metrics/metrics.h"
#include "ps_server/service/rpc_figures.h"

namespace holdfast {

// Adds the metrics of served calls (docs/operating/metrics.md). Methods that
// are called in every step have their own series; "other" is the sum of all
// other methods, so that the number of series does not grow with the number of
// methods.
void AddRpcMetrics(const RpcFigures& figures, Metrics* metrics);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_METRICS_RPC_METRICS_H_
