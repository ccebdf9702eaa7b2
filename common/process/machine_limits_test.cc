// SPDX-License-Identifier: Apache-2.0
#include "common/process/machine_limits.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

class MachineLimitsTest : public ::testing::Test {
 protected:
  MachineLimitsTest()
      : root_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(root_);
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file(root_ + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const std::string root_;
};

TEST_F(MachineLimitsTest, ShareOfTheMachine) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:   10 kB\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 819200);
}

TEST_F(MachineLimitsTest, ShareOfTheContainer) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 819200);
  Write("/sys/fs/cgroup/memory.max", "500000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 400000);
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "100000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 80000);
}

// For example, a systemd service: the limit may be its own, or that of an
// enclosing slice.
TEST_F(MachineLimitsTest, ShareOfAGroupWithinTheMachine) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/proc/self/cgroup", "0::/a.slice/b.service\n");
  Write("/sys/fs/cgroup/a.slice/b.service/memory.max", "500000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 400000);
  Write("/sys/fs/cgroup/a.slice/memory.max", "200000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 160000);
  // Another service's limit.
  Write("/sys/fs/cgroup/a.slice/c.service/memory.max", "1000\n");
  Write("/sys/fs/cgroup/memory/a.slice/memory.limit_in_bytes", "1000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 160000);
}

TEST_F(MachineLimitsTest, ShareOfAGroupOfVersion1) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/proc/self/cgroup",
        "5:cpu,cpuacct:/x\n4:cpuset,memory:/job/step\n0::/x\n");
  // The value that means no limit.
  Write("/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes",
        "9223372036854771712\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 819200);
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 240000);
}

// The group's path is the one outside of the container.
TEST_F(MachineLimitsTest, AGroupThatIsNotUnderTheMount) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/sys/fs/cgroup/memory.max", "100000\n");
  Write("/sys/fs/memory.max", "1000\n");
  for (const char* group :
       {"0::/\n", "0::/docker/1234\n", "0::/../other\n", "nonsense\n"}) {
    Write("/proc/self/cgroup", group);
    EXPECT_EQ(*DefaultMemoryLimit(root_), 80000) << group;
  }
}

TEST_F(MachineLimitsTest, CoresOfAContainer) {
  EXPECT_EQ(AvailableCores(root_, 8), 8);
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(AvailableCores(root_, 8), 8);
  Write("/sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(AvailableCores(root_, 8), 3);
  EXPECT_EQ(AvailableCores(root_, 2), 2);
  Write("/sys/fs/cgroup/cpu.max", "10000 100000\n");
  EXPECT_EQ(AvailableCores(root_, 8), 1);
  Write("/sys/fs/cgroup/cpu.max", "nonsense");
  EXPECT_EQ(AvailableCores(root_, 8), 8);
  EXPECT_EQ(AvailableCores(root_, 0), 1);
}

TEST_F(MachineLimitsTest, CoresOfAGroupWithinTheMachine) {
  Write("/proc/self/cgroup", "0::/pod/container\n");
  Write("/sys/fs/cgroup/pod/container/cpu.max", "400000 100000\n");
  EXPECT_EQ(AvailableCores(root_, 8), 4);
  Write("/sys/fs/cgroup/pod/cpu.max", "200000 100000\n");
  EXPECT_EQ(AvailableCores(root_, 8), 2);
  Write("/sys/fs/cgroup/other/cpu.max", "100000 100000\n");
  EXPECT_EQ(AvailableCores(root_, 8), 2);
}

TEST_F(MachineLimitsTest, CoresOfAGroupOfVersion1) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/pod\n4:memory:/x\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(AvailableCores(root_, 8), 8);
  Write("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "150000\n");
  Write("/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(AvailableCores(root_, 8), 3);
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(AvailableCores(root_, 8), 1);
}

TEST_F(MachineLimitsTest, NothingToRead) {
  EXPECT_EQ(DefaultMemoryLimit(root_).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace holdfast
