// SPDX-License-Identifier: Apache-2.0

// Which work waits for which, on the fake device: every order that the waits
// allow must give the same bits, and no wait may be for more than is needed.
#include "worker/backend/stream/ordered_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/trace/testing/trace_testing.h"
#include "common/trace/trace.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/testing/host_device.h"
#include "worker/backend/testing/test_values.h"

namespace holdfast {
namespace {

// Operations, copies and new memory in an order that follows from `seed`, on
// `backend` and, one by one, on the CPU. Returns how many of the downloads
// differ from the CPU's values.
class RandomProgram {
 public:
  // Whether uploads are from memory of AllocateHost.
  enum class Host { kAny, kPinned };

  RandomProgram(Backend* backend, uint64_t seed, Host host = Host::kAny)
      : backend_(backend), random_(seed), host_(host) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (i % 2 == 0) {
        slots_[i].pinned = backend_->host_memory()->Allocate(kSize);
      } else {
        auto pinned = backend_->AllocateHost(kSize);
        Check(pinned.status());
        slots_[i].pinned = *std::move(pinned);
      }
      Upload(i);
    }
  }

  int Run(int steps) {
    for (int i = 0; i < steps; ++i) Step();
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].download.has_value()) Download(i);
      Arrive(i);
    }
    return wrong_;
  }

 private:
  static constexpr int64_t kSide = 6;
  static constexpr int64_t kSize = kSide * kSide;

  struct Slot {
    DeviceBuffer buffer;
    // The expected content of the device's memory.
    std::vector<float> expected = std::vector<float>(kSize);
    // The host's memory of the last upload.
    std::vector<float> host = std::vector<float>(kSize);
    // The same in pinned memory, from which a copy begins at once, and whether
    // the copy may be under way.
    HostBuffer pinned;
    bool is_read = false;
    std::optional<holdfast::Download> download;
  };

  Matrix On(size_t i) { return slots_[i].buffer.View(kSide, kSide); }
  Matrix OnCpu(size_t i) { return {slots_[i].expected.data(), kSide, kSide}; }
  size_t Any() { return random_() % slots_.size(); }

  void Check(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

  void Upload(size_t i) {
    Slot& slot = slots_[i];
    slot.host = RandomValues(kSize, random_());
    slot.expected = slot.host;
    absl::Span<const float> values = slot.host;
    if (host_ == Host::kPinned || random_() % 2 == 0) {
      if (std::exchange(slot.is_read, true)) Check(backend_->AwaitUploads());
      std::copy(values.begin(), values.end(), slot.pinned.get());
      values = {slot.pinned.get(), kSize};
    }
    Check(backend_->Upload(values, kSide, kSide, &slot.buffer).status());
  }

  void Download(size_t i) {
    const auto download = backend_->StartDownload(On(i));
    Check(download.status());
    slots_[i].download = *download;
  }

  void Arrive(size_t i) {
    Slot& slot = slots_[i];
    Check(backend_->Await(*slot.download));
    Compare(&slot);
  }

  void Compare(Slot* slot) {
    // The copy from it came before that.
    slot->is_read = false;
    if (!SameBits(slot->download->values, slot->expected)) ++wrong_;
    slot->download.reset();
  }

  void Step() {
    const size_t i = Any();
    Slot& slot = slots_[i];
    if (slot.download.has_value()) {
      // A matrix that is being downloaded must not change.
      switch (random_() % 4) {
        case 0:
          return Arrive(i);
        case 1: {
          const auto arrived = backend_->HasArrived(*slot.download);
          Check(arrived.status());
          if (*arrived) Compare(&slot);
          return;
        }
        case 2:
          // The buffer is given back, so its memory may get another user.
          slot.download.reset();
          slot.buffer = DeviceBuffer();
          Check(backend_->Reserve(kSize, &slot.buffer));
          return Upload(i);
        default:
          return;
      }
    }
    const size_t a = Any();
    const size_t b = Any();
    switch (random_() % 8) {
      case 0:
      case 1:
        return Upload(i);
      case 2:
      case 3:
        return Download(i);
      case 4:
        if (a == i || b == i) return;
        backend_->MatMul(Form::kPlain, On(a), Form::kTransposed, On(b), On(i));
        cpu_->MatMul(Form::kPlain, OnCpu(a), Form::kTransposed, OnCpu(b),
                     OnCpu(i));
        return;
      case 5:
        backend_->Add(On(a), On(b), On(i));
        cpu_->Add(OnCpu(a), OnCpu(b), OnCpu(i));
        return;
      case 6: {
        // All positions of a call are equal, so reading another call's gives
        // other values.
        positions_.push_back(std::vector<int64_t>(kSide, random_()));
        const auto& positions = positions_.back();
        backend_->Dropout(On(i), positions, 1, 0.5f, On(i));
        cpu_->Dropout(OnCpu(i), positions, 1, 0.5f, OnCpu(i));
        return;
      }
      default: {
        const std::vector<int32_t> labels(kSide, random_() % kSide);
        const auto loss =
            backend_->SoftmaxCrossEntropy(On(i), {labels}, nullptr);
        Check(loss.status());
        const auto expected =
            cpu_->SoftmaxCrossEntropy(OnCpu(i), {labels}, nullptr);
        if (std::memcmp(&loss->loss, &expected->loss, sizeof(double)) != 0) {
          ++wrong_;
        }
        return;
      }
    }
  }

  Backend* const backend_;
  std::mt19937_64 random_;
  const Host host_;
  std::unique_ptr<CpuBackend> cpu_ = *CpuBackend::Create({});
  std::array<Slot, 6> slots_;
  std::vector<std::vector<int64_t>> positions_;
  int wrong_ = 0;
};

