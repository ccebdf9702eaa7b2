// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TABLE_RECEIVED_ROWS_H_
#define HOLDFAST_PS_SERVER_TABLE_RECEIVED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tensor/buffer.h"
#include "common/tensor/row_bucket.h"
#include "proto/table.pb.h"

namespace holdfast {

// The number of bytes that a received row takes in addition to its gradient:
// its id and a pointer.
inline constexpr size_t kReceivedRowBytes = 2 * sizeof(uint64_t);

// The gradients of one push for rows of one table, as they came, and where each
// row's gradient is.
//
// Immutable, and so thread-safe.
class ReceivedRows {
 public:
  // `ids` are encoded as in common/tensor/row_ids.h. `gradients` has the
  // gradients in `encoding`, row after row in the order of ids; a row or an
  // element may be split between its spans. Values may be any float, including
  // NaN, as in dense gradients. Errors: INVALID_ARGUMENT, naming the table and
  // what does not fit: an encoding other than EXACT or the declared one, more
  // rows than declared, ids that do not parse or do not belong to `buckets`,
  // gradients of the wrong size.
  static absl::StatusOr<ReceivedRows> Parse(
      const proto::EmbeddingTable& table, BucketRange buckets,
      uint64_t num_rows, absl::string_view ids, Buffer gradients,
      proto::Encoding encoding = proto::EXACT);

  // The ids of the rows, in ascending order.
  absl::Span<const uint64_t> ids() const { return ids_; }
  // The gradient of the row ids()[row]: as many float32 as a row has values, at
  // any alignment. It is decoded if it came in another encoding.
  const void* gradient(size_t row) const { return gradients_[row]; }

 private:
  ReceivedRows() = default;

  std::vector<uint64_t> ids_;
  Buffer data_;
  std::vector<const void*> gradients_;
  // Copies of the rows that are split between spans of the received bytes or,
  // if they came in another encoding than EXACT, all rows, decoded.
  std::vector<std::unique_ptr<char[]>> whole_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_RECEIVED_ROWS_H_
