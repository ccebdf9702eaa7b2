// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_NEIGHBOR_FIGURES_H_
#define HOLDFAST_PS_SERVER_SERVICE_NEIGHBOR_FIGURES_H_

#include <cstdint>

namespace holdfast {

// What a ps shares with processes of its host (docs/protocol/same_host.md), for
// monitoring. No decision of the ps depends on it.
struct NeighborFigures {
  // The number of open links.
  uint64_t links = 0;
  // Bytes of the ps's values that clients may read at the moment, and bytes of
  // clients' gradients that the ps holds at the moment.
  uint64_t lent_now = 0;
  uint64_t borrowed_now = 0;
  // Bytes of all values ever lent, and bytes of all gradients ever borrowed.
  uint64_t lent = 0;
  uint64_t borrowed = 0;
  // The numbers of requests for a link that were refused; of connections that
  // had no right to a link, or broke its rules; of values that could not be
  // lent, so that their bytes were sent; and of gradients that were not where
  // the message said.
  uint64_t refused_requests = 0;
  uint64_t refused_peers = 0;
  uint64_t refused_loans = 0;
  uint64_t refused_places = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_NEIGHBOR_FIGURES_H_
