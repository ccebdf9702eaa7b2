// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/row_ids.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMax = ~uint64_t{0};

std::vector<uint64_t> Decoded(const std::string& bytes, uint64_t count) {
  const absl::StatusOr<std::vector<uint64_t>> ids = DecodeRowIds(bytes, count);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : std::vector<uint64_t>();
}

std::string Error(absl::string_view bytes, uint64_t count) {
  const absl::Status status = DecodeRowIds(bytes, count).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(RowIdsTest, BytesByHand) {
  const struct {
    std::vector<uint64_t> ids;
    std::string bytes;
  } kCases[] = {
      {{}, ""},
      {{0}, std::string(1, '\0')},
      {{127}, "\x7f"},
      // 300 = 2 * 128 + 44, protobuf's own example of a varint.
      {{300}, "\xac\x02"},
      // Consecutive ids take a byte of 0 each.
      {{5, 6, 7}, std::string("\x05\0\0", 3)},
      {{5, 134}, "\x05\x80\x01"},
      {{kMax}, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
      {{kMax - 1, kMax},
       std::string("\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0", 11)},
      // 0, and 2^64 - 1 - 0 - 1.
      {{0, kMax},
       std::string("\0\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(EncodeRowIds(test.ids), test.bytes);
    EXPECT_EQ(Decoded(test.bytes, test.ids.size()), test.ids);
  }
}

TEST(RowIdsTest, WhatIsNotAnEncoding_B4_B12) {
  // A peer's claim, for which nothing is allocated.
  EXPECT_THAT(Error("\x05", 1'000'000'000),
              HasSubstr("1 bytes are too few for the ids of 1000000000 rows"));
  EXPECT_THAT(Error("", 1), HasSubstr("too few"));
  EXPECT_THAT(Error("\x80", 1), HasSubstr("id 0 of 1"));
  EXPECT_THAT(Error("\x05\x80", 2), HasSubstr("id 1 of 2"));
  // Longer than necessary: 5 in two bytes, and 0 in two.
  EXPECT_THAT(Error(absl::string_view("\x85\0", 2), 1), HasSubstr("shortest"));
  EXPECT_THAT(Error(absl::string_view("\x80\0", 2), 1), HasSubstr("shortest"));
  // 2^64, and eleven bytes.
  EXPECT_THAT(Error("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 1),
              HasSubstr("64 bits"));
  EXPECT_THAT(Error("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1),
              HasSubstr("64 bits"));
  // 2^64 - 1 and one more; and 1 + 2^64 - 1 + 1.
  EXPECT_THAT(
      Error(absl::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0", 11),
            2),
      HasSubstr("id 1 of 2 is beyond 64 bits"));
  EXPECT_THAT(Error("\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 2),
              HasSubstr("id 1 of 2 is beyond 64 bits"));
  EXPECT_THAT(Error("\x05\x05", 1), HasSubstr("1 bytes follow"));
}

// Bytes that decode are the encoding of the ids they decode to, so there is one
// for each list of ids; all other bytes are rejected.
void Check(const std::string& bytes, uint64_t count) {
  const absl::StatusOr<std::vector<uint64_t>> ids = DecodeRowIds(bytes, count);
  if (!ids.ok()) return;
  ASSERT_EQ(ids->size(), count);
  ASSERT_TRUE(std::is_sorted(ids->begin(), ids->end()));
  ASSERT_EQ(std::adjacent_find(ids->begin(), ids->end()), ids->end());
  ASSERT_EQ(EncodeRowIds(*ids), bytes);
}

TEST(RowIdsTest, RandomIdsComeBack) {
  for (uint32_t i = 0; i < 2000; ++i) {
    const auto shape = Philox4x32({i}, {1});
    // Close together, far apart, and all of 64 bits.
    const int bits = 1 + static_cast<int>(shape[0] % 64);
    std::vector<uint64_t> ids;
    for (uint32_t j = 0; j < shape[1] % 50; ++j) {
      const auto random = Philox4x32({i, j}, {2});
      ids.push_back((uint64_t{random[0]} << 32 | random[1]) >> (64 - bits));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    const std::string bytes = EncodeRowIds(ids);
    ASSERT_EQ(Decoded(bytes, ids.size()), ids);
    // Damaged: a byte changed, taken or added.
    if (bytes.empty()) continue;
    std::string damaged = bytes;
    damaged[shape[2] % bytes.size()] ^= 1 << shape[3] % 8;
    Check(damaged, ids.size());
    Check(bytes.substr(0, bytes.size() - 1), ids.size());
    Check(bytes + '\0', ids.size());
    Check(bytes + '\0', ids.size() + 1);
    Check(bytes, ids.size() + 1);
  }
}

TEST(RowIdsTest, RandomBytes_B4) {
  for (uint32_t i = 0; i < 100000; ++i) {
    const auto shape = Philox4x32({i}, {3});
    std::string bytes;
    for (uint32_t j = 0; j < shape[0] % 24; ++j) {
      const uint32_t random = Philox4x32({i, j}, {4})[0];
      // Mostly bytes that make varints long, or that end them.
      constexpr uint8_t kBytes[] = {0, 1, 2, 0x7f, 0x80, 0xff, 0xff, 0xff};
      bytes.push_back(static_cast<char>(random % 2 == 0 ? kBytes[random >> 29]
                                                        : random >> 24));
    }
    Check(bytes, shape[1] % 4);
  }
}

}  // namespace
}  // namespace holdfast
