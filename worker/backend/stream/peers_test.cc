// SPDX-License-Identifier: Apache-2.0

// The order of work on devices that read each other's memory, with fake
// devices.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_math.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"
#include "worker/backend/testing/test_values.h"

namespace holdfast {
namespace {

constexpr int64_t kSide = 5;
constexpr int64_t kSize = kSide * kSide;

void Check(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

// A device of a machine, and some matrices on it.
struct Device {
  Device(HostRuntime::Options options) {
    options.misuse = &misuse;
    auto made = std::make_unique<HostRuntime>(options);
    runtime = made.get();
    auto math = std::make_unique<HostMath>(runtime, cpu.get());
    backend = std::make_unique<StreamBackend>(
        std::move(made), std::move(math), StreamBackend::Options{"host", {}});
  }

  struct Slot {
    DeviceBuffer buffer;
    // The expected content of the matrix's memory.
    std::vector<float> expected = std::vector<float>(kSize);
    std::vector<float> host;
    SharedMatrix shared;
    // Must not be written.
    bool locked = false;
  };

  Matrix On(size_t i) { return slots[i].buffer.View(kSide, kSide); }
  Matrix OnCpu(size_t i) { return {slots[i].expected.data(), kSide, kSide}; }

  absl::Status misuse;
  std::unique_ptr<CpuBackend> cpu = *CpuBackend::Create({});
  HostRuntime* runtime = nullptr;
  std::unique_ptr<StreamBackend> backend;
  std::array<Slot, 4> slots;
};

// Operations on two devices, of which the first adds up matrices of the second,
// in an order that follows from a seed. Counts the sums that differ from the
// CPU's.
class RandomProgram {
 public:
  RandomProgram(const HostRuntime::Options& options, uint64_t seed)
      : random_(seed), first_(options), second_(options) {
    for (Device* const device : {&first_, &second_}) {
      for (size_t i = 0; i < device->slots.size(); ++i) Upload(device, i);
    }
  }

  int Run(int steps) {
    for (int i = 0; i < steps; ++i) Step();
    while (!sums_.empty()) Arrive();
    // Destroyed in the order that a replicated model requires: the reader
    // first.
    for (Device* const device : {&first_, &second_}) {
      for (Device::Slot& slot : device->slots) slot.buffer = DeviceBuffer();
      if (device == &first_) fetched_ = {};
      device->backend.reset();
      Check(device->misuse);
    }
    return wrong_;
  }

 private:
  struct Sum {
    Download download;
    size_t target;
    size_t source;
  };

  void Upload(Device* device, size_t i) {
    Device::Slot& slot = device->slots[i];
    slot.host = RandomValues(kSize, random_());
    slot.expected = slot.host;
    Check(device->backend->Upload(slot.host, kSide, kSide, &slot.buffer)
              .status());
  }

  void Operate(Device* device) {
    const size_t i = random_() % device->slots.size();
    const size_t a = random_() % device->slots.size();
    if (device->slots[i].locked || a == i) return;
    Backend* const backend = device->backend.get();
    Backend* const cpu = expected_.get();
    switch (random_() % 4) {
      case 0:
        return Upload(device, i);
      case 1:
        backend->Scale(0.7f, device->On(a), device->On(i));
        return cpu->Scale(0.7f, device->OnCpu(a), device->OnCpu(i));
      case 2:
        backend->Tanh(device->On(a), device->On(i));
        return cpu->Tanh(device->OnCpu(a), device->OnCpu(i));
      default:
        backend->MatMul(Form::kPlain, device->On(a), Form::kTransposed,
                        device->On(a), device->On(i));
        return cpu->MatMul(Form::kPlain, device->OnCpu(a), Form::kTransposed,
                           device->OnCpu(a), device->OnCpu(i));
    }
  }

  // The first device adds a matrix of the second to one of its own, and the sum
  // is downloaded.
  void StartSum() {
    const size_t target = random_() % first_.slots.size();
    const size_t source = random_() % second_.slots.size();
    Device::Slot& from = second_.slots[source];
    if (first_.slots[target].locked || from.locked) return;
    Check(second_.backend->Share(second_.On(source), &from.shared));
    // The second device continues meanwhile.
    from.locked = true;
    if (random_() % 2 == 0) Operate(&second_);
    const auto fetched = first_.backend->Fetch(
        from.shared, &fetched_[next_fetched_++ % fetched_.size()]);
    Check(fetched.status());
    first_.backend->AddScaled(0.3f, *fetched, first_.On(target));
    expected_->AddScaled(0.3f, second_.OnCpu(source), first_.OnCpu(target));
    const auto download = first_.backend->StartDownload(first_.On(target));
    Check(download.status());
    first_.slots[target].locked = true;
    sums_.push_back({*download, target, source});
  }

  // The oldest sum has arrived.
  void Arrive() {
    const Sum sum = sums_.front();
    sums_.erase(sums_.begin());
    Check(first_.backend->Await(sum.download));
    Device::Slot& target = first_.slots[sum.target];
    if (std::memcmp(sum.download.values.data(), target.expected.data(),
                    kSize * sizeof(float)) != 0) {
      ++wrong_;
    }
    target.locked = false;
    second_.slots[sum.source].locked = false;
  }

  void Step() {
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
        return Operate(&second_);
      case 3:
      case 4:
        return Operate(&first_);
      case 5:
      case 6:
        return StartSum();
      default:
        if (!sums_.empty()) Arrive();
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<CpuBackend> expected_ = *CpuBackend::Create({});
  Device first_;
  Device second_;
  // On the first device; used in turn.
  std::array<DeviceBuffer, 2> fetched_;
  size_t next_fetched_ = 0;
  std::vector<Sum> sums_;
  int wrong_ = 0;
};

constexpr int kSeeds = 200;
constexpr int kSteps = 150;

int WrongOf(HostRuntime::Options options, uint64_t seed) {
  options.seed = seed;
  options.machine = std::make_shared<HostRuntime::Machine>();
  return RandomProgram(options, seed).Run(kSteps);
}

TEST(PeersTest, EveryOrderGivesTheSameBits) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_EQ(WrongOf({}, seed), 0);
  }
}

bool GoesWrong(const HostRuntime::Options& options) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    if (WrongOf(options, seed) > 0) return true;
  }
  return false;
}

TEST(PeersTest, AMissingWaitShows) {
  HostRuntime::Options options;
  options.ignored_peer_wait = true;
  EXPECT_TRUE(GoesWrong(options)) << "the other device's operations";
  constexpr StreamId kCompute = StreamId::kCompute;
  constexpr StreamId kIn = StreamId::kCopyIn;
  for (const auto& [waiter, other] :
       {std::make_pair(kCompute, kIn), std::make_pair(kIn, kCompute)}) {
    options = {};
    options.ignored_wait = std::make_pair(waiter, other);
    EXPECT_TRUE(GoesWrong(options)) << "stream " << static_cast<int>(waiter);
  }
}

}  // namespace
}  // namespace holdfast
