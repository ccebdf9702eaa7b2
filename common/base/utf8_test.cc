// SPDX-License-Identifier: Apache-2.0
#include "common/base/utf8.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(Utf8CharacterBytesTest, Table) {
  EXPECT_EQ(Utf8CharacterBytes("az"), 1u);
  EXPECT_EQ(Utf8CharacterBytes("\x7f"), 1u);
  EXPECT_EQ(Utf8CharacterBytes("\xc3\xa9z"), 2u);
  EXPECT_EQ(Utf8CharacterBytes("\xe2\x82\xac"), 3u);
  EXPECT_EQ(Utf8CharacterBytes("\xf0\x9f\x90\xa2"), 4u);
  EXPECT_EQ(Utf8CharacterBytes("\xf4\x8f\xbf\xbf"), 4u);
}

TEST(Utf8CodePointTest, Table) {
  EXPECT_EQ(Utf8CodePoint("a"), 0x61u);
  EXPECT_EQ(Utf8CodePoint("\xc3\xa9"), 0xe9u);
  EXPECT_EQ(Utf8CodePoint("\xe2\x82\xac"), 0x20acu);
  EXPECT_EQ(Utf8CodePoint("\xf0\x9f\x90\xa2"), 0x1f422u);
}

TEST(Utf8CharacterBytesTest, NoneOfWhatIsNotUtf8) {
  // A lone continuation byte, lead bytes without them, overlong forms of '/', a
  // surrogate, and a code point above U+10FFFF.
  for (const char* text : {"\x80", "\xc3", "\xc3z", "\xe2\x82", "\xf0\x9f\x90",
                           "\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf",
                           "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"}) {
    EXPECT_EQ(Utf8CharacterBytes(text), 0u);
  }
}

}  // namespace
}  // namespace holdfast
