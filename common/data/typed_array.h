// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_TYPED_ARRAY_H_
#define HOLDFAST_COMMON_DATA_TYPED_ARRAY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

enum class ElementType {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat32,
  kFloat64,
};

// NumPy's name of the type: "uint8", "float32".
absl::string_view TypeName(ElementType type);
int64_t TypeSize(ElementType type);
bool IsInteger(ElementType type);

// How a number becomes a value of an input: (scale x number - mean) / stddev,
// in float32, with each operation rounded.
struct InputScaling {
  float scale = 1;
  float mean = 0;
  float stddev = 1;

  float Of(float number) const { return (number * scale - mean) / stddev; }
};

// Fills `to` with the scaled numbers that begin at `from`.
void ReadNumbers(ElementType type, bool big_endian, const uint8_t* from,
                 const InputScaling& scaling, absl::Span<float> to);

// Numbers of one type, row-major, in memory or in a mapped file.
//
// Immutable once made, thus thread-safe.
struct TypedArray {
  ElementType type = ElementType::kUint8;
  bool big_endian = false;
  // At least one dimension; each is at least 1.
  std::vector<int64_t> shape;
  absl::Span<const uint8_t> bytes;
  // Keeps the bytes alive.
  std::shared_ptr<const void> owner;
  // Whether the bytes are in a mapped file.
  bool mapped = false;
  // Where the array is from, for messages: the file, and the array's name in
  // it.
  std::string place;
  // The text that stands for the array's type and shape in a digest.
  std::string header;

  int64_t rows() const { return shape[0]; }
  // The number of elements in a row.
  int64_t row_size() const;

  // Element `index`, counting through all rows, of an array of an integer type.
  // A uint64 that does not fit becomes the greatest int64.
  int64_t IntegerAt(int64_t index) const;
  // Element `index`, counting through all rows, rounded to float32.
  float FloatAt(int64_t index) const;
  // Fills `to` with the scaled elements from element `first` on.
  void ReadFloats(int64_t first, const InputScaling& scaling,
                  absl::Span<float> to) const;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_TYPED_ARRAY_H_
