// SPDX-License-Identifier: Apache-2.0

// The encodings of elements on the wire (docs/formats/wire.md).
//
// Pure functions, safe from any thread. The bits are the same on all CPUs.
#ifndef HOLDFAST_COMMON_TENSOR_ENCODING_H_
#define HOLDFAST_COMMON_TENSOR_ENCODING_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/buffer.h"
#include "proto/training.pb.h"

namespace holdfast {

// The number of elements that share one scale in INT8.
inline constexpr uint64_t kInt8Range = 512;

// Float32 elements in the encoding in which they arrived.
struct EncodedElements {
  proto::Encoding encoding = proto::EXACT;
  uint64_t size = 0;  // in elements
  Buffer data;
};

// The number of bytes that encode `size` elements, of which `kept` are kept if
// the encoding is TOP_K.
uint64_t EncodedBytes(proto::Encoding encoding, uint64_t size, uint64_t kept);

// The maximum fraction of a gradient's elements that a TOP_K push contains.
double TopK(const proto::Compression& compression);
// The number of elements that is the fraction `top_k` of `size`, rounded up.
uint64_t TopKCount(double top_k, uint64_t size);

// The number of elements that `elements`, which is in TOP_K, contains.
uint64_t KeptElements(const EncodedElements& elements);

// Interprets `data` as elements. `size` is the number of elements stated in the
// message, or 0 if the number follows from `data`.
// Errors: INVALID_ARGUMENT, saying what is wrong: an unknown encoding; bytes
// that are not a whole number of elements, or not `size` of them; in TOP_K,
// indices that are not increasing or are out of range. Values are not checked:
// they may be NaN.
absl::StatusOr<EncodedElements> ParseElements(proto::Encoding encoding,
                                              uint64_t size, Buffer data);

// Writes elements [begin, begin + out.size()) of `elements`, which must exist,
// to `out`. `elements` must come from ParseElements.
void Decode(const EncodedElements& elements, uint64_t begin,
            absl::Span<float> out);

// Encodes `values`, float32 whose spans are aligned to elements, as EXACT,
// FLOAT16 or BFLOAT16.
EncodedElements Encode(proto::Encoding encoding, const Buffer& values);

// Encodes gradient + before. TOP_K keeps at most `kept` elements: the nonzero
// elements of the greatest magnitude and, among elements of equal magnitude,
// the first ones. `after` receives the encoding error: gradient + before =
// decoded + after, up to rounding. An error that is not finite becomes 0, so
// that one such gradient does not spoil the next. The three spans have the same
// size, below 2^32, and do not overlap.
//
// The bytes are written to `memory`, which must be aligned to 4 and have room
// for EncodedBytes. If `memory` is null, memory is allocated; then the system
// may have to provide new pages in each call, which takes two thirds of the
// time for a large gradient.
EncodedElements EncodeWithFeedback(proto::Encoding encoding, uint64_t kept,
                                   absl::Span<const float> gradient,
                                   absl::Span<const float> before,
                                   absl::Span<float> after,
                                   std::shared_ptr<char> memory = nullptr);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_ENCODING_H_
