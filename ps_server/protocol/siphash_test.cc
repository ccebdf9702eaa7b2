// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/siphash.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

// 00 01 02 ...
std::string Bytes(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

std::string ToBytes(const std::vector<uint64_t>& words) {
  std::string bytes;
  for (const uint64_t word : words) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes.push_back(static_cast<char>(word >> shift));
    }
  }
  return bytes;
}

uint64_t ByOpenssl(const std::string& key, const std::string& message) {
  const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> mac(
      EVP_MAC_fetch(nullptr, "SIPHASH", nullptr), EVP_MAC_free);
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(
      EVP_MAC_CTX_new(mac.get()), EVP_MAC_CTX_free);
  size_t size = sizeof(uint64_t);
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
      OSSL_PARAM_construct_end()};
  EXPECT_EQ(EVP_MAC_init(context.get(),
                         reinterpret_cast<const unsigned char*>(key.data()),
                         key.size(), params),
            1);
  EXPECT_EQ(
      EVP_MAC_update(context.get(),
                     reinterpret_cast<const unsigned char*>(message.data()),
                     message.size()),
      1);
  unsigned char code[sizeof(uint64_t)] = {};
  EXPECT_EQ(EVP_MAC_final(context.get(), code, &size, sizeof(code)), 1);
  uint64_t value = 0;
  for (size_t i = sizeof(code); i-- > 0;) value = value << 8 | code[i];
  return value;
}

// The codes of the messages of 0, 8 and 16 bytes 00 01 02 ... under the key 00
// 01 ... 0f: vectors_sip64 of the authors' own code (github.com/veorq/SipHash,
// vectors.h), read as little-endian.
TEST(SipHashTest, MakesThePublishedCodes) {
  const SipHash hash(Bytes(SipHash::kKeyBytes));
  std::vector<uint64_t> words;
  EXPECT_EQ(hash.Of(words), 0x726fdb47dd0e0e31);
  words.push_back(0x0706050403020100);
  EXPECT_EQ(hash.Of(words), 0x93f5f5799a932462);
  words.push_back(0x0f0e0d0c0b0a0908);
  EXPECT_EQ(hash.Of(words), 0x3f2acc7f57c29bdb);
}

TEST(SipHashTest, IsThatOfOpenssl) {
  std::string key = Bytes(SipHash::kKeyBytes);
  uint64_t word = 1;
  // Beyond 32 words the length no longer fits in its byte.
  for (size_t count = 0; count < 70; ++count) {
    std::vector<uint64_t> words;
    for (size_t i = 0; i < count; ++i) {
      word = word * 6364136223846793005 + 1442695040888963407;
      words.push_back(word);
    }
    key[count % key.size()] = static_cast<char>(word >> 56);
    EXPECT_EQ(SipHash(key).Of(words), ByOpenssl(key, ToBytes(words))) << count;
  }
}

TEST(SipHashTest, DependsOnTheKeyAndOnEachWord) {
  const SipHash hash(Bytes(SipHash::kKeyBytes));
  const SipHash other(std::string(SipHash::kKeyBytes, 'k'));
  EXPECT_EQ(hash.Of({1, 2}), hash.Of({1, 2}));
  EXPECT_NE(hash.Of({1, 2}), other.Of({1, 2}));
  EXPECT_NE(hash.Of({1, 2}), hash.Of({2, 1}));
  EXPECT_NE(hash.Of({1, 2}), hash.Of({1, 2, 0}));
}

}  // namespace
}  // namespace holdfast
