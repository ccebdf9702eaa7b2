// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_ROW_BATCH_H_
#define HOLDFAST_CLIENT_ROW_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast::client {

// Converts between two forms of a table's rows: as a batch uses them, in any
// order and some more than once; and as they are sent, each once, in the order
// of ids (docs/protocol/tables.md, "Ids").
//
// The memory is reused from batch to batch: fresh pages would take half of the
// time.
//
// Thread-compatible.
class RowBatch {
 public:
  // Starts over with another batch, of at most 2^32 - 1 ids.
  void Assign(absl::Span<const uint64_t> ids);

  // The distinct ids, in increasing order.
  absl::Span<const uint64_t> unique() const { return unique_; }
  // For each id of the batch, its index in unique().
  absl::Span<const uint32_t> inverse() const { return inverse_; }

  // For each distinct id, its indices in the batch, in increasing order. The
  // indices of unique()[i] are the elements [begins()[i], begins()[i + 1]) of
  // uses().
  absl::Span<const uint32_t> uses() const { return places_; }
  absl::Span<const uint32_t> begins() const { return begins_; }

  // Sums the gradients of each row in the order of the batch, starting from 0,
  // like a dense gradient. `gradients`: one per id of the batch, each of
  // `length` elements; `sums`: one per element of unique().
  void Sum(const float* gradients, size_t length, float* sums) const;

  // Copies pulled rows, one per element of unique(), to `values`, which has one
  // row per id of the batch.
  void Spread(const float* rows, size_t length, float* values) const;

 private:
  struct Use {
    uint64_t id;
    uint32_t place;
  };

  // Sorts uses_ by id; the sort is stable.
  void SortById();

  std::vector<uint64_t> unique_;
  std::vector<uint32_t> inverse_;
  // places_: the indices of all ids in the batch, grouped by id, in increasing
  // order within a group. begins_: element i is where the group of unique_[i]
  // begins in places_; one more element is the size of places_.
  std::vector<uint32_t> places_;
  std::vector<uint32_t> begins_;
  // The batch's uses, and scratch memory for sorting them.
  std::vector<Use> uses_;
  std::vector<Use> sorted_;
};

// Checks that all elements of `rows`, of `length` each, are finite.
// Errors: INVALID_ARGUMENT, naming the table, and the id and element of the
// first number that is not finite.
absl::Status CheckFiniteRows(absl::string_view table,
                             absl::Span<const uint64_t> ids, const float* rows,
                             size_t length);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_ROW_BATCH_H_
