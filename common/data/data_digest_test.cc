// SPDX-License-Identifier: Apache-2.0
#include "common/data/data_digest.h"

#include <gtest/gtest.h>

#include <vector>

namespace holdfast {
namespace {

// Sets above 1000 bytes are sampled by 16 blocks of 10 bytes.
DataDigest::Options Small() {
  DataDigest::Options options;
  options.limit = 1000;
  options.blocks = 16;
  options.block_bytes = 10;
  return options;
}

std::vector<uint8_t> Bytes(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = i * 7 % 251;
  return bytes;
}

std::string DigestOf(const std::vector<uint8_t>& bytes) {
  DataDigest digest(bytes.size(), Small());
  digest.AddPart(bytes);
  return digest.Hex();
}

// For how many of `size` bytes a change changes the digest.
int BytesThatCount(size_t size) {
  std::vector<uint8_t> bytes = Bytes(size);
  const std::string digest = DigestOf(bytes);
  int count = 0;
  for (uint8_t& byte : bytes) {
    byte ^= 1;
    count += DigestOf(bytes) != digest ? 1 : 0;
    byte ^= 1;
  }
  return count;
}

TEST(DataDigestTest, IsOfAllBytesUpToTheLimit) {
  const std::vector<uint8_t> bytes = Bytes(1000);
  DataDigest digest(1000, Small());
  EXPECT_FALSE(digest.sampled());
  digest.AddHeader("header");
  digest.AddPart(absl::MakeSpan(bytes).subspan(0, 300));
  digest.AddPart(absl::MakeSpan(bytes).subspan(300));
  Sha256 sha;
  sha.Update("header");
  sha.Update(bytes.data(), bytes.size());
  EXPECT_EQ(digest.Hex(), sha.HexDigest());
  EXPECT_EQ(BytesThatCount(1000), 1000);
}

TEST(DataDigestTest, IsOfSamplesBeyondIt) {
  for (const size_t size : {1001, 1600, 5003}) {
    EXPECT_EQ(BytesThatCount(size), 160) << size;
  }
  std::vector<uint8_t> bytes = Bytes(5000);
  const std::string digest = DigestOf(bytes);
  for (const size_t place : {0, 9, 4990, 4999}) {
    bytes[place] ^= 1;
    EXPECT_NE(DigestOf(bytes), digest) << place;
    bytes[place] ^= 1;
  }
  // The size is digested even if no sample differs.
  bytes.insert(bytes.begin() + 2500, 0);
  EXPECT_NE(DigestOf(bytes), digest);
}

TEST(DataDigestTest, PartsHaveTheirShareOfTheSamples) {
  const std::vector<uint8_t> large = Bytes(9000), small = Bytes(150),
                             middle = Bytes(850);
  const auto digest_of = [&](const std::vector<uint8_t>& part) {
    DataDigest digest(10000, Small());
    EXPECT_TRUE(digest.sampled());
    for (const auto* each : {&large, &small, &middle}) {
      digest.AddPart(each->size() == part.size() ? part : *each);
    }
    return digest.Hex();
  };
  const auto bytes_that_count = [&](std::vector<uint8_t> part) {
    const std::string digest = digest_of(part);
    int count = 0;
    for (uint8_t& byte : part) {
      byte ^= 1;
      count += digest_of(part) != digest ? 1 : 0;
      byte ^= 1;
    }
    return count;
  };
  // 14 of 16 blocks, and at least two.
  EXPECT_EQ(bytes_that_count(large), 140);
  EXPECT_EQ(bytes_that_count(middle), 20);
  // Digested whole, because 16 blocks would cover it.
  EXPECT_EQ(bytes_that_count(small), 150);
}

// Workers of different builds must compute the same digest.
TEST(DataDigestTest, NeverChanges) {
  EXPECT_EQ(DigestOf(Bytes(5000)),
            "f8aae4968e79120c3280a0add5f0a0f2c3987b975ac2d60835381a61ba2a1c90");
}

}  // namespace
}  // namespace holdfast
