// How values and gradients of rows of an embedding table travel
// (docs/protocol/tables.md, "Encodings").
//
// Pure functions; safe from any thread. All CPUs give the same bits.
#ifndef HOLDFAST_COMMON_TENSOR_ROW_ENCODING_H_
#define HOLDFAST_COMMON_TENSOR_ROW_ENCODING_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/tensor/buffer.h"
#include "proto/training.pb.h"

namespace holdfast {

// Whether a table may have its gradients pushed, or its values pulled, so.
bool IsRowPush(proto::Encoding encoding);
bool IsRowPull(proto::Encoding encoding);

// Bytes of a row of `length` values in one of these.
size_t EncodedRowBytes(proto::Encoding encoding, size_t length);

// By which INT8 rounds: what it makes of a gradient follows from these, the
// row's id and the element.
struct RowRounding {
  // Of the declaration.
  uint64_t seed = 0;
  // On whose parameters the gradient was computed.
  uint64_t step = 0;
};

// Gradients of rows, as many as `ids`, each of `length`.
//
// INT8 divides a row by its greatest magnitude's 127th part, and rounds each
// element up or down at random, so that the mean of what is sent is the
// gradient. Of a row with a number that is not finite all is sent as NaN.
Buffer EncodeRows(proto::Encoding encoding, size_t length,
                  absl::Span<const uint64_t> ids, absl::Span<const float> rows,
                  const RowRounding& rounding);

// Writes the elements of rows of `length` each. `bytes` are whole rows, and
// `rows` has room for them.
void DecodeRows(proto::Encoding encoding, size_t length, const Buffer& bytes,
                float* rows);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_ROW_ENCODING_H_
