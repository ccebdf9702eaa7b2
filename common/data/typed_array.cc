// SPDX-License-Identifier: Apache-2.0
#include "common/data/typed_array.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace holdfast {
namespace {

template <typename T, bool kSwap>
T Load(const uint8_t* from) {
  T value;
  if constexpr (kSwap && sizeof(T) > 1) {
    uint8_t swapped[sizeof(T)];
    std::reverse_copy(from, from + sizeof(T), swapped);
    std::memcpy(&value, swapped, sizeof(T));
  } else {
    std::memcpy(&value, from, sizeof(T));
  }
  return value;
}

template <typename T, bool kSwap>
void Convert(const uint8_t* from, InputScaling scaling, int64_t size,
             float* to) {
  for (int64_t i = 0; i < size; ++i) {
    to[i] = scaling.Of(
        static_cast<float>(Load<T, kSwap>(from + i * int64_t{sizeof(T)})));
  }
}

// Calls function(T()), where T is the C++ type of `type`.
template <typename Function>
auto WithType(ElementType type, Function function) {
  switch (type) {
    case ElementType::kUint8:
      return function(uint8_t{});
    case ElementType::kInt8:
      return function(int8_t{});
    case ElementType::kUint16:
      return function(uint16_t{});
    case ElementType::kInt16:
      return function(int16_t{});
    case ElementType::kUint32:
      return function(uint32_t{});
    case ElementType::kInt32:
      return function(int32_t{});
    case ElementType::kUint64:
      return function(uint64_t{});
    case ElementType::kInt64:
      return function(int64_t{});
    case ElementType::kFloat32:
      return function(float{});
    case ElementType::kFloat64:
      break;
  }
  return function(double{});
}

}  // namespace

absl::string_view TypeName(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return "uint8";
    case ElementType::kInt8:
      return "int8";
    case ElementType::kUint16:
      return "uint16";
    case ElementType::kInt16:
      return "int16";
    case ElementType::kUint32:
      return "uint32";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kUint64:
      return "uint64";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      break;
  }
  return "float64";
}

int64_t TypeSize(ElementType type) {
  return WithType(type, [](auto value) { return int64_t{sizeof(value)}; });
}

bool IsInteger(ElementType type) {
  return type != ElementType::kFloat32 && type != ElementType::kFloat64;
}

void ReadNumbers(ElementType type, bool big_endian, const uint8_t* from,
                 const InputScaling& scaling, absl::Span<float> to) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    const int64_t size = to.size();
    if (big_endian) {
      Convert<T, true>(from, scaling, size, to.data());
    } else {
      Convert<T, false>(from, scaling, size, to.data());
    }
  });
}

int64_t TypedArray::row_size() const {
  int64_t size = 1;
  for (size_t i = 1; i < shape.size(); ++i) size *= shape[i];
  return size;
}

int64_t TypedArray::IntegerAt(int64_t index) const {
  return WithType(type, [&](auto zero) {
    using T = decltype(zero);
    const uint8_t* const from = bytes.data() + index * int64_t{sizeof(T)};
    const T value = big_endian ? Load<T, true>(from) : Load<T, false>(from);
    if constexpr (std::is_same_v<T, uint64_t>) {
      return static_cast<int64_t>(
          std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
    } else {
      return static_cast<int64_t>(value);
    }
  });
}

float TypedArray::FloatAt(int64_t index) const {
  float value = 0;
  ReadFloats(index, {}, absl::MakeSpan(&value, 1));
  return value;
}

void TypedArray::ReadFloats(int64_t first, const InputScaling& scaling,
                            absl::Span<float> to) const {
  ReadNumbers(type, big_endian, bytes.data() + first * TypeSize(type), scaling,
              to);
}

}  // namespace holdfast
