// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(DrawScreenTest, WritesOverWhatIsThere) {
  EXPECT_EQ(DrawScreen({{"one"}, {"two"}}, {10, 5}),
            "\033[H"
            "one\033[K\r\n"
            "two\033[K\r\n\033[J");
}

TEST(DrawScreenTest, StylesLines) {
  EXPECT_EQ(DrawScreen({{"one", Emphasis::kHeading}, {"two", Emphasis::kAlert}},
                       {10, 5}),
            "\033[H"
            "\033[1mone\033[m\033[K\r\n"
            "\033[31mtwo\033[m\033[K\r\n\033[J");
}

// After the last character of a full line the cursor stays on that character;
// after the last line the terminal would scroll.
TEST(DrawScreenTest, ClearsNothingOfAFullScreen) {
  EXPECT_EQ(DrawScreen({{"one"}, {"\xc3\xa9t\xc3\xa9"}}, {3, 2}),
            "\033[H"
            "one\r\n"
            "\xc3\xa9t\xc3\xa9");
}

TEST(TerminalTest, IsNeeded) {
  // The test program's standard input is not a terminal.
  const auto terminal = Terminal::Open();
  EXPECT_EQ(terminal.status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace holdfast
