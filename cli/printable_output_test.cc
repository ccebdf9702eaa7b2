// SPDX-License-Identifier: Apache-2.0
#include "cli/printable_output.h"

#include <iomanip>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

class PrintableOutputTest : public ::testing::Test {
 protected:
  std::ostringstream terminal_;
  PrintableBuffer buffer_{terminal_.rdbuf()};
  std::ostream out_{&buffer_};
};

TEST_F(PrintableOutputTest, PassesOnOnlyPrintableText) {
  out_ << "a\tb " << std::setw(3) << 7 << "\n\033]0;title\a\x9b"
       << "2J\r\xe2\x80\xae" << std::endl;
  EXPECT_EQ(terminal_.str(), "a\tb   7\n?]0;title??2J??\n");
}

TEST_F(PrintableOutputTest, ACharacterMayComeInPieces) {
  out_ << "\xe2\x82" << std::flush;
  EXPECT_EQ(terminal_.str(), "");
  out_.put('\xac');
  out_ << std::flush;
  EXPECT_EQ(terminal_.str(), "\xe2\x82\xac");
  // The second byte of a C1 character comes later, too.
  out_ << "\xc2" << std::flush << "\x9b" << std::flush;
  EXPECT_EQ(terminal_.str(), "\xe2\x82\xac?");
  out_ << "\xe2\x82" << std::flush << "z" << std::flush;
  EXPECT_EQ(terminal_.str(), "\xe2\x82\xac???z");
}

TEST_F(PrintableOutputTest, LinesDoNotWait) {
  out_ << "one\ntwo";
  EXPECT_EQ(terminal_.str(), "one\n");
  const std::string line(1 << 17, 'x');
  out_ << line;
  EXPECT_EQ(terminal_.str(), "one\ntwo" + line);
}

TEST_F(PrintableOutputTest, TheCommandsOwnSequencesPass) {
  out_ << "two" << Verbatim{"\033[K\xff"} << "three" << std::flush;
  EXPECT_EQ(terminal_.str(), "two\033[K\xffthree");
  std::ostringstream other;
  other << Verbatim{"\033[K"};
  EXPECT_EQ(other.str(), "\033[K");
}

}  // namespace
}  // namespace holdfast
