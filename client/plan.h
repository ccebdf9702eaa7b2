#ifndef HOLDFAST_CLIENT_PLAN_H_
#define HOLDFAST_CLIENT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/layout.h"
#include "common/rpc/rpc_limits.h"

namespace holdfast::client {

// How the tensors of a push or a pull are spread over messages. Made once from
// the layout, the same for every step.
struct Plan {
  // What one message carries.
  using Part = std::vector<ElementRange>;
  // A part of a plan.
  struct Place {
    uint32_t ps = 0;
    uint32_t part = 0;
  };

  // Of values in one part, at most.
  int64_t part_bytes = kPartBytes;
  // By ps. One without elements has none, and is spoken to only for rows of
  // embedding tables (client/row_plan.h).
  std::vector<std::vector<Part>> parts;
  // By variable: the parts with elements of it, as often as they have ranges
  // of it.
  std::vector<std::vector<Place>> places;
  // By variable: the ranges of it that are lent to their ps, in place of
  // being sent (docs/protocol/same_host.md).
  std::vector<std::vector<ElementRange>> lent;
};

// What surrounds the values of one part, names, shapes and ids of rows, in
// bytes, at most.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 20;

// Loans in one part, at most, so that the words of a link's board suffice for
// several pushes and pulls under way at a time.
inline constexpr size_t kMaxLoansInPart = 512;

// Parts have at most `part_bytes` (at least one element) of values each. A
// slice above that is cut; smaller ones share a part as long as they fit; names
// and shapes count against a bound of their own, so that a message of very many
// small variables stays within kMaxMessageBytes.
//
// `neighbors`: by ps, whether there is a link to it; empty: to none. Ranges
// of at least `min_lent_bytes` are lent to those, whole: of them nothing counts
// but what surrounds them. In a job with compression nothing is lent.
//
// Pure functions.

// The gradients of the trainable variables, the last declared first: in that
// order a backward pass makes them.
Plan PlanPush(const Layout& layout, int64_t part_bytes,
              const std::vector<bool>& neighbors = {},
              uint64_t min_lent_bytes = kMinLentBytes);

// All variables, the first declared first: in that order a forward pass needs
// them. Where there are no elements at all, ps 0 has an empty part, which asks
// for the version.
Plan PlanPull(const Layout& layout, int64_t part_bytes,
              const std::vector<bool>& neighbors = {},
              uint64_t min_lent_bytes = kMinLentBytes);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PLAN_H_
