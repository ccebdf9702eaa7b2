// How elements are written on the wire (docs/formats/wire.md).
//
// Pure functions, safe from any thread. All CPUs give the same bits.
#ifndef HOLDFAST_COMMON_TENSOR_ENCODING_H_
#define HOLDFAST_COMMON_TENSOR_ENCODING_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/buffer.h"
#include "proto/training.pb.h"

namespace holdfast {

// Elements to one scale of INT8.
inline constexpr uint64_t kInt8Range = 512;

// Float32 elements as they came.
struct EncodedElements {
  proto::Encoding encoding = proto::EXACT;
  uint64_t size = 0;  // in elements
  Buffer data;
};

// Bytes of `size` elements; of TOP_K with `kept` of them.
uint64_t EncodedBytes(proto::Encoding encoding, uint64_t size, uint64_t kept);

// The share of its elements that a TOP_K push has at most.
double TopK(const proto::Compression& compression);
// So large a share of `size` elements, rounded up.
uint64_t TopKCount(double top_k, uint64_t size);

// How many elements of TOP_K `elements` keeps.
uint64_t KeptElements(const EncodedElements& elements);

// `data` as elements. `size`: as told with them, 0 where `data` tells it.
// Errors: INVALID_ARGUMENT, saying what is wrong: an unknown encoding, bytes
// that are no whole elements, or not `size` of them; TOP_K: indices that do not
// rise, or lie outside. Values may be any number, and no number.
absl::StatusOr<EncodedElements> ParseElements(proto::Encoding encoding,
                                              uint64_t size, Buffer data);

// Writes elements [begin, begin + out.size()) of `elements`, which
// ParseElements has made, and must have them.
void Decode(const EncodedElements& elements, uint64_t begin,
            absl::Span<float> out);

// Writes `values`, float32 at addresses that are whole ones, as EXACT, FLOAT16
// or BFLOAT16.
EncodedElements Encode(proto::Encoding encoding, const Buffer& values);

// Writes gradient + before, of which TOP_K keeps at most `kept` elements: those
// of the greatest magnitude that are not 0, of equal ones the first. What is
// lost becomes `after`: gradient + before = decoded + after, up to a rounding.
// Where that is not a finite number it is 0, so that one such gradient does not
// spoil the next. The three spans are of one size, below 2^32, and do not
// overlap.
//
// The bytes go to `memory`, aligned to 4, which has EncodedBytes of them;
// without it to memory of their own, whose pages the system may have to make
// each time: two thirds of the time for a large gradient.
EncodedElements EncodeWithFeedback(proto::Encoding encoding, uint64_t kept,
                                   absl::Span<const float> gradient,
                                   absl::Span<const float> before,
                                   absl::Span<float> after,
                                   std::shared_ptr<char> memory = nullptr);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_ENCODING_H_
