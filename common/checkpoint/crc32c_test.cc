// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(Crc32cTest, MatchesPublishedValues) {
  // The check value of CRC-32/ISCSI in the catalogue of parametrised CRCs, and
  // RFC 3720, appendix B.4.
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32cTest, GoesOnFromAnyPlace) {
  const std::string text = "What is read is tested against its checksum.";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t head = Crc32c(text.substr(0, cut));
    EXPECT_EQ(ExtendCrc32c(head, text.data() + cut, text.size() - cut),
              Crc32c(text));
  }
}

}  // namespace
}  // namespace holdfast