constexpr int kSeeds = 200;
constexpr int kSteps = 150;

TEST(OrderedStreamsTest, EveryOrderGivesTheSameBits) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    HostDevice device({.seed = seed});
    EXPECT_EQ(RandomProgram(device.backend.get(), seed).Run(kSteps), 0);
    device.backend.reset();
    EXPECT_EQ(device.misuse, absl::OkStatus());
  }
}

// Returns whether the results of the program above are wrong for some seed.
bool GoesWrong(HostRuntime::Options options,
               RandomProgram::Host host = RandomProgram::Host::kAny) {
  for (options.seed = 0; options.seed < kSeeds; ++options.seed) {
    HostDevice device(options);
    RandomProgram program(device.backend.get(), options.seed, host);
    if (program.Run(kSteps) > 0) return true;
  }
  return false;
}

// Each kind of wait is needed, and its absence shows.
TEST(OrderedStreamsTest, AMissingWaitShows) {
  constexpr StreamId kCompute = StreamId::kCompute;
  constexpr StreamId kIn = StreamId::kCopyIn;
  constexpr StreamId kOut = StreamId::kCopyOut;
  const std::pair<StreamId, StreamId> kWaits[] = {
      {kCompute, kIn}, {kIn, kCompute}, {kOut, kCompute}, {kOut, kIn}};
  for (const auto& [waiter, other] : kWaits) {
    HostRuntime::Options options;
    options.ignored_wait = std::make_pair(waiter, other);
    EXPECT_TRUE(GoesWrong(options))
        << "stream " << static_cast<int>(waiter) << " does not wait for "
        << static_cast<int>(other);
  }
  // The waits of a copy that begins at once.
  for (const auto& [waiter, other] : {kWaits[0], kWaits[1]}) {
    HostRuntime::Options options;
    options.ignored_wait = std::make_pair(waiter, other);
    EXPECT_TRUE(GoesWrong(options, RandomProgram::Host::kPinned));
  }
  for (const StreamId other : {kIn, kOut}) {
    HostRuntime::Options options;
    options.ignored_synchronize = other;
    EXPECT_TRUE(GoesWrong(options))
        << "the host does not wait for stream " << static_cast<int>(other);
  }
}

TEST(OrderedStreamsTest, ATraceChangesNoBits) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Tracer tracer({});
    HostDevice device({.seed = seed});
    device.backend->SetTracer(&tracer);
    EXPECT_EQ(RandomProgram(device.backend.get(), seed).Run(kSteps), 0);
    device.backend.reset();
    EXPECT_EQ(device.misuse, absl::OkStatus());
    const ReadTrace trace(tracer.ToJson());
    EXPECT_TRUE(trace.Nests());
    EXPECT_GT(trace.OfKind("copy").size(), 20);
    EXPECT_GT(trace.OfKind("compute").size(), 20);
  }
}

TEST(OrderedStreamsTest, TheEndWaitsForAllStreams) {
  HostDevice device({.lazy = true});
  DeviceBuffer buffer;
  const std::vector<float> host = RandomValues(10, 1);
  const auto x = device.backend->Upload(host, 2, 5, &buffer);
  ASSERT_TRUE(x.ok());
  ASSERT_TRUE(device.backend->StartDownload(*x).ok());
  EXPECT_FALSE(device.runtime->IsIdle(StreamId::kCopyOut));
  buffer = DeviceBuffer();
  device.backend.reset();
  EXPECT_EQ(device.misuse, absl::OkStatus());
}

// Shows the overlap that a test on a GPU would measure: the host gets the first
// result before later operations have begun.
TEST(OrderedStreamsTest, ADownloadDoesNotWaitForWhatComesAfter) {
  HostDevice device({.lazy = true});
  Backend* const backend = device.backend.get();
  DeviceBuffer staging, first, second;
  const std::vector<float> host = RandomValues(16, 1);
  const auto x = backend->Upload(host, 4, 4, &staging);
  ASSERT_TRUE(x.ok());
  ASSERT_TRUE(backend->Reserve(16, &first).ok());
  ASSERT_TRUE(backend->Reserve(16, &second).ok());
  backend->Add(*x, *x, first.View(4, 4));
  const auto download = backend->StartDownload(first.View(4, 4));
  ASSERT_TRUE(download.ok());
  backend->Add(*x, *x, second.View(4, 4));
  const auto later = backend->StartDownload(second.View(4, 4));
  ASSERT_TRUE(later.ok());
  EXPECT_FALSE(*backend->HasArrived(*download));
  ASSERT_TRUE(backend->Await(*download).ok());
  EXPECT_EQ(download->values[3], 2 * host[3]);
  EXPECT_TRUE(*backend->HasArrived(*download));
  EXPECT_FALSE(*backend->HasArrived(*later));
  EXPECT_FALSE(device.runtime->IsIdle(StreamId::kCompute));
}

