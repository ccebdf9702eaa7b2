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

// Whether `ids` may be those of rows of a table in a push or a pull.
// Errors: INVALID_ARGUMENT, naming the table: there is none of this index; ids
// that do not rise; 2^32 or more of them.
absl::Status CheckRowIds(const Layout& layout, size_t table,
                         absl::Span<const uint64_t> ids);

// The rows of one push or pull: which ps has which of them, and how they are
// spread over messages. In another push they are others, so that this is made
// for each, and follows the variables' part of the message (client/plan.h).
//
// With one ps nothing is copied, and this costs as much as there are parts.
//
// Thread-compatible.
class RowPlan {
 public:
  // Rows [begin, begin + size) of those that the ps has of the table.
  struct RowRange {
    size_t table = 0;
    size_t begin = 0;
    size_t size = 0;
  };
  // What one message carries.
  using Part = std::vector<RowRange>;

  // Without rows. `layout` must outlive this object.
  explicit RowPlan(const Layout* layout);
  RowPlan(const RowPlan&) = delete;
  RowPlan& operator=(const RowPlan&) = delete;

  // The rows of a table, as CheckRowIds takes them. The ids must outlive this
  // object.
  void Set(size_t table, absl::Span<const uint64_t> ids);
  // Fills parts with the rows set: values of at most `part_bytes` (at least one
  // row), and ids and names of at most kMaxHeaderBytes.
  void Cut(int64_t part_bytes);
  // Gives an empty part to each ps that has none, neither here nor by `beside`.
  void AddEmptyParts(const Plan& beside);

  // By these two.
  const std::vector<Part>& parts(uint32_t ps) const { return parts_[ps]; }
  // Of the values of all rows of a ps.
  uint64_t BytesOf(uint32_t ps) const;

  // The ids of a range of a ps.
  absl::Span<const uint64_t> Ids(uint32_t ps, const RowRange& range) const;
  // The same as sent.
  proto::RowIds EncodedIds(uint32_t ps, const RowRange& range) const;
  // The places of these rows among all that were set of the table. Empty: they
  // lie one after the other, and the first is FirstPlace.
  absl::Span<const uint32_t> Places(uint32_t ps, const RowRange& range) const;
  // Where they begin if the rows of each ps lie together, those of ps 0 first.
  size_t FirstPlace(uint32_t ps, const RowRange& range) const;
  // In that order, the ids of all rows of the table.
  absl::Span<const uint64_t> ids(size_t table) const {
    return tables_[table].ids;
  }
  // And their places. Empty: they are in it.
  absl::Span<const uint32_t> order(size_t table) const {
    return tables_[table].places;
  }

 private:
  struct Table {
    // Those of ps 0 first, each in rising order.
    absl::Span<const uint64_t> ids;
    // By ps, where its own begin; and the end.
    std::vector<size_t> begins;
    // With several ps: what `ids` refers to, and where these were.
    std::vector<uint64_t> own_ids;
    std::vector<uint32_t> places;
  };

  const Layout& layout_;
  std::vector<Table> tables_;
  // By ps.
  std::vector<std::vector<Part>> parts_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_ROW_PLAN_H_
