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

// "uint8", "float32": as NumPy says it.
absl::string_view TypeName(ElementType type);
int64_t TypeSize(ElementType type);
bool IsInteger(ElementType type);

// What becomes of a number in an input: (scale x number - mean) / stddev, in
// float32, rounded one by one.
struct InputScaling {
  float scale = 1;
  float mean = 0;
  float stddev = 1;

  float Of(float number) const { return (number * scale - mean) / stddev; }
};

// The numbers from `from` on, as many as `to` takes.
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
  // Keeps the bytes.
  std::shared_ptr<const void> owner;
  // Whether they are in a mapped file.
  bool mapped = false;
  // For messages: the file, and the array in it.
  std::string place;
  // What a digest says of type and shape.
  std::string header;

  int64_t rows() const { return shape[0]; }
  // Elements in one of them.
  int64_t row_size() const;

  // Element `index` of all, of a type of integers; of a uint64 that no int64
  // holds, the greatest int64.
  int64_t IntegerAt(int64_t index) const;
  // Element `index` of all, rounded to float32.
  float FloatAt(int64_t index) const;
  // The elements from `first` on, as many as `to` takes.
  void ReadFloats(int64_t first, const InputScaling& scaling,
                  absl::Span<float> to) const;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_TYPED_ARRAY_H_
