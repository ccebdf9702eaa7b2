// SPDX-License-Identifier: Apache-2.0

// The encodings in which values and gradients of an embedding table's rows are
// sent (docs/protocol/tables.md, "Encodings").
//
// Pure functions; safe from any thread. The bits are the same on all CPUs.
#ifndef HOLDFAST_COMMON_TENSOR_ROW_ENCODING_H_
#define HOLDFAST_COMMON_TENSOR_ROW_ENCODING_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/tensor/buffer.h"
#include "proto/training.pb.h"

namespace holdfast {

// Whether a table's gradients may be pushed, or its values pulled, in this
// encoding.
bool IsRowPush(proto::Encoding encoding);
bool IsRowPull(proto::Encoding encoding);

// The number of bytes of a row of `length` values in one of these encodings.
size_t EncodedRowBytes(proto::Encoding encoding, size_t length);

// Determines how INT8 rounds: its random numbers depend only on these fields,
// the row's id and the element's index.
struct RowRounding {
  // The declaration's seed.
  uint64_t seed = 0;
  // The step on whose parameters the gradient was computed.
  uint64_t step = 0;
};

// Encodes the gradients of rows `ids`, each of `length` values.
//
// INT8 divides a row by 1/127 of its greatest magnitude, and rounds each
// element up or down at random, so that the expected value of the decoded row
// is the gradient. If any value of a row is not finite, the whole row is sent
// as NaN.
Buffer EncodeRows(proto::Encoding encoding, size_t length,
                  absl::Span<const uint64_t> ids, absl::Span<const float> rows,
                  const RowRounding& rounding);

// Decodes rows of `length` elements each. `bytes` must contain whole rows, and
// `rows` must have room for them.
void DecodeRows(proto::Encoding encoding, size_t length, const Buffer& bytes,
                float* rows);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_ROW_ENCODING_H_
