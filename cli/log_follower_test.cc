// SPDX-License-Identifier: Apache-2.0
#include "cli/log_follower.h"

#include <filesystem>
#include <fstream>

#include "absl/time/time.h"
#include "cli/run_directory.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

class LogFollowerTest : public ::testing::Test {
 protected:
  LogFollowerTest() { std::filesystem::remove(path_); }

  void Append(const std::string& text) {
    std::ofstream(path_, std::ios::app) << text;
  }

  const std::string path_ = ::testing::TempDir() + "/followed.log";
};

TEST_F(LogFollowerTest, TellsEachLineOnceItIsWhole) {
  LogFollower follower(path_);
  EXPECT_EQ(follower.NewLines(), "");
  Append("one\ntwo\nth");
  EXPECT_EQ(follower.NewLines(), "one\ntwo\n");
  EXPECT_EQ(follower.NewLines(), "");
  Append("re");
  EXPECT_EQ(follower.NewLines(), "");
  Append("e\n\nfour");
  EXPECT_EQ(follower.NewLines(), "three\n\n");
  EXPECT_EQ(follower.Rest(), "four\n");
  EXPECT_EQ(follower.Rest(), "");
}

TEST_F(LogFollowerTest, BeginsAtTheEndOfWhatIsThere) {
  Append("earlier\n");
  LogFollower follower(path_);
  Append("later\n");
  EXPECT_EQ(follower.NewLines(), "later\n");
}

TEST_F(LogFollowerTest, LeavesHeadersOut) {
  LogFollower follower(path_);
  Append("first life\n" + LogHeader(absl::UnixEpoch(), "/bin/sh", {"-c"}));
  Append("second life\n");
  EXPECT_EQ(follower.NewLines(), "first life\nsecond life\n");
}

}  // namespace
}  // namespace holdfast