// A copy to the device does not wait for later operations either: it waits for
// the last operation that uses its target, if there is an event after this
// operation.
TEST(OrderedStreamsTest, AnUploadDoesNotWaitForOtherMatrices) {
  HostDevice device({.lazy = true});
  Backend* const backend = device.backend.get();
  DeviceBuffer staging, sums, gradient;
  const std::vector<float> host = RandomValues(16, 1);
  const auto x = backend->Upload(host, 4, 4, &staging);
  ASSERT_TRUE(x.ok());
  ASSERT_TRUE(backend->Reserve(16, &sums).ok());
  ASSERT_TRUE(backend->Reserve(16, &gradient).ok());
  backend->Add(*x, *x, gradient.View(4, 4));
  ASSERT_TRUE(backend->StartDownload(gradient.View(4, 4)).ok());
  backend->Add(gradient.View(4, 4), gradient.View(4, 4), sums.View(4, 4));
  const auto next = backend->Upload(RandomValues(16, 2), 4, 4, &staging);
  ASSERT_TRUE(next.ok());
  const auto arrived = backend->StartDownload(*next);
  ASSERT_TRUE(arrived.ok());
  ASSERT_TRUE(backend->Await(*arrived).ok());
  EXPECT_EQ(arrived->values[0], RandomValues(16, 2)[0]);
  EXPECT_FALSE(device.runtime->IsIdle(StreamId::kCompute));
}

// Because of this the first layer computes while the parameters of the other
// layers are copied.
TEST(OrderedStreamsTest, AnOperationDoesNotWaitForLaterUploads) {
  for (const bool pinned : {false, true}) {
    SCOPED_TRACE(pinned);
    HostDevice device({.lazy = true});
    Backend* const backend = device.backend.get();
    DeviceBuffer first_staging, second_staging, sum;
    auto host = backend->AllocateHost(16);
    ASSERT_TRUE(host.ok() && backend->Reserve(16, &sum).ok());
    std::vector<float> values = RandomValues(16, 1);
    std::copy(values.begin(), values.end(), host->get());
    const absl::Span<const float> from =
        pinned ? absl::MakeConstSpan(host->get(), 16) : values;
    const auto first = backend->Upload(from, 4, 4, &first_staging);
    const auto second = backend->Upload(from, 4, 4, &second_staging);
    ASSERT_TRUE(first.ok() && second.ok());
    backend->Add(*first, *first, sum.View(4, 4));
    const auto download = backend->StartDownload(sum.View(4, 4));
    ASSERT_TRUE(download.ok() && backend->Await(*download).ok());
    EXPECT_EQ(download->values[3], 2 * values[3]);
    EXPECT_FALSE(device.runtime->IsIdle(StreamId::kCopyIn));
    // An operation that needs the second upload waits for it.
    backend->Add(*first, *second, sum.View(4, 4));
    const auto next = backend->StartDownload(sum.View(4, 4));
    ASSERT_TRUE(next.ok() && backend->Await(*next).ok());
    EXPECT_EQ(next->values[3], 2 * values[3]);
    EXPECT_TRUE(device.runtime->IsIdle(StreamId::kCopyIn));
  }
}

TEST(OrderedStreamsTest, ALossDoesNotWaitForWhatComesAfter) {
  HostDevice device({.lazy = true});
  Backend* const backend = device.backend.get();
  DeviceBuffer staging, made;
  const auto x = backend->Upload(RandomValues(16, 1), 4, 4, &staging);
  ASSERT_TRUE(x.ok() && backend->Reserve(16, &made).ok());
  Matrix dz = made.View(4, 4);
  const std::vector<int32_t> labels(4);
  const auto loss =
      backend->StartLoss({LossKind::kSoftmaxCrossEntropy}, *x, {labels}, &dz);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_FALSE(loss->sums.has_value());
  backend->Scale(2, dz, dz);
  const auto download = backend->StartDownload(dz);
  ASSERT_TRUE(download.ok());
  const auto sums = backend->ReadLoss(*loss);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_GT(sums->loss, 0);
  EXPECT_TRUE(sums->correct.has_value());
  EXPECT_FALSE(device.runtime->IsIdle(StreamId::kCompute));
  EXPECT_FALSE(*backend->HasArrived(*download));
  ASSERT_TRUE(backend->Await(*download).ok());
}

}  // namespace
}  // namespace holdfast
