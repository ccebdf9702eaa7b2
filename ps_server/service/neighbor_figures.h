// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_NEIGHBOR_FIGURES_H_
#define HOLDFAST_PS_SERVER_SERVICE_NEIGHBOR_FIGURES_H_

#include <cstdint>

namespace holdfast {

// What a ps shares with processes of its host (docs/protocol/same_host.md), for
// monitoring. No decision of the ps depends on it.
struct NeighborFigures {
  // Open links.
  uint64_t links = 0;
  // Values that clients may read at the moment, and gradients of theirs that
  // the ps holds; in bytes.
  uint64_t lent_now = 0;
  uint64_t borrowed_now = 0;
  // All values ever lent and all gradients ever borrowed, in bytes.
  uint64_t lent = 0;
  uint64_t borrowed = 0;
  // Refused requests for a link; connections that had no right to one, or broke
  // its rules; values that could not be lent, so that bytes were sent;
  // gradients that were not where the message said.
  uint64_t refused_requests = 0;
  uint64_t refused_peers = 0;
  uint64_t refused_loans = 0;
  uint64_t refused_places = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_NEIGHBOR_FIGURES_H_
