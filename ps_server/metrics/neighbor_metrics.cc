// SPDX-License-Identifier: Apache-2.0
#include "ps_server/metrics/neighbor_metrics.h"

#include <utility>

namespace holdfast {

void AddNeighborMetrics(const NeighborFigures& figures, Metrics* metrics) {
  metrics->Gauge("holdfast_neighbor_links",
                 "Processes of this host that share memory with this ps.",
                 figures.links);
  for (const auto& [kind, bytes] : {std::pair("values", figures.lent),
                                    std::pair("gradients", figures.borrowed)}) {
    metrics->Counter("holdfast_neighbor_bytes_total",
                     "Bytes that were passed through shared memory.", bytes,
                     {{"kind", kind}});
  }
  metrics->Counter("holdfast_neighbor_refused_total",
                   "Links, peers, loans and places that were refused.",
                   figures.refused_requests + figures.refused_peers +
                       figures.refused_loans + figures.refused_places);
}

}  // namespace holdfast
