// SPDX-License-Identifier: Apache-2.0
#include "common/process/flags.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(std::string, text, "initial", "A text.");
ABSL_FLAG(bool, loud, false, "A bool.");
ABSL_FLAG(std::optional<int64_t>, number, std::nullopt, "A number.");
ABSL_FLAG(absl::Duration, wait, absl::Seconds(10),
          "A duration that takes more than one line of the help, so that it is "
          "wrapped.");

namespace holdfast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FlagsTest : public testing::Test {
 protected:
  absl::FlagSaver saver_;
};

TEST_F(FlagsTest, BothFormsOfAValue) {
  ASSERT_TRUE(ParseFlags({"--text=a=b", "--number", "-3", "-wait=2.5s"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_text), "a=b");
  EXPECT_EQ(absl::GetFlag(FLAGS_number), -3);
  EXPECT_EQ(absl::GetFlag(FLAGS_wait), absl::Milliseconds(2500));
}

TEST_F(FlagsTest, FormsOfABool) {
  ASSERT_TRUE(ParseFlags({"--loud"}).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_loud));
  ASSERT_TRUE(ParseFlags({"--noloud"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_loud));
  ASSERT_TRUE(ParseFlags({"--loud=true"}).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_loud));
}

TEST_F(FlagsTest, AnEmptyValueIsAValue) {
  ASSERT_TRUE(ParseFlags({"--text="}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_text), "");
}

TEST_F(FlagsTest, ArgumentsAreKeptInOrder) {
  const auto line = ParseFlags({"one", "--loud", "two", "-", "--", "--text=x"});
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(line->arguments, ElementsAre("one", "two", "-", "--text=x"));
  EXPECT_FALSE(line->help);
  EXPECT_EQ(absl::GetFlag(FLAGS_text), "initial");
}

TEST_F(FlagsTest, Help) {
  for (const char* form : {"--help", "-help", "-h"}) {
    const auto line = ParseFlags({form});
    ASSERT_TRUE(line.ok());
    EXPECT_TRUE(line->help);
  }
  EXPECT_EQ(
      FlagsHelp({{"Times", {"wait"}}, {"Texts", {"text", "loud"}}}),
      "Times:\n"
      "  --wait (default 10s)\n"
      "      A duration that takes more than one line of the help, so that "
      "it is\n      wrapped.\n"
      "\nTexts:\n"
      "  --text (default initial)\n      A text.\n"
      "  --loud (default false)\n      A bool.\n"
      "\nOther:\n"
      "  --number\n      A number.\n");
}

TEST_F(FlagsTest, Version) {
  const auto line = ParseFlags({"--version"});
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(line->version);
}

TEST_F(FlagsTest, WrongUse) {
  const struct {
    std::vector<std::string> args;
    const char* error;
  } kCases[] = {
      {{"--txt=a"}, "unknown flag --txt;"},
      {{"--=a"}, "unknown flag --;"},
      {{"--notext"}, "unknown flag --notext;"},
      {{"--text"}, "flag --text needs a value"},
      {{"--number=many"}, "flag --number: \"many\" is not a whole number"},
      {{"--wait=10"}, "flag --wait: \"10\" is not a duration with a unit"},
      {{"--loud=perhaps"}, "flag --loud: \"perhaps\" is not true or false"},
      {{"--noloud=true"}, "unknown flag --noloud"},
      {{"--text=a", "--text=b"}, "flag --text is given twice: \"a\" and \"b\""},
      {{"--loud", "--noloud"}, "flag --loud is given twice"},
  };
  for (const auto& wrong : kCases) {
    absl::FlagSaver saver;
    const auto line = ParseFlags(wrong.args);
    ASSERT_FALSE(line.ok()) << wrong.args[0];
    EXPECT_EQ(line.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(line.status().message()), HasSubstr(wrong.error));
  }
}

TEST_F(FlagsTest, TheSameValueTwiceIsFine) {
  EXPECT_TRUE(ParseFlags({"--text=a", "--text=a"}).ok());
}

}  // namespace
}  // namespace holdfast
