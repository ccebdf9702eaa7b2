// SPDX-License-Identifier: Apache-2.0
#include "common/data/reading_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HeldClock : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch();
};

TEST(ReadingProgressTest, TellsNowAndThen) {
  HeldClock clock;
  std::vector<std::string> lines;
  ReadingProgress progress(
      {&clock, [&](const std::string& line) { lines.push_back(line); }});
  clock.now += absl::Seconds(100);
  progress.Begin("\"a.csv\"", 8'000'000'000);
  progress.Add(1'000'000'000, 10);
  clock.now += absl::Milliseconds(4999);
  progress.Add(0, 10);
  EXPECT_THAT(lines, IsEmpty());
  clock.now += absl::Milliseconds(1);
  progress.Add(200'000'000, 5);
  EXPECT_THAT(lines, ElementsAre("reading \"a.csv\": 1.2 GB of 8.0 GB (15 %), "
                                 "25 rows, 240 MB/s"));
  // The rate is measured since the last line.
  clock.now += absl::Seconds(10);
  progress.Add(10'000'000);
  EXPECT_EQ(lines.back(),
            "reading \"a.csv\": 1.2 GB of 8.0 GB (15 %), 25 rows, 1.0 MB/s");
  progress.Begin("\"b.npy\"", 50);
  progress.Add(50);
  EXPECT_EQ(lines.size(), 2);
  clock.now += absl::Seconds(5);
  progress.Add(0);
  EXPECT_EQ(lines.back(), "reading \"b.npy\": 50 B of 50 B (100 %), 10 B/s");
  progress.Begin("images", 0);
  clock.now += absl::Seconds(5);
  progress.Add(50);
  EXPECT_EQ(lines.back(), "reading images: 50 B, 10 B/s");
  progress.Tell("done");
  EXPECT_EQ(lines.back(), "done");
}

TEST(ReadingProgressTest, SizesAreShort) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(999), "999 B");
  EXPECT_EQ(SizeText(1000), "1.0 kB");
  EXPECT_EQ(SizeText(99'940), "99.9 kB");
  EXPECT_EQ(SizeText(123'456'789), "123 MB");
  EXPECT_EQ(SizeText(999'600'000), "1.0 GB");
  EXPECT_EQ(SizeText(5'000'000'000'000'000), "5000 TB");
}

}  // namespace
}  // namespace holdfast
