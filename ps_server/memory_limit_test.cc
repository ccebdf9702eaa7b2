#include "ps_server/memory_limit.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

class DefaultMemoryLimitTest : public ::testing::Test {
 protected:
  DefaultMemoryLimitTest()
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

TEST_F(DefaultMemoryLimitTest, ShareOfTheMachine) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:   10 kB\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 819200);
}

TEST_F(DefaultMemoryLimitTest, ShareOfTheContainer) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 819200);
  Write("/sys/fs/cgroup/memory.max", "500000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 400000);
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "100000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 80000);
}

// As for a service of systemd: the limit may be its own, or that of a slice
// which it is in.
TEST_F(DefaultMemoryLimitTest, ShareOfAGroupWithinTheMachine) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/proc/self/cgroup", "0::/a.slice/b.service\n");
  Write("/sys/fs/cgroup/a.slice/b.service/memory.max", "500000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 400000);
  Write("/sys/fs/cgroup/a.slice/memory.max", "200000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 160000);
  // Another's.
  Write("/sys/fs/cgroup/a.slice/c.service/memory.max", "1000\n");
  Write("/sys/fs/cgroup/memory/a.slice/memory.limit_in_bytes", "1000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 160000);
}

TEST_F(DefaultMemoryLimitTest, ShareOfAGroupOfVersion1) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/proc/self/cgroup",
        "5:cpu,cpuacct:/x\n4:cpuset,memory:/job/step\n0::/x\n");
  // What stands for no limit.
  Write("/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes",
        "9223372036854771712\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 819200);
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n");
  EXPECT_EQ(*DefaultMemoryLimit(root_), 240000);
}

// The group is told as from outside of the container.
TEST_F(DefaultMemoryLimitTest, AGroupThatIsNotUnderTheMount) {
  Write("/proc/meminfo", "MemTotal:       1000 kB\n");
  Write("/sys/fs/cgroup/memory.max", "100000\n");
  Write("/sys/fs/memory.max", "1000\n");
  for (const char* group :
       {"0::/\n", "0::/docker/1234\n", "0::/../other\n", "nonsense\n"}) {
    Write("/proc/self/cgroup", group);
    EXPECT_EQ(*DefaultMemoryLimit(root_), 80000) << group;
  }
}

TEST_F(DefaultMemoryLimitTest, NothingToRead) {
  EXPECT_EQ(DefaultMemoryLimit(root_).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace holdfast
