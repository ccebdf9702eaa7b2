#ifndef HOLDFAST_CLIENT_ROW_BATCH_H_
#define HOLDFAST_CLIENT_ROW_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast::client {

// The rows of a table that a batch uses, in any order and some more than once,
// and between them and what is sent, which has each row once, in the order of
// ids (docs/protocol/tables.md, "Ids").
//
// Its memory serves one batch after the other: fresh pages would take half of
// the time.
//
// Thread-compatible.
class RowBatch {
 public:
  // Begins with another batch, of at most 2^32 - 1 ids.
  void Assign(absl::Span<const uint64_t> ids);

  // Each id once, in rising order.
  absl::Span<const uint64_t> unique() const { return unique_; }
  // Of each id of the batch, where it is in unique().
  absl::Span<const uint32_t> inverse() const { return inverse_; }

  // The same by row: unique()[i] is at the places uses()[begins()[i]] up to
  // uses()[begins()[i + 1]] of the batch, which rise.
  absl::Span<const uint32_t> uses() const { return places_; }
  absl::Span<const uint32_t> begins() const { return begins_; }

  // Adds up the gradients of each row in the order in which the batch has it,
  // beginning with 0, as a dense gradient is added up. `gradients`: as many as
  // the batch has ids, each of `length`; `sums`: as many as unique().
  void Sum(const float* gradients, size_t length, float* sums) const;

  // Copies rows as pulled, as many as unique(), each to all its places in the
  // batch.
  void Spread(const float* rows, size_t length, float* values) const;

 private:
  struct Use {
    uint64_t id;
    uint32_t place;
  };

  // Sorts uses_ by id; those of one id stay in their order.
  void SortById();

  std::vector<uint64_t> unique_;
  std::vector<uint32_t> inverse_;
  // The batch's places of all ids, those of one id together, in their order;
  // and where those of unique_[i] begin, and the end.
  std::vector<uint32_t> places_;
  std::vector<uint32_t> begins_;
  // What the batch uses, and memory for sorting that.
  std::vector<Use> uses_;
  std::vector<Use> sorted_;
};

// Whether all of `rows`, of `length` each, are finite numbers.
// Errors: INVALID_ARGUMENT, naming the table, and the id and element of the
// first that is not.
absl::Status CheckFiniteRows(absl::string_view table,
                             absl::Span<const uint64_t> ids, const float* rows,
                             size_t length);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_ROW_BATCH_H_
