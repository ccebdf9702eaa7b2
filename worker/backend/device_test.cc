// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "worker/backend/cuda/cuda_backend.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine with this many GPUs, and a record of which were checked.
struct Machine {
  explicit Machine(int gpus) : gpus(gpus) {}
  absl::StatusOr<Device> Choose(absl::string_view text) {
    return ChooseDevice(text, [this](int index) {
      asked.push_back(index);
      return index < gpus ? absl::OkStatus()
                          : absl::NotFoundError("there is no such GPU");
    });
  }

  const int gpus;
  std::vector<int> asked;
};

TEST(ChooseDeviceTest, TheCpuNeedsNoDriver) {
  Machine machine(1);
  const auto device = machine.Choose("cpu");
  ASSERT_TRUE(device.ok());
  EXPECT_THAT(device->places, ElementsAre(std::nullopt));
  EXPECT_THAT(device->why, IsEmpty());
  EXPECT_THAT(machine.asked, IsEmpty());
}

TEST(ChooseDeviceTest, AutoTakesTheFirstGpu) {
  Machine machine(2);
  const auto device = machine.Choose("auto");
  ASSERT_TRUE(device.ok());
  EXPECT_THAT(device->places, ElementsAre(0));
  EXPECT_THAT(device->why, HasSubstr("cuda:0, the first GPU"));
  EXPECT_FALSE(device->second_choice);
}

TEST(ChooseDeviceTest, AutoTakesTheCpuWithAWordWhy) {
  Machine machine(0);
  const auto device = machine.Choose("auto");
  ASSERT_TRUE(device.ok());
  EXPECT_THAT(device->places, ElementsAre(std::nullopt));
  EXPECT_THAT(device->why, HasSubstr("on the CPU: there is no such GPU"));
  EXPECT_TRUE(device->second_choice);
}

TEST(ChooseDeviceTest, ABuildWithoutCudaIsNoSurprise) {
  const auto device = ChooseDevice(
      "auto", [](int) { return absl::UnimplementedError("without CUDA"); });
  ASSERT_TRUE(device.ok());
  EXPECT_THAT(device->places, ElementsAre(std::nullopt));
  EXPECT_FALSE(device->second_choice);
}

TEST(ChooseDeviceTest, AGpuByNumber) {
  Machine machine(2);
  const auto device = machine.Choose("cuda:1");
  ASSERT_TRUE(device.ok());
  EXPECT_THAT(device->places, ElementsAre(1));
  EXPECT_THAT(machine.asked, ElementsAre(1));
}

TEST(ChooseDeviceTest, AGpuThatIsNotThereIsNamed) {
  Machine machine(2);
  const absl::Status status = machine.Choose("cuda:2").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "--device=cuda:2: there is no such GPU; use cpu, or auto, the "
            "default");
}

TEST(ChooseDeviceTest, SeveralReplicas) {
  Machine machine(2);
  auto device = machine.Choose("cuda:1,0,1");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_THAT(device->places, ElementsAre(1, 0, 1));
  EXPECT_EQ(machine.Choose("cuda:0,2").status().message(),
            "--device=cuda:0,2: there is no such GPU; use cpu, or auto, the "
            "default");
  device = machine.Choose("cpu,cpu");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_THAT(device->places, ElementsAre(std::nullopt, std::nullopt));
  std::string many = "cpu";
  for (int i = 0; i < 64; ++i) many += ",cpu";
  EXPECT_THAT(machine.Choose(many).status().message(),
              HasSubstr("at most 64 replicas are possible"));
}

TEST(ChooseDeviceTest, RefusesWhatIsNoDevice) {
  Machine machine(2);
  for (const char* text :
       {"", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:x", "cuda:0x1", "CPU",
        "cuda:99999999999", "cuda:0,", "cuda:,1", "cuda:0,cuda:1", "cpu,",
        "cpu,cuda:0", "cpu,auto", "auto,auto"}) {
    const absl::Status status = machine.Choose(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(),
                HasSubstr("--device=" + std::string(text) + ": "));
  }
  EXPECT_THAT(machine.asked, IsEmpty());
}

TEST(CreateBackendTest, OnTheCpu) {
  const auto backend = CreateBackend(std::nullopt, {.threads = 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->Describe().threads, 1);
  EXPECT_EQ(CreateBackend(std::nullopt, {.threads = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// A GPU that cannot exist is refused on any machine.
TEST(CreateBackendTest, OnAGpuThatIsNotThere) {
  const absl::Status checked = CheckCudaDevice(1000);
  EXPECT_FALSE(checked.ok());
  EXPECT_NE(checked.code(), absl::StatusCode::kInternal) << checked;
  EXPECT_EQ(CreateBackend(1000, {}).status(), checked);
}

}  // namespace
}  // namespace holdfast
