// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_ROW_PLAN_H_
#define HOLDFAST_CLIENT_ROW_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/layout.h"
#include "client/plan.h"
#include "proto/cluster.pb.h"

namespace holdfast::client {

// Checks the ids of a table's rows in a push or a pull.
// Errors: INVALID_ARGUMENT, naming the table, if there is no table with this
// index, the ids are not strictly increasing, or there are 2^32 or more of
// them.
absl::Status CheckRowIds(const Layout& layout, size_t table,
                         absl::Span<const uint64_t> ids);

// The rows of one push or pull: which ps has which of them, and how they are
// spread over messages. Rows differ from push to push, so a RowPlan is made for
// each; its parts follow those of the variables (client/plan.h).
//
// With one ps nothing is copied, and the cost is proportional to the number of
// parts.
//
// Thread-compatible.
class RowPlan {
 public:
  // Rows [begin, begin + size) of the table's rows at one ps.
  struct RowRange {
    size_t table = 0;
    size_t begin = 0;
    size_t size = 0;
  };
  // The ranges carried by one message.
  using Part = std::vector<RowRange>;

  // A plan without rows. `layout` must outlive this object.
  explicit RowPlan(const Layout* layout);
  RowPlan(const RowPlan&) = delete;
  RowPlan& operator=(const RowPlan&) = delete;

  // Sets the rows of a table. `ids` must satisfy CheckRowIds, and outlive this
  // object.
  void Set(size_t table, absl::Span<const uint64_t> ids);
  // Divides the rows into parts, with values of at most `part_bytes` (but at
  // least one row), and ids and names of at most kMaxHeaderBytes.
  void Cut(int64_t part_bytes);
  // Gives an empty part to each ps that has no part, neither here nor in
  // `beside`.
  void AddEmptyParts(const Plan& beside);

  // The parts made by Cut and AddEmptyParts.
  const std::vector<Part>& parts(uint32_t ps) const { return parts_[ps]; }
  // The size of the values of all rows of a ps, in bytes.
  uint64_t BytesOf(uint32_t ps) const;

  // The ids of a range at a ps.
  absl::Span<const uint64_t> Ids(uint32_t ps, const RowRange& range) const;
  // The ids of a range at a ps, in the form in which they are sent.
  proto::RowIds EncodedIds(uint32_t ps, const RowRange& range) const;
  // The index of each row of a range in the ids that were passed to Set for the
  // table. Empty if the indices are consecutive, starting at FirstPlace.
  absl::Span<const uint32_t> Places(uint32_t ps, const RowRange& range) const;
  // The index of a range's first row in ids(range.table).
  size_t FirstPlace(uint32_t ps, const RowRange& range) const;
  // The ids of all rows of the table, grouped by ps, those of ps 0 first.
  absl::Span<const uint64_t> ids(size_t table) const {
    return tables_[table].ids;
  }
  // For each element of ids(table), its index in the ids that were passed to
  // Set. Empty if both have the same order.
  absl::Span<const uint32_t> order(size_t table) const {
    return tables_[table].places;
  }

 private:
  struct Table {
    // The ids of ps 0 come first; increasing within each ps.
    absl::Span<const uint64_t> ids;
    // Indexed by ps: the index in `ids` of the first id of the ps. One more
    // element is the size of `ids`.
    std::vector<size_t> begins;
    // Used if there are several ps: the memory of `ids`, and for each id its
    // index in the ids that were passed to Set.
    std::vector<uint64_t> own_ids;
    std::vector<uint32_t> places;
  };

  const Layout& layout_;
  std::vector<Table> tables_;
  // Indexed by ps.
  std::vector<std::vector<Part>> parts_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_ROW_PLAN_H_
