// SPDX-License-Identifier: Apache-2.0
#include "common/data/typed_array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace holdfast {
namespace {

using ::testing::ElementsAre;

// An array of these numbers, little-endian.
template <typename T>
TypedArray ArrayOf(ElementType type, const std::vector<T>& numbers) {
  const auto bytes =
      std::make_shared<std::vector<uint8_t>>(numbers.size() * sizeof(T));
  std::memcpy(bytes->data(), numbers.data(), bytes->size());
  TypedArray array;
  array.type = type;
  array.shape = {static_cast<int64_t>(numbers.size())};
  array.bytes = *bytes;
  array.owner = bytes;
  return array;
}

TEST(TypedArrayTest, ReadsEveryType) {
  const auto check = [](const TypedArray& array, float second) {
    EXPECT_EQ(array.bytes.size(), 2u * TypeSize(array.type))
        << TypeName(array.type);
    EXPECT_EQ(array.FloatAt(0), 7) << TypeName(array.type);
    EXPECT_EQ(array.FloatAt(1), second) << TypeName(array.type);
    if (IsInteger(array.type)) {
      EXPECT_EQ(array.IntegerAt(0), 7);
      EXPECT_EQ(array.IntegerAt(1), static_cast<int64_t>(second));
    }
  };
  check(ArrayOf<uint8_t>(ElementType::kUint8, {7, 255}), 255);
  check(ArrayOf<int8_t>(ElementType::kInt8, {7, -128}), -128);
  check(ArrayOf<uint16_t>(ElementType::kUint16, {7, 65535}), 65535);
  check(ArrayOf<int16_t>(ElementType::kInt16, {7, -32768}), -32768);
  check(ArrayOf<uint32_t>(ElementType::kUint32, {7, 1u << 31}), 0x1p31f);
  check(ArrayOf<int32_t>(ElementType::kInt32, {7, -5}), -5);
  check(ArrayOf<uint64_t>(ElementType::kUint64, {7, 1ull << 40}), 0x1p40f);
  check(ArrayOf<int64_t>(ElementType::kInt64, {7, -(1ll << 40)}), -0x1p40f);
  check(ArrayOf<float>(ElementType::kFloat32, {7, 0.1f}), 0.1f);
  check(ArrayOf<double>(ElementType::kFloat64, {7, 0.1}), 0.1f);
  EXPECT_EQ(ArrayOf<uint64_t>(ElementType::kUint64, {~0ull}).IntegerAt(0),
            std::numeric_limits<int64_t>::max());
}

TEST(TypedArrayTest, SwapsAndScales) {
  TypedArray array = ArrayOf<uint16_t>(ElementType::kUint16, {0x0100, 0x0300});
  array.big_endian = true;
  std::vector<float> values(2);
  // (1 / 2 - 1) / 4 and (3 / 2 - 1) / 4.
  array.ReadFloats(0, {0.5f, 1, 4}, absl::MakeSpan(values));
  EXPECT_THAT(values, ElementsAre(-0.125f, 0.125f));
}

TEST(TypedArrayTest, RowsMayLieAnywhereInMemory) {
  TypedArray array = ArrayOf<float>(ElementType::kFloat32, {1, 2, 3, 4});
  const auto shifted = std::make_shared<std::vector<uint8_t>>(17);
  std::memcpy(shifted->data() + 1, array.bytes.data(), 16);
  array.bytes = absl::MakeConstSpan(*shifted).subspan(1);
  array.owner = shifted;
  array.shape = {2, 2};
  EXPECT_EQ(array.rows(), 2);
  EXPECT_EQ(array.row_size(), 2);
  std::vector<float> row(2);
  array.ReadFloats(2, {}, absl::MakeSpan(row));
  EXPECT_THAT(row, ElementsAre(3, 4));
}

}  // namespace
}  // namespace holdfast
