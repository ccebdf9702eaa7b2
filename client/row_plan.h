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
  // The same, as sent.
  proto::RowIds EncodedIds(uint32_t ps, const RowRange& range) const;
  // The places of these rows among all rows that were set for the table. Empty:
  // they are consecutive, starting at FirstPlace.
  absl::Span<const uint32_t> Places(uint32_t ps, const RowRange& range) const;
  // The place of the first of these rows if the rows are grouped by ps, those
  // of ps 0 first.
  size_t FirstPlace(uint32_t ps, const RowRange& range) const;
  // The ids of all rows of the table, in that order.
  absl::Span<const uint64_t> ids(size_t table) const {
    return tables_[table].ids;
  }
  // Their places among the rows that were set. Empty: they are already in that
  // order.
  absl::Span<const uint32_t> order(size_t table) const {
    return tables_[table].places;
  }

 private:
  struct Table {
    // The ids of ps 0 come first; increasing within each ps.
    absl::Span<const uint64_t> ids;
    // Indexed by ps: where its ids begin; followed by the end.
    std::vector<size_t> begins;
    // With several ps: the memory of `ids`, and the ids' original places.
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
