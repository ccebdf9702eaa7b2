// SPDX-License-Identifier: Apache-2.0
#include "common/data/id_hash.h"

#include <gtest/gtest.h>

#include <string>

namespace holdfast {
namespace {

// The values of xxHash's own sanity test (xxhsum): the bytes are the top ones
// of powers of a prime.
std::string SanityBytes(size_t size) {
  constexpr uint64_t kPrime64 = 11400714785074694797u;
  uint64_t word = 2654435761u;
  std::string bytes;
  for (size_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(word >> 56));
    word *= kPrime64;
  }
  return bytes;
}

TEST(IdHashTest, IsXxh64) {
  constexpr uint64_t kPrime32 = 2654435761u;
  EXPECT_EQ(IdHash(0, ""), 0xEF46DB3751D8E999u);
  EXPECT_EQ(IdHash(kPrime32, ""), 0xAC75FDA2929B17EFu);
  EXPECT_EQ(IdHash(0, SanityBytes(1)), 0xE934A84ADB052768u);
  EXPECT_EQ(IdHash(kPrime32, SanityBytes(1)), 0x5014607643A9B4C3u);
  EXPECT_EQ(IdHash(0, SanityBytes(14)), 0x8282DCC4994E35C8u);
  EXPECT_EQ(IdHash(kPrime32, SanityBytes(14)), 0xC3BD6BF63DEB6DF0u);
  EXPECT_EQ(IdHash(0, SanityBytes(222)), 0xB641AE8CB691C174u);
  EXPECT_EQ(IdHash(kPrime32, SanityBytes(222)), 0x20CB8AB7AE10C14Au);
}

// The example of docs/data.md.
TEST(IdHashTest, KeepsTheIdsOfCheckpoints) {
  EXPECT_EQ(IdSeed("C1"), 1953052475120754509u);
  EXPECT_EQ(IdHash(IdSeed("C1"), "68fd1e64"), 6601481875315734487u);
  EXPECT_EQ(IdHash(IdSeed("C1"), ""), 3861981521770203694u);
  EXPECT_NE(IdHash(IdSeed("C2"), "68fd1e64"), IdHash(IdSeed("C1"), "68fd1e64"));
}

}  // namespace
}  // namespace holdfast
