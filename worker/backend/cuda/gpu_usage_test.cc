// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/gpu_usage.h"

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

std::string FakeLibrary() {
  return std::string(std::getenv("TEST_SRCDIR")) + "/" +
         std::getenv("TEST_WORKSPACE") + "/worker/backend/cuda/libfake_nvml.so";
}

TEST(GpuMonitorTest, TellsOfEachGpu) {
  const GpuMonitor monitor({"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"},
                           FakeLibrary());
  const auto usage = monitor.Read();
  ASSERT_EQ(usage.size(), 3u);
  ASSERT_TRUE(usage[0].has_value());
  EXPECT_EQ(usage[0]->memory_used_bytes, 30000u);
  EXPECT_EQ(usage[0]->memory_total_bytes, 80000u);
  EXPECT_EQ(usage[0]->utilization, 0.75);
  EXPECT_FALSE(usage[1].has_value()) << "it does not tell";
  EXPECT_FALSE(usage[2].has_value()) << "there is no such GPU";
}

TEST(GpuMonitorTest, TellsNothingWithoutALibrary) {
  const GpuMonitor monitor({"0000:01:00.0"}, "libnvidia-ml-of-nowhere.so.1");
  const auto usage = monitor.Read();
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_FALSE(usage[0].has_value());
}

TEST(GpuMonitorTest, TellsNothingOfNoGpu) {
  EXPECT_TRUE(GpuMonitor({}).Read().empty());
}

}  // namespace
}  // namespace holdfast
