// SPDX-License-Identifier: Apache-2.0
#include "cli/flag_set.h"

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

class FlagSetTest : public ::testing::Test {
 protected:
  FlagSetTest() {
    flags_.Add("job", "FILE", &job_, "The job file.");
    flags_.Add("ps", "NUMBER", &ps_, "How many.\nDefault: 2.");
    flags_.Add("seed", "NUMBER", &seed_, "Of all randomness.");
    flags_.Add("lease", "DURATION", &lease_, "As 10s.");
    flags_.Add("slots", "", &slots_, "With slots.");
  }

  FlagSet flags_;
  std::string job_;
  std::optional<int> ps_;
  uint64_t seed_ = 0;
  absl::Duration lease_;
  bool slots_ = false;
};

TEST_F(FlagSetTest, ReadsBothForms) {
  ASSERT_TRUE(flags_
                  .Parse({"--job=a=b", "--ps", "3",
                          "--seed=18446744073709551615", "--lease=1m"})
                  .ok());
  EXPECT_EQ(job_, "a=b");
  EXPECT_EQ(ps_, 3);
  EXPECT_EQ(seed_, UINT64_MAX);
  EXPECT_EQ(lease_, absl::Minutes(1));
}

TEST_F(FlagSetTest, SwitchNeedsNoValue) {
  ASSERT_TRUE(flags_.Parse({"--slots", "--ps=3"}).ok());
  EXPECT_TRUE(slots_);
  EXPECT_EQ(ps_, 3);
  ASSERT_TRUE(flags_.Parse({"--slots=false"}).ok());
  EXPECT_FALSE(slots_);
  EXPECT_THAT(flags_.Help(), HasSubstr("--slots\n"));
}

TEST_F(FlagSetTest, NamesWhatIsWrong) {
  const struct {
    std::vector<std::string> args;
    std::string error;
  } kCases[] = {
      {{"--pss=2"}, "unknown flag --pss"},
      {{"ps=2"}, "\"ps=2\" is not a flag"},
      {{"-ps=2"}, "\"-ps=2\" is not a flag"},
      {{"--"}, "\"--\" is not a flag"},
      {{"--ps"}, "--ps needs a value: --ps=NUMBER"},
      {{"--ps=2", "--ps=3"}, "--ps is given twice"},
      {{"--ps=two"}, "--ps=two: not a valid NUMBER"},
      {{"--ps=2.5"}, "--ps=2.5: not a valid NUMBER"},
      {{"--ps=99999999999"}, "--ps=99999999999: not a valid NUMBER"},
      {{"--seed=-1"}, "--seed=-1: not a valid NUMBER"},
      {{"--slots=2"}, "--slots=2: not a valid BOOL"},
      {{"--lease=10"}, "--lease=10: not a valid DURATION"},
  };
  for (const auto& test : kCases) {
    const absl::Status status = flags_.Parse(test.args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(test.error));
  }
}

TEST_F(FlagSetTest, HelpTellsOfEveryFlag) {
  EXPECT_THAT(flags_.Help(),
              HasSubstr("  --ps=NUMBER\n      How many.\n      Default: 2.\n"));
}

}  // namespace
}  // namespace holdfast
