// SPDX-License-Identifier: Apache-2.0
#include "common/base/byte_size.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(ParseBytesTest, NumbersAndUnits) {
  const struct {
    const char* text;
    int64_t bytes;
  } kCases[] = {
      {"1", 1},
      {"4096", 4096},
      {"17B", 17},
      {"2kB", 2000},
      {"2KB", 2000},
      {"2KiB", 2048},
      {"500MB", 500000000},
      {"3MiB", 3145728},
      {"8GB", 8000000000},
      {"8GiB", 8589934592},
      {"1.5GiB", 1610612736},
      {"2TB", 2000000000000},
      {"1TiB", 1099511627776},
      {"8 GiB", 8589934592},
  };
  for (const auto& c : kCases) {
    const auto bytes = ParseBytes(c.text);
    ASSERT_TRUE(bytes.ok()) << c.text << ": " << bytes.status();
    EXPECT_EQ(*bytes, c.bytes) << c.text;
  }
}

TEST(ParseBytesTest, WhatIsNoNumberOfBytes) {
  for (const char* text : {"", "0", "-1", "-8GiB", "GiB", "8gib", "8 G", "nan",
                           "inf", "1e30", "0.5", "8GiBs", "99999999TiB"}) {
    const auto bytes = ParseBytes(text);
    EXPECT_FALSE(bytes.ok()) << text << " is " << *bytes;
    EXPECT_TRUE(absl::StrContains(bytes.status().message(),
                                  absl::StrCat("\"", text, "\"")))
        << bytes.status();
  }
}

}  // namespace
}  // namespace holdfast
