// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_TF_EXAMPLE_H_
#define HOLDFAST_COMMON_DATA_TF_EXAMPLE_H_

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

// A feature within the bytes of a tf.train.Example (proto/tf_example.proto).
struct TfFeature {
  enum Kind { kNone, kBytes, kFloats, kIntegers };

  absl::string_view name;
  Kind kind = kNone;
  // The encoded values: for kFloats, float32, little-endian; for kIntegers,
  // varints; for kBytes, byte strings, each preceded by a tag and its length,
  // as in the message BytesList.
  absl::string_view values;

  bool empty() const { return values.empty(); }
  // The number of values; only for kFloats.
  int64_t num_floats() const { return values.size() / sizeof(float); }
  // Writes the num_floats() values to `to`.
  void ReadFloats(float* to) const;
  // Calls `take` with each integer. Returns false if the bytes do not parse as
  // integers.
  bool ForEachInteger(absl::FunctionRef<void(int64_t)> take) const;
  // Calls `take` with each byte string; only for kBytes.
  void ForEachBytes(absl::FunctionRef<void(absl::string_view)> take) const;
};

// Finds the features of a record, without copying them.
//
// Bytes in the form that TensorFlow's writers produce, with each part in one
// piece and the fields in order, are parsed here, several times as fast as by
// protoc's code, which makes an object of every feature. Any other encoding of
// an Example (unpacked values, messages in pieces, unknown fields) is first
// converted to that form by protoc's code.
//
// Not copyable; reusable.
class TfExample {
 public:
  TfExample() = default;
  TfExample(const TfExample&) = delete;
  TfExample& operator=(const TfExample&) = delete;

  // Finds the features of `record`. Returns false if it is not an Example. The
  // features are valid as long as `record`, and until the next call. Integers
  // are not validated here, but by ForEachInteger().
  bool Parse(absl::string_view record);

  // The features, in the order of the record. If two have the same name, the
  // last one counts.
  absl::Span<const TfFeature> features() const { return features_; }

 private:
  bool ParsePlain(absl::string_view record);

  absl::InlinedVector<TfFeature, 16> features_;
  // The record in the form that is parsed here, if it had to be converted.
  std::string plain_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_TF_EXAMPLE_H_
