// SPDX-License-Identifier: Apache-2.0
#include "common/base/checksum.h"

#include <string>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

// The values of `xxhsum -H3`.
TEST(ChecksumTest, IsXxh3) {
  EXPECT_EQ(Checksum(nullptr, 0), 0x2d06800538d394c2);
  EXPECT_EQ(Checksum("a", 1), 0xe6c632b61e964e1f);
  const std::string long_text(1000, 'a');
  EXPECT_NE(Checksum(long_text.data(), 1000), Checksum(long_text.data(), 999));
}

}  // namespace
}  // namespace holdfast
