// SPDX-License-Identifier: Apache-2.0
#include "common/base/printable_text.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(PrintableTextTest, HasNothingThatATerminalObeys) {
  EXPECT_EQ(PrintableText("plain \xc3\xa9 \xf0\x9f\x90\xa2"),
            "plain \xc3\xa9 \xf0\x9f\x90\xa2");
  EXPECT_EQ(PrintableText("a\nb\tc"), "a b c");
  EXPECT_EQ(PrintableText("\033[2J\a\x7f"), "?[2J??");
  // The control sequence introducer as a C1 character, in UTF-8 and alone.
  EXPECT_EQ(PrintableText("\xc2\x9b"
                          "2J"),
            "?2J");
  EXPECT_EQ(PrintableText("\x9b"
                          "2J"),
            "?2J");
  EXPECT_EQ(PrintableText("\xff\xfe"), "??");
  EXPECT_EQ(PrintableText(absl::string_view("\0x", 2)), "?x");
}

TEST(PrintableTextTest, HasNothingThatMisleadsReaders) {
  // RIGHT-TO-LEFT OVERRIDE and ISOLATE, LINE SEPARATOR, a zero-width space, a
  // byte order mark, a tag.
  for (const char* text :
       {"\xe2\x80\xae", "\xe2\x81\xa7", "\xe2\x80\xa8", "\xe2\x80\x8b",
        "\xef\xbb\xbf", "\xf3\xa0\x81\x81"}) {
    EXPECT_EQ(PrintableText(text), "?");
  }
  // A family: three people, joined.
  const std::string family =
      "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\xe2\x80\x8d\xf0\x9f\x91"
      "\xa6";
  EXPECT_EQ(PrintableText(family), family);
}

TEST(PrintableTextTest, MayKeepLines) {
  EXPECT_EQ(PrintableLines("a\n\tb\r\n\033[m"), "a\n\tb?\n?[m");
}

TEST(EscapedTextTest, CanBeReadBack) {
  const std::string text = "a\"\\\n\xc3\xa9\xc2\x9b\xff\xe2\x80\xae";
  const std::string escaped = EscapedText(text);
  EXPECT_EQ(escaped, "a\\\"\\\\\\n\xc3\xa9\\302\\233\\377\\342\\200\\256");
  std::string read;
  ASSERT_TRUE(absl::CUnescape(escaped, &read));
  EXPECT_EQ(read, text);
}

}  // namespace
}  // namespace holdfast
