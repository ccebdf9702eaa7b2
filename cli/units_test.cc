// SPDX-License-Identifier: Apache-2.0
#include "cli/units.h"

#include <limits>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(UnitsTest, Bytes) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(uint64_t{12} << 30), "12.0 GiB");
  EXPECT_EQ(BytesText(uint64_t{5000} << 40), "5000.0 TiB");
}

TEST(UnitsTest, Seconds) {
  EXPECT_EQ(SecondsText(0), "0 s");
  EXPECT_EQ(SecondsText(0.000421), "0.42 ms");
  EXPECT_EQ(SecondsText(0.0123), "12 ms");
  EXPECT_EQ(SecondsText(0.9994), "999 ms");
  EXPECT_EQ(SecondsText(0.9996), "1.0 s");
  EXPECT_EQ(SecondsText(3.21), "3.2 s");
  EXPECT_EQ(SecondsText(59.96), "1m");
  EXPECT_EQ(SecondsText(125.4), "2m5s");
  EXPECT_EQ(SecondsText(std::numeric_limits<double>::infinity()), "-");
}

TEST(UnitsTest, Rates) {
  EXPECT_EQ(RateText(0), "0");
  EXPECT_EQ(RateText(0.567), "0.57");
  EXPECT_EQ(RateText(5.67), "5.7");
  EXPECT_EQ(RateText(56.7), "57");
  EXPECT_EQ(RateText(51234.4), "51234");
  EXPECT_EQ(RateText(std::numeric_limits<double>::quiet_NaN()), "-");
}

TEST(UnitsTest, Tasks) {
  proto::TaskId task;
  task.set_job("worker");
  task.set_index(1);
  EXPECT_EQ(TaskText(task), "worker:1");
}

TEST(CutTextTest, CountsCharacters) {
  EXPECT_EQ(TextWidth("\xc3\xa9t\xc3\xa9"), 3u);
  EXPECT_EQ(CutText("\xc3\xa9t\xc3\xa9", 3), "\xc3\xa9t\xc3\xa9");
  EXPECT_EQ(CutText("\xc3\xa9t\xc3\xa9", 2), "\xc3\xa9>");
  EXPECT_EQ(CutText("abc", 1), ">");
  EXPECT_EQ(CutText("abc", 0), "");
}

}  // namespace
}  // namespace holdfast
