// SPDX-License-Identifier: Apache-2.0

// The flag --device of a worker process. CUDA_VISIBLE_DEVICES hides GPUs, so
// that the results are the same on a machine with a GPU.

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/process.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr absl::Duration kPatience = absl::Seconds(30);

// A regular expression for the reason that this build gives for having no GPU.
#ifdef HOLDFAST_WITH_CUDA
constexpr bool kWithCuda = true;
constexpr char kNoGpu[] = "NVIDIA driver|no CUDA-capable device";
#else
constexpr bool kWithCuda = false;
constexpr char kNoGpu[] = "this program was built without CUDA";
#endif

class DeviceTest : public testing::Test {
 protected:
  DeviceTest() {
    // Two images of 1 x 2 pixels.
    Write("images", std::string("\0\0\x08\x03\0\0\0\2\0\0\0\1\0\0\0\2", 16) +
                        std::string("\1\2\3\4", 4));
    Write("labels", std::string("\0\0\x08\x01\0\0\0\2\0\1", 10));
    WriteJob("");
  }

  static std::string Path(const std::string& name) {
    return absl::StrCat(testing::TempDir(), "/device_test.", name);
  }
  static void Write(const std::string& name, const std::string& content) {
    std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << content;
  }
  // Writes the job with `more` in its data.
  static void WriteJob(const std::string& more) {
    Write("job",
          absl::StrCat("name: 'tiny' model { sequential { layers { flatten {} "
                       "} layers { dense { units: 2 } } loss { "
                       "softmax_cross_entropy {} } } } data { train { idx { "
                       "images: '",
                       Path("images"), "' labels: '", Path("labels"), "' } } ",
                       more,
                       "} batch_size: 1 steps: 1 optimizer { learning_rate: 1 "
                       "sgd {} }"));
  }

  static Process StartWorker(const std::string& device) {
    return Process(
        "worker/ps_worker",
        {absl::StrCat("--device=", device), absl::StrCat("--job=", Path("job")),
         absl::StrCat("--ps_hosts=127.0.0.1:", PickUnusedPort()),
         absl::StrCat("--worker_hosts=127.0.0.1:", PickUnusedPort()),
         "--task_index=0"},
        {"CUDA_VISIBLE_DEVICES="});
  }

  // Runs a worker that must exit with code 2 and one line. Returns the line.
  static std::string UsageErrorOf(const std::string& device) {
    Process worker = StartWorker(device);
    EXPECT_EQ(worker.Wait(kPatience), 2) << device << ": " << worker.Output();
    const std::string output = worker.Output();
    const size_t line = output.rfind("ps_worker: ");
    EXPECT_NE(line, std::string::npos) << output;
    if (line == std::string::npos) return "";
    EXPECT_EQ(output.find('\n', line), output.size() - 1) << output;
    return output.substr(line);
  }
};

TEST_F(DeviceTest, AGpuThatIsNotThereIsAnError) {
  for (const char* device : {"cuda:0", "cuda:7"}) {
    EXPECT_THAT(
        UsageErrorOf(device),
        AllOf(StartsWith(absl::StrCat("ps_worker: --device=", device, ": ")),
              ContainsRegex(kNoGpu)));
  }
}

TEST_F(DeviceTest, WhatIsNoDeviceIsAnError) {
  for (const char* device : {"gpu", "cuda", "CPU", ""}) {
    EXPECT_THAT(UsageErrorOf(device),
                HasSubstr(absl::StrCat("--device=", device,
                                       ": it must be auto, cpu, cuda:0")));
  }
  for (const char* device : {"cuda:", "cuda:-1", "cuda:one"}) {
    EXPECT_THAT(UsageErrorOf(device),
                HasSubstr(absl::StrCat("--device=", device, ": ")));
  }
}

TEST_F(DeviceTest, AutoTakesTheCpuAndSaysWhy) {
  Process worker = StartWorker("auto");
  // Logged before the worker looks for the cluster, which does not exist.
  ASSERT_TRUE(worker.AwaitOutput("computing on the CPU: ", kPatience))
      << worker.Output();
  ASSERT_TRUE(worker.AwaitOutput("examples to train on", kPatience))
      << worker.Output();
  const std::string output = worker.Output();
  const size_t said = output.find("computing on the CPU: ");
  const size_t begin = output.rfind('\n', said) + 1;
  const std::string line =
      output.substr(begin, output.find('\n', said) - begin);
  EXPECT_THAT(line, ContainsRegex(kNoGpu));
  // A warning, except in a build that cannot use a GPU.
  EXPECT_EQ(line[0], kWithCuda ? 'W' : 'I') << line;
}

TEST_F(DeviceTest, TheCpuByNameNeedsNoWord) {
  Process worker = StartWorker("cpu");
  ASSERT_TRUE(worker.AwaitOutput("examples to train on", kPatience))
      << worker.Output();
  EXPECT_THAT(worker.Output(), Not(HasSubstr("computing on")));
}

TEST_F(DeviceTest, AugmentationThatLeavesNothingIsAnError) {
  WriteJob("augmentation { shift: 1 } ");
  EXPECT_THAT(UsageErrorOf("cpu"),
              AllOf(HasSubstr(Path("job")),
                    HasSubstr("data.augmentation: images of shape [1,2] "
                              "cannot be moved by up to 1")));
}

}  // namespace
}  // namespace holdfast
