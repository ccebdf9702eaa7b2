// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/shape.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr int64_t k2To31 = int64_t{1} << 31;
constexpr int64_t k2To62 = int64_t{1} << 62;

TEST(ShapeTest, NumElements) {
  const struct {
    std::vector<int64_t> shape;
    int64_t elements;
  } kCases[] = {
      {{}, 1},
      {{7}, 7},
      {{784, 10}, 7840},
      {{3, 3, 16, 32}, 4608},
      {{0}, 0},
      {{5, 0, 3}, 0},
      {{k2To31, k2To31}, k2To62},
      {{INT64_MAX}, INT64_MAX},
      {{1, INT64_MAX, 1}, INT64_MAX},
  };
  for (const auto& test : kCases) {
    const auto elements = NumElements(test.shape);
    ASSERT_TRUE(elements.ok()) << elements.status();
    EXPECT_EQ(*elements, test.elements) << ShapeString(test.shape);
  }
}

TEST(ShapeTest, RefusedShapes) {
  const struct {
    std::vector<int64_t> shape;
    std::string error;
  } kCases[] = {
      {{-1}, "shape [-1] has a negative dimension"},
      {{3, -2}, "shape [3,-2] has a negative dimension"},
      {{0, -2}, "shape [0,-2] has a negative dimension"},
      {{k2To62, 2}, "more elements than 64 bits can count"},
      {{k2To31, k2To31, k2To31}, "more elements than 64 bits can count"},
      {{0, k2To62, 2}, "more elements than 64 bits can count"},
      {{INT64_MAX, INT64_MAX}, "more elements than 64 bits can count"},
  };
  for (const auto& test : kCases) {
    const auto elements = NumElements(test.shape);
    EXPECT_EQ(elements.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(elements.status().message()),
                HasSubstr(test.error));
  }
}

TEST(ShapeTest, ShapeString) {
  EXPECT_EQ(ShapeString({}), "[]");
  EXPECT_EQ(ShapeString({10}), "[10]");
  EXPECT_EQ(ShapeString({784, 10}), "[784,10]");
}

}  // namespace
}  // namespace holdfast
