#include "common/siphash.h"

#include <string>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

std::string Bytes(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

// Of the messages 00, 00 01, ... under the key 00 01 ... 0f: vectors_sip64 of
// the authors' own code (github.com/veorq/SipHash, vectors.h), read as
// little-endian; that of 15 bytes is Appendix A of their paper.
TEST(SipHashTest, MakesThePublishedCodes) {
  const SipHash hash(Bytes(16));
  EXPECT_EQ(hash.Of(""), 0x726fdb47dd0e0e31);
  EXPECT_EQ(hash.Of(Bytes(1)), 0x74f839c593dc67fd);
  EXPECT_EQ(hash.Of(Bytes(2)), 0x0d6c8009d9a94f5a);
  EXPECT_EQ(hash.Of(Bytes(7)), 0xab0200f58b01d137);
  EXPECT_EQ(hash.Of(Bytes(8)), 0x93f5f5799a932462);
  EXPECT_EQ(hash.Of(Bytes(15)), 0xa129ca6149be45e5);
  EXPECT_EQ(hash.Of(Bytes(63)), 0x958a324ceb064572);
}

TEST(SipHashTest, IsTheSameEachTime) {
  const SipHash hash(Bytes(16));
  const SipHash other(std::string(16, 'k'));
  EXPECT_EQ(hash.Of("message"), hash.Of("message"));
  EXPECT_NE(hash.Of("message"), other.Of("message"));
  EXPECT_NE(hash.Of("message"), hash.Of("messagf"));
}

}  // namespace
}  // namespace holdfast
