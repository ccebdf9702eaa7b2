#ifndef HOLDFAST_COMMON_DATA_TF_EXAMPLE_H_
#define HOLDFAST_COMMON_DATA_TF_EXAMPLE_H_

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

// A feature as it stands in the bytes of a tf.train.Example
// (proto/tf_example.proto).
struct TfFeature {
  enum Kind { kNone, kBytes, kFloats, kIntegers };

  absl::string_view name;
  Kind kind = kNone;
  // kFloats: float32, little-endian. kIntegers: varints. kBytes: each behind a
  // tag and its length, as in the message BytesList.
  absl::string_view values;

  bool empty() const { return values.empty(); }
  // Of floats.
  int64_t num_floats() const { return values.size() / sizeof(float); }
  // Writes num_floats() of them.
  void ReadFloats(float* to) const;
  // Calls `take` with each integer. False where the bytes are none.
  bool ForEachInteger(absl::FunctionRef<void(int64_t)> take) const;
  // Of bytes.
  void ForEachBytes(absl::FunctionRef<void(absl::string_view)> take) const;
};

// The features of a record, found without a copy of them.
//
// Bytes as TensorFlow's writers make them, one piece of each part in the order
// of the fields, are taken apart here: several times as fast as by protoc's
// code, which makes an object of every feature. Whatever else stands for an
// Example (values unpacked, messages in pieces, unknown fields) is first
// brought into that form by protoc's code.
//
// Not copyable; reusable.
class TfExample {
 public:
  TfExample() = default;
  TfExample(const TfExample&) = delete;
  TfExample& operator=(const TfExample&) = delete;

  // Whether the record is an Example. What it finds stays as long as the
  // record, and until the next call. Integers are not tested: ForEachInteger().
  bool Parse(absl::string_view record);

  // In the order of the record. Of two with one name the last counts.
  absl::Span<const TfFeature> features() const { return features_; }

 private:
  bool ParsePlain(absl::string_view record);

  absl::InlinedVector<TfFeature, 16> features_;
  // Of a record that was brought into form.
  std::string plain_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_TF_EXAMPLE_H_
