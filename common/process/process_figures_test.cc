// SPDX-License-Identifier: Apache-2.0
#include "common/process/process_figures.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

class ProcessFiguresTest : public ::testing::Test {
 protected:
  ProcessFiguresTest() {
    for (const char* folder : {"", "/proc", "/proc/self", "/proc/self/fd"}) {
      mkdir(absl::StrCat(root_, folder).c_str(), 0700);
    }
  }
  void Write(const std::string& path, const std::string& text) {
    std::ofstream(absl::StrCat(root_, path)) << text;
  }

  const std::string root_ =
      absl::StrCat(std::getenv("TEST_TMPDIR"), "/", getpid());
};

TEST_F(ProcessFiguresTest, ReadsWhatTheKernelTells) {
  Write("/proc/self/statm", "1000 200 30 4 0 50 0\n");
  // Field 14 is 300 ticks, 15 is 50, and 22 is 7000.
  Write("/proc/self/stat",
        "1 (ps) server (x) S 1 1 1 0 -1 4194304 1 0 0 0 300 50 0 0 20 0 4 0 "
        "7000 1 2 3\n");
  Write("/proc/stat", "cpu  1 2 3\nbtime 1700000000\nprocesses 4\n");
  for (const char* file : {"0", "1", "2", "3"}) {
    Write(absl::StrCat("/proc/self/fd/", file), "");
  }
  const ProcessFigures figures = ReadProcessFigures(root_);
  EXPECT_EQ(figures.resident_bytes, 200 * sysconf(_SC_PAGESIZE));
  const double ticks = sysconf(_SC_CLK_TCK);
  EXPECT_DOUBLE_EQ(figures.cpu_seconds, 350 / ticks);
  EXPECT_DOUBLE_EQ(figures.start_time, 1.7e9 + 7000 / ticks);
  EXPECT_EQ(figures.open_files, 3u) << "without the one that reads the folder";
}

TEST(ProcessFiguresOfNowhereTest, WhatCannotBeReadIs0) {
  const ProcessFigures figures = ReadProcessFigures("/nowhere");
  EXPECT_EQ(figures.resident_bytes, 0u);
  EXPECT_EQ(figures.cpu_seconds, 0);
  EXPECT_EQ(figures.open_files, 0u);
  EXPECT_EQ(figures.start_time, 0);
}

TEST(ProcessFiguresOfThisProcessTest, AreThere) {
  const ProcessFigures figures = ReadProcessFigures();
  EXPECT_GT(figures.resident_bytes, 1u << 20);
  EXPECT_GT(figures.open_files, 0u);
  EXPECT_GT(figures.start_time, 1.7e9);
}

}  // namespace
}  // namespace holdfast
