// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_PLAN_H_
#define HOLDFAST_CLIENT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/layout.h"
#include "common/rpc/rpc_limits.h"

namespace holdfast::client {

// How the tensors of a push or a pull are spread over messages. Made once from
// the layout, and the same for every step.
struct Plan {
  // The ranges carried by one message.
  using Part = std::vector<ElementRange>;
  // Identifies a part of a plan.
  struct Place {
    uint32_t ps = 0;
    uint32_t part = 0;
  };

  // The maximum size of the values in one part, in bytes.
  int64_t part_bytes = kPartBytes;
  // Indexed by ps. A ps without elements has no parts, and is called only for
  // rows of embedding tables (client/row_plan.h).
  std::vector<std::vector<Part>> parts;
  // Indexed by variable: the parts that contain the variable, once for each of
  // its ranges.
  std::vector<std::vector<Place>> places;
  // Indexed by variable: the ranges that are lent to their ps instead of being
  // sent (docs/protocol/same_host.md).
  std::vector<std::vector<ElementRange>> lent;
};

// The maximum size of everything in one part but its values, such as names,
// shapes and ids of rows, in bytes.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 20;

// The maximum number of loans in one part, so that the words of a link's board
// suffice for several pushes and pulls in progress at a time.
inline constexpr size_t kMaxLoansInPart = 512;

// Each part has values of at most `part_bytes` (but at least one element). A
// larger slice is split; smaller ones share a part as long as they fit. Names
// and shapes have their own limit, so that a message with very many small
// variables stays within kMaxMessageBytes.
//
// `neighbors`: whether there is a link, indexed by ps; empty: to no ps. Ranges
// of at least `min_lent_bytes` for these ps are lent whole, and only their
// headers count towards the limits. In a job with compression nothing is lent.
//
// Pure functions.

// Plans pushes of the gradients of the trainable variables, in reverse order of
// declaration, which is the order in which a backward pass produces them.
Plan PlanPush(const Layout& layout, int64_t part_bytes,
              const std::vector<bool>& neighbors = {},
              uint64_t min_lent_bytes = kMinLentBytes);

// Plans pulls of all variables, in order of declaration, which is the order in
// which a forward pass needs them. If there are no elements at all, ps 0 has an
// empty part, which asks for the version.
Plan PlanPull(const Layout& layout, int64_t part_bytes,
              const std::vector<bool>& neighbors = {},
              uint64_t min_lent_bytes = kMinLentBytes);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PLAN_H_
