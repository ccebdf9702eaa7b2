// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/stream_backend.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/tensor/norm.h"
#include "common/trace/testing/trace_testing.h"
#include "common/trace/trace.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_math.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/model/registry.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

// A StreamBackend on the fake device.
struct HostDevice {
  explicit HostDevice(HostRuntime::Options options = {},
                      std::shared_ptr<PinnedRanges> pinned = nullptr,
                      CpuBackend::Options arithmetic = {})
      : cpu(*CpuBackend::Create(arithmetic)) {
    options.misuse = &misuse;
    auto made = std::make_unique<HostRuntime>(options);
    runtime = made.get();
    auto math = std::make_unique<HostMath>(runtime, cpu.get());
    StreamBackend::Options stream_options;
    stream_options.name = "host:0";
    stream_options.pinned = std::move(pinned);
    backend = std::make_unique<StreamBackend>(std::move(made), std::move(math),
                                              stream_options);
  }

  absl::Status misuse;
  std::unique_ptr<CpuBackend> cpu;
  // The backend's runtime.
  HostRuntime* runtime = nullptr;
  std::unique_ptr<StreamBackend> backend;
};

// Values in [-1, 1), the same in every run.
std::vector<float> RandomValues(int64_t size, uint32_t key) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    const uint32_t bits = Philox4x32({static_cast<uint32_t>(i)}, {key})[0];
    values[i] = static_cast<float>(bits >> 8) / (1 << 23) - 1;
  }
  return values;
}

// Unlike ==, also compares NaNs.
bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

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

TEST(StreamBackendTest, EveryOrderGivesTheSameBits) {
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
TEST(StreamBackendTest, AMissingWaitShows) {
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

TEST(StreamBackendTest, UploadsBeginInPinnedMemory) {
  HostDevice device({.lazy = true});
  Backend* const backend = device.backend.get();
  auto host = backend->AllocateHost(16);
  ASSERT_TRUE(host.ok());
  DeviceBuffer staging;
  const auto uploaded = [&](int64_t first) {
    std::fill_n(host->get(), 16, 1.0f);
    const auto x = backend->Upload({host->get() + first, 4}, 2, 2, &staging);
    EXPECT_TRUE(x.ok());
    // It has not been copied yet.
    std::fill_n(host->get(), 16, 2.0f);
    EXPECT_TRUE(backend->AwaitUploads().ok());
    std::fill_n(host->get(), 16, 3.0f);
    const auto download = backend->StartDownload(*x);
    EXPECT_TRUE(download.ok() && backend->Await(*download).ok());
    return download->values[0];
  };
  EXPECT_EQ(uploaded(0), 2);
  EXPECT_EQ(uploaded(12), 2);
  // Other memory is copied by the call.
  const std::vector<float> other(4, 1.0f);
  const auto x = backend->Upload(other, 2, 2, &staging);
  ASSERT_TRUE(x.ok());
  // Freeing the memory waits for copies that may read it.
  ASSERT_TRUE(backend->Upload({host->get(), 4}, 2, 2, &staging).ok());
  host->reset();
  EXPECT_EQ(device.misuse, absl::OkStatus());
}

// Whether an upload of these values copies them directly, and later.
bool BeginsThere(Backend* backend, absl::Span<float> host) {
  std::fill(host.begin(), host.end(), 1.0f);
  DeviceBuffer staging;
  const auto x = backend->Upload(host, 1, host.size(), &staging);
  EXPECT_TRUE(x.ok()) << x.status();
  std::fill(host.begin(), host.end(), 2.0f);
  const auto download = backend->StartDownload(*x);
  EXPECT_TRUE(download.ok() && backend->Await(*download).ok());
  const float value = download->values[0];
  EXPECT_THAT(download->values, ::testing::Each(value));
  return value == 2;
}

TEST(StreamBackendTest, PinnedMemoryIsThatOfAllBackendsThatShareIt) {
  const auto machine = std::make_shared<HostRuntime::Machine>();
  const auto pinned = std::make_shared<PinnedRanges>();
  HostRuntime::Options options;
  options.machine = machine;
  options.lazy = true;
  HostDevice one(options, pinned), two(options, pinned), other(options);
  HostBuffer host = one.backend->host_memory()->Allocate(16);
  auto of_one = one.backend->AllocateHost(16);
  ASSERT_TRUE(host != nullptr && of_one.ok());
  for (float* const memory : {host.get(), of_one->get()}) {
    EXPECT_TRUE(BeginsThere(one.backend.get(), {memory, 16}));
    EXPECT_TRUE(BeginsThere(two.backend.get(), {memory, 16}));
    EXPECT_FALSE(BeginsThere(other.backend.get(), {memory, 16}));
  }
  host.reset();
  std::vector<float> values(16);
  EXPECT_FALSE(BeginsThere(two.backend.get(), absl::MakeSpan(values)));
  for (const HostDevice* const device : {&one, &two, &other}) {
    EXPECT_EQ(device->misuse, absl::OkStatus());
  }
}

TEST(StreamBackendTest, MemoryOfOthersIsPinnedByRanges) {
  constexpr int64_t kPage = 1024;
  HostDevice device({.lazy = true});
  Backend* const backend = device.backend.get();
  HostMemory* const memory = backend->host_memory();
  std::vector<float> values(4 * kPage);
  const absl::Span<float> all = absl::MakeSpan(values);
  const auto pin = [&](int64_t page, int64_t pages) {
    return memory->Register(&values[page * kPage],
                            pages * kPage * sizeof(float));
  };
  ASSERT_TRUE(pin(0, 1));
  ASSERT_TRUE(pin(1, 2));
  EXPECT_FALSE(pin(2, 2)) << "one of them is pinned";
  EXPECT_TRUE(BeginsThere(backend, all.subspan(100, 200)));
  EXPECT_TRUE(BeginsThere(backend, all.subspan(3 * kPage - 8, 8)));
  // A copy ends at the end of a range, and the next begins there.
  EXPECT_TRUE(BeginsThere(backend, all.subspan(100, 2 * kPage)));
  // Some of it is not pinned.
  EXPECT_FALSE(BeginsThere(backend, all.subspan(100)));
  EXPECT_FALSE(BeginsThere(backend, all.subspan(3 * kPage)));
  memory->Unregister(&values[kPage]);
  EXPECT_TRUE(BeginsThere(backend, all.first(kPage)));
  EXPECT_FALSE(BeginsThere(backend, all.subspan(kPage, 4)));
  memory->Unregister(&values[0]);
  EXPECT_EQ(device.misuse, absl::OkStatus());
}

TEST(StreamBackendTest, WithoutRegistrationTheHostMovesValues) {
  HostRuntime::Options options;
  options.lazy = true;
  options.refuses_registration = true;
  HostDevice device(options);
  std::vector<float> values(16);
  EXPECT_FALSE(device.backend->host_memory()->Register(values.data(), 64));
  EXPECT_FALSE(BeginsThere(device.backend.get(), absl::MakeSpan(values)));
  EXPECT_NE(device.backend->host_memory()->Allocate(4), nullptr);
  device.runtime->FailWith(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(device.backend->host_memory()->Allocate(4), nullptr);
  device.runtime->FailWith(absl::OkStatus());
}

TEST(StreamBackendTest, TheEndWaitsForAllStreams) {
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
TEST(StreamBackendTest, ADownloadDoesNotWaitForWhatComesAfter) {
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
TEST(StreamBackendTest, AnUploadDoesNotWaitForOtherMatrices) {
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
TEST(StreamBackendTest, AnOperationDoesNotWaitForLaterUploads) {
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

TEST(StreamBackendTest, UploadsOfSeveralPieces) {
  HostDevice device;
  DeviceBuffer staging;
  const std::vector<float> host = RandomValues((3 << 20) + 5, 1);
  const auto x = device.backend->Upload(host, 1, host.size(), &staging);
  ASSERT_TRUE(x.ok());
  const auto download = device.backend->StartDownload(*x);
  ASSERT_TRUE(download.ok());
  ASSERT_TRUE(device.backend->Await(*download).ok());
  EXPECT_TRUE(SameBits(download->values, host));
}

TEST(StreamBackendTest, PartsOfAMatrixAreDownloadedAsSuch) {
  HostDevice device;
  DeviceBuffer staging;
  const std::vector<float> host = RandomValues(20, 1);
  const auto x = device.backend->Upload(host, 4, 5, &staging);
  ASSERT_TRUE(x.ok());
  const auto row = [&](int64_t i) {
    return device.backend->StartDownload({x->data + i * 5, 1, 5});
  };
  const auto last = row(3), first = row(0);
  ASSERT_TRUE(last.ok() && first.ok());
  ASSERT_TRUE(device.backend->Await(*first).ok());
  EXPECT_TRUE(SameBits(first->values, absl::MakeConstSpan(host).first(5)));
  EXPECT_TRUE(SameBits(last->values, absl::MakeConstSpan(host).last(5)));
}

TEST(StreamBackendTest, ASumOfSquaresIsThatOfTheCpu) {
  const std::vector<float> values = RandomValues(1000, 1);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    HostDevice device({.seed = seed});
    Backend* const backend = device.backend.get();
    DeviceBuffer staging, sums;
    const auto x = backend->Upload(values, 10, 100, &staging);
    ASSERT_TRUE(x.ok() && backend->Reserve(4, &sums).ok());
    backend->SumSquares(*x, {sums.View(1, 4).data + 2, 1, 2});
    // A matrix without values has the sum 0.
    backend->SumSquares({x->data, 0, 100}, sums.View(1, 2));
    const auto download = backend->StartDownload(sums.View(1, 4));
    ASSERT_TRUE(download.ok() && backend->Await(*download).ok());
    std::array<double, 2> made;
    std::memcpy(made.data(), download->values.data(), sizeof(made));
    EXPECT_EQ(made[0], 0);
    EXPECT_EQ(made[1], SumOfSquares(values));
  }
}

TEST(StreamBackendTest, EmptyMatrices) {
  HostDevice device;
  Backend* const backend = device.backend.get();
  DeviceBuffer staging, sums;
  const auto x = backend->Upload({}, 0, 5, &staging);
  ASSERT_TRUE(x.ok()) << x.status();
  ASSERT_TRUE(backend->Reserve(5, &sums).ok());
  backend->SumRows(*x, sums.View(1, 5));
  const auto none = backend->StartDownload(*x);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(*backend->HasArrived(*none));
  const auto download = backend->StartDownload(sums.View(1, 5));
  ASSERT_TRUE(download.ok());
  ASSERT_TRUE(backend->Await(*download).ok());
  EXPECT_THAT(download->values, ::testing::Each(0.0f));
}

TEST(StreamBackendTest, MemoryIsKeptForTheNext) {
  HostDevice device;
  DeviceBuffer buffer;
  ASSERT_TRUE(device.backend->Reserve(1000, &buffer).ok());
  const float* const data = buffer.View(1, 1).data;
  buffer = DeviceBuffer();
  ASSERT_TRUE(device.backend->Reserve(900, &buffer).ok());
  EXPECT_EQ(buffer.View(1, 1).data, data);
  DeviceBuffer other;
  // The block is not reused, because half of it would be wasted.
  buffer = DeviceBuffer();
  ASSERT_TRUE(device.backend->Reserve(100, &other).ok());
  EXPECT_NE(other.View(1, 1).data, data);
  EXPECT_EQ(device.runtime->allocations(), 2);
}

TEST(StreamBackendTest, OutOfMemorySaysWhatWasAskedAndWhatIsFree) {
  HostDevice device({.total_bytes = 8 << 20, .lazy = true});
  DeviceBuffer one, two;
  ASSERT_TRUE(device.backend->Reserve(1 << 20, &one).ok());
  // An operation is under way when the memory is given back.
  device.backend->Relu(one.View(1, 16), one.View(1, 16));
  absl::Status status = device.backend->Reserve(5 << 18, &two);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      status.message(),
      HasSubstr("no memory on host:0: the model asked for 5.0 MiB, 4.0 MiB of "
                "8.0 MiB are free, and the model holds 4.0 MiB"));
  status = device.backend->Reserve(int64_t{1} << 62, &two);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  // The backend still works, and unused blocks make room.
  one = DeviceBuffer();
  EXPECT_EQ(device.backend->Reserve(5 << 18, &two), absl::OkStatus());
  EXPECT_EQ(device.misuse, absl::OkStatus());
}

TEST(StreamBackendTest, AnErrorIsToldByTheNextCallThatCan) {
  HostDevice device;
  Backend* const backend = device.backend.get();
  DeviceBuffer buffer;
  ASSERT_TRUE(backend->Reserve(16, &buffer).ok());
  const Matrix x = buffer.View(4, 4);
  device.runtime->FailWith(absl::InternalError("an illegal address"));
  backend->Relu(x, x);
  device.runtime->FailWith(absl::OkStatus());
  // The device cannot be trusted from then on.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(backend->StartDownload(x).status(),
              absl::InternalError("an illegal address"));
  }
}

TEST(StreamBackendTest, RefusesMemoryOfOthers) {
  HostDevice device;
  Backend* const backend = device.backend.get();
  float value = 1;
  const Matrix x = {&value, 1, 1};
  EXPECT_EQ(backend->StartDownload(x).status().code(),
            absl::StatusCode::kInternal);
  backend->Relu(x, x);
  DeviceBuffer buffer;
  EXPECT_THAT(backend->Reserve(1, &buffer).message(),
              HasSubstr("a matrix that was given to host:0 is not in its "
                        "memory"));
}

// The trace of an upload, two operations and a download: the spans of its file,
// and whether the result was right.
struct TracedRun {
  explicit TracedRun(const HostRuntime::Options& options) {
    HostDevice device(options);
    Backend* const backend = device.backend.get();
    backend->SetTracer(&tracer);
    DeviceBuffer staging, first, second;
    const std::vector<float> host = RandomValues(16, 1);
    const auto x = backend->Upload(host, 4, 4, &staging);
    EXPECT_TRUE(x.ok() && backend->Reserve(16, &first).ok() &&
                backend->Reserve(16, &second).ok());
    backend->Relu(*x, first.View(4, 4));
    backend->Add(first.View(4, 4), *x, second.View(4, 4));
    const auto download = backend->StartDownload(second.View(4, 4));
    EXPECT_TRUE(download.ok() && backend->Await(*download).ok());
    right = download->values[3] == std::max(host[3], 0.0f) + host[3];
  }

  // Whether the order of spans agrees with the dependencies.
  bool InOrder() const {
    const ReadTrace trace(tracer.ToJson());
    std::map<std::string, ReadTrace::Event> by_name;
    for (const ReadTrace::Event& event : trace.events) {
      by_name[event.name] = event;
    }
    EXPECT_EQ(by_name.size(), 4);
    return trace.Nests() && by_name["copy in"].end <= by_name["Relu"].begin &&
           by_name["Relu"].end <= by_name["Add"].begin &&
           by_name["Add"].end <= by_name["copy out"].begin;
  }

  Tracer tracer{{}};
  bool right = false;
};

TEST(StreamBackendTest, ATraceShowsTheOrderOfTheDevice) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const TracedRun run({.seed = seed});
    EXPECT_TRUE(run.right);
    EXPECT_TRUE(run.InOrder()) << run.tracer.ToJson();
  }
}

// The trace itself does not cause the order above.
TEST(StreamBackendTest, ATraceShowsThatAWaitIsMissing) {
  int out_of_order = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostRuntime::Options options;
    options.seed = seed;
    options.ignored_wait =
        std::make_pair(StreamId::kCompute, StreamId::kCopyIn);
    if (!TracedRun(options).InOrder()) ++out_of_order;
  }
  EXPECT_GT(out_of_order, 0);
}

TEST(StreamBackendTest, ATraceChangesNoBits) {
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

// The host's clock, controlled by the test.
class FakeClock : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch() + absl::Seconds(100);
};

// Values and weights are copied to the device like labels.
TEST(StreamBackendTest, LossesOfWeightedTargetsAreTheCpus) {
  HostDevice device({.lazy = true});
  const auto cpu = *CpuBackend::Create({});
  const std::vector<float> outputs = RandomValues(6, 1);
  const std::vector<float> targets = RandomValues(6, 2);
  const std::vector<float> weights = {0.5f, 0, 3};
  using Loss = std::function<absl::StatusOr<LossSums>(Backend*, ConstMatrix,
                                                      const Targets&, Matrix*)>;
  for (const Loss& loss :
       {Loss(std::mem_fn(&Backend::MeanSquaredError)),
        Loss(std::mem_fn(&Backend::MeanAbsoluteError)),
        Loss([](Backend*backend, ConstMatrix z, const Targets&targets,
                Matrix*dz) { return backend->Huber(z, targets, 0.5f, dz); }),
        Loss(std::mem_fn(&Backend::SigmoidCrossEntropy))}) {
    const auto on = [&](Backend* backend, std::vector<float>* gradient) {
      DeviceBuffer staging, result;
      const auto x = backend->Upload(outputs, 3, 2, &staging);
      EXPECT_TRUE(x.ok() && backend->Reserve(6, &result).ok());
      Matrix dz = result.View(3, 2);
      const auto sums = loss(backend, *x, {{}, targets, weights}, &dz);
      EXPECT_TRUE(sums.ok()) << sums.status();
      const auto download = backend->StartDownload(dz);
      EXPECT_TRUE(download.ok() && backend->Await(*download).ok());
      gradient->assign(download->values.begin(), download->values.end());
      return *sums;
    };
    std::vector<float> gradient, expected_gradient;
    const LossSums sums = on(device.backend.get(), &gradient);
    const LossSums expected = on(cpu.get(), &expected_gradient);
    EXPECT_EQ(sums.loss, expected.loss);
    EXPECT_EQ(sums.correct, std::nullopt);
    EXPECT_EQ(sums.absolute_error, expected.absolute_error);
    EXPECT_EQ(sums.squared_error, expected.squared_error);
    EXPECT_EQ(gradient, expected_gradient);
  }
}

TEST(StreamBackendTest, ATraceHasTheDevicesTimeOnTheHostsLine) {
  FakeClock clock;
  Tracer tracer({.clock = &clock});
  HostDevice device({.lazy = true});
  Backend* const backend = device.backend.get();
  backend->SetTracer(&tracer);
  DeviceBuffer staging, result;
  const std::vector<float> host = RandomValues(16, 1);
  const auto x = backend->Upload(host, 4, 4, &staging);
  ASSERT_TRUE(x.ok() && backend->Reserve(16, &result).ok());
  const auto relu = [&] {
    backend->Relu(*x, result.View(4, 4));
    const auto download = backend->StartDownload(result.View(4, 4));
    ASSERT_TRUE(download.ok() && backend->Await(*download).ok());
  };
  relu();
  // Collects the spans, and aligns the clocks again.
  clock.now += absl::Seconds(2);
  const std::vector<int32_t> labels(4);
  ASSERT_TRUE(backend->SoftmaxCrossEntropy(*x, {labels}, nullptr).ok());
  relu();
  staging = DeviceBuffer();
  result = DeviceBuffer();
  device.backend.reset();

  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> spans;
  for (const ReadTrace::Event& event : ReadTrace(tracer.ToJson()).events) {
    spans[event.name].emplace_back(std::llround(event.begin - 100e6),
                                   std::llround(event.end - 100e6));
  }
  // A copy is two items. Those of other streams wait for it, which is an item
  // too.
  EXPECT_EQ(spans["copy in"][0], std::make_pair(int64_t{0}, int64_t{2}));
  ASSERT_EQ(spans["Relu"].size(), 2);
  EXPECT_EQ(spans["Relu"][0], std::make_pair(int64_t{3}, int64_t{4}));
  EXPECT_EQ(spans["copy out"][0], std::make_pair(int64_t{5}, int64_t{7}));
  // The loss is timed by the first anchor.
  EXPECT_LT(spans["Loss"][0].second, 1000);
  EXPECT_GE(spans["Relu"][1].first, 2'000'000);
  EXPECT_LT(spans["Relu"][1].second, 2'001'000);
}

TEST(StreamBackendTest, ATraceTellsBytesAndTracks) {
  Tracer tracer({});
  HostDevice device;
  device.backend->SetTracer(&tracer);
  DeviceBuffer staging;
  const std::vector<float> host = RandomValues((3 << 20) + 5, 1);
  const auto x = device.backend->Upload(host, 1, host.size(), &staging);
  ASSERT_TRUE(x.ok());
  ASSERT_TRUE(device.backend->StartDownload({x->data, 1, 7}).ok());
  staging = DeviceBuffer();
  device.backend.reset();
  const auto copies = ReadTrace(tracer.ToJson()).OfKind("copy");
  ASSERT_EQ(copies.size(), 2);
  EXPECT_EQ(copies[0].track, "host:0 copies in");
  EXPECT_EQ(copies[0].args.at("bytes"), host.size() * sizeof(float));
  EXPECT_EQ(copies[1].track, "host:0 copies out");
  EXPECT_EQ(copies[1].args.at("bytes"), 28);
}

// A model, its data, and what it computes in some steps.
class Training {
 public:
  explicit Training(const std::string& config, std::vector<int64_t> shape,
                    int num_classes)
      : shape_(std::move(shape)), num_classes_(num_classes) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        config, config_.mutable_sequential()));
  }

  // All gradients and losses of some steps of gradient descent, with an
  // evaluation after each, on batches of two sizes.
  std::vector<std::vector<float>> Run(Backend* backend, int steps = 3) const {
    std::vector<std::vector<float>> made;
    auto model = CreateModel(config_, {shape_, num_classes_}, 7, backend,
                             ModelRegistry());
    if (!model.ok()) {
      ADD_FAILURE() << model.status();
      return made;
    }
    int64_t example_size = 1;
    for (const int64_t dimension : shape_) example_size *= dimension;
    const std::vector<proto::Variable> variables = (*model)->Variables();
    std::vector<std::vector<float>> parameters;
    for (const proto::Variable& variable : variables) {
      int64_t size = 1;
      for (const int64_t dimension : variable.shape()) size *= dimension;
      parameters.push_back(RandomValues(size, 10 + parameters.size()));
    }
    for (int step = 0; step < steps; ++step) {
      const int64_t examples = step % 2 == 1 ? 9 : 5;
      const std::vector<float> inputs =
          RandomValues(examples * example_size, 1000 + step);
      std::vector<int32_t> labels(examples);
      std::vector<int64_t> positions(examples);
      for (int64_t i = 0; i < examples; ++i) {
        labels[i] = (i * 7 + step) % num_classes_;
        positions[i] = 100 * step + i;
      }
      const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                       parameters.end());
      std::vector<std::vector<float>> gradients(parameters.size());
      const auto result = (*model)->ComputeGradients(
          spans, {inputs, labels, positions},
          [&](int variable, absl::Span<const float> gradient) {
            gradients[variable].assign(gradient.begin(), gradient.end());
          });
      if (!result.ok()) {
        ADD_FAILURE() << result.status();
        return made;
      }
      made.push_back({static_cast<float>(result->loss_sum)});
      for (size_t v = 0; v < parameters.size(); ++v) {
        for (size_t i = 0; i < gradients[v].size(); ++i) {
          parameters[v][i] -= 0.1f * gradients[v][i];
        }
        made.push_back(gradients[v]);
      }
      const auto evaluated = (*model)->Evaluate(spans, {inputs, labels});
      if (!evaluated.ok()) {
        ADD_FAILURE() << evaluated.status();
        return made;
      }
      made.push_back({static_cast<float>(evaluated->loss_sum)});
    }
    return made;
  }

 private:
  proto::Model config_;
  const std::vector<int64_t> shape_;
  const int num_classes_;
};

void ExpectTheCpusBits(const Training& training, int seeds,
                       CpuBackend::Options arithmetic = {}) {
  const auto cpu = *CpuBackend::Create(arithmetic);
  const auto expected = training.Run(cpu.get());
  ASSERT_FALSE(expected.empty());
  for (int seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    HostDevice device({.seed = static_cast<uint64_t>(seed)}, nullptr,
                      arithmetic);
    EXPECT_EQ(device.backend->RoundsActivations(), cpu->RoundsActivations());
    const auto made = training.Run(device.backend.get());
    ASSERT_EQ(made.size(), expected.size());
    for (size_t i = 0; i < made.size(); ++i) {
      ASSERT_TRUE(SameBits(made[i], expected[i])) << "result " << i;
    }
    device.backend.reset();
    ASSERT_EQ(device.misuse, absl::OkStatus());
  }
}

TEST(StreamBackendTest, AMultilayerPerceptronGetsTheCpusBits) {
  ExpectTheCpusBits(Training(R"pb(
                               layers { dense { units: 12 } }
                               layers { relu {} }
                               layers { dropout { rate: 0.25 } }
                               layers { dense { units: 9 } }
                               layers { tanh {} }
                               layers { dense { units: 8 } }
                               layers { sigmoid {} }
                               layers { dropout { rate: 0.5 } }
                               layers { dense { units: 4 } }
                               loss { softmax_cross_entropy {} }
                             )pb",
                             {6}, 4),
                    100);
}

TEST(StreamBackendTest, AConvolutionalNetworkGetsTheCpusBits) {
  ExpectTheCpusBits(
      Training(R"pb(
                 layers { conv2d { filters: 4 kernel_size: 3 padding: SAME } }
                 layers { batch_norm {} }
                 layers { relu {} }
                 layers { max_pool2d { size: 2 } }
                 layers {
                   residual {
                     layers { layer_norm {} }
                     layers { conv2d { filters: 4 kernel_size: 1 groups: 2 } }
                   }
                 }
                 layers { average_pool2d { size: 2 stride: 1 } }
                 layers { flatten {} }
                 layers { dense { units: 3 } }
                 loss { mean_squared_error {} }
               )pb",
               {6, 6, 2}, 3),
      30);
}

TEST(StreamBackendTest, RoundedActivationsGetTheCpusBits) {
  ExpectTheCpusBits(
      Training(
          R"pb(
            layers { conv2d { filters: 4 kernel_size: 3 use_bias: false } }
            layers { batch_norm {} }
            layers { relu {} }
            layers {
              residual {
                layers { conv2d { filters: 4 kernel_size: 1 use_bias: false } }
                layers { batch_norm {} }
              }
            }
            layers { relu {} }
            layers { conv2d { filters: 3 kernel_size: 2 use_bias: false } }
            layers { batch_norm {} }
            layers { flatten {} }
            layers { dense { units: 3 } }
            loss { softmax_cross_entropy {} }
          )pb",
          {5, 5, 2}, 3),
      10, {.precision = Precision::kBfloat16, .activations = true});
}

TEST(StreamBackendTest, ALossDoesNotWaitForWhatComesAfter) {
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

// Runs steps, every second of which has a loss that is not finite. Returns all
// gradients.
std::vector<std::vector<float>> TrainWithNans(Backend* backend) {
  proto::Model config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(layers { dense { units: 12 } }
           layers { tanh {} }
           layers { dense { units: 4 } }
           loss { softmax_cross_entropy {} })pb",
      config.mutable_sequential()));
  auto model = CreateModel(config, {{6}, 4}, 7, backend, ModelRegistry());
  EXPECT_TRUE(model.ok()) << model.status();
  const std::vector<int32_t> labels = {0, 1, 2, 3, 0};
  const std::vector<int64_t> positions = {0, 1, 2, 3, 4};
  std::vector<std::vector<float>> made;
  for (int step = 0; step < 6; ++step) {
    std::vector<float> inputs = RandomValues(30, step);
    if (step % 2 == 1) inputs[7] = NAN;
    const std::vector<std::vector<float>> parameters = {
        RandomValues(72, 1), RandomValues(12, 2), RandomValues(48, 3),
        RandomValues(4, 4)};
    const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                     parameters.end());
    const size_t before = made.size();
    const auto result = (*model)->ComputeGradients(
        spans, {inputs, labels, positions},
        [&](int, absl::Span<const float> gradient) {
          made.emplace_back(gradient.begin(), gradient.end());
        });
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->finite, step % 2 == 0);
    EXPECT_EQ(made.size() - before, step % 2 == 0 ? 4 : 0);
  }
  return made;
}

TEST(StreamBackendTest, ALossThatIsNotFiniteGivesNothing) {
  const auto cpu = *CpuBackend::Create({});
  const auto expected = TrainWithNans(cpu.get());
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    HostDevice device({.seed = seed});
    const auto made = TrainWithNans(device.backend.get());
    ASSERT_EQ(made.size(), expected.size());
    for (size_t i = 0; i < made.size(); ++i) {
      ASSERT_TRUE(SameBits(made[i], expected[i])) << "gradient " << i;
    }
    device.backend.reset();
    EXPECT_EQ(device.misuse, absl::OkStatus());
  }
}

// Another thread waits for the loss.
TEST(StreamBackendTest, TheBackwardPassDoesNotWaitForTheLoss) {
  Tracer tracer({});
  HostDevice device({.lazy = true});
  device.backend->SetTracer(&tracer);
  TrainWithNans(device.backend.get());
  device.backend.reset();
  std::vector<ReadTrace::Event> backward, waits;
  for (const ReadTrace::Event& event : ReadTrace(tracer.ToJson()).events) {
    if (event.name == "backward") backward.push_back(event);
    if (event.name == "the loss") waits.push_back(event);
  }
  ASSERT_EQ(backward.size(), 6);
  ASSERT_EQ(waits.size(), 6);
  for (int step = 0; step < 6; ++step) {
    EXPECT_EQ(waits[step].track, "thread gradients");
    EXPECT_NE(backward[step].track, waits[step].track);
  }
}

// The parameters' memory may be freed as soon as a call has returned, whether
// the results depend on all uploads or not: the host waits for the uploads as
// well.
TEST(StreamBackendTest, NothingReadsParametersWhenAStepIsOver) {
  proto::Model config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(layers { dense { units: 12 } }
           layers { tanh {} }
           layers { dense { units: 4 } }
           layers { batch_norm {} }
           loss { softmax_cross_entropy {} })pb",
      config.mutable_sequential()));
  std::vector<float> inputs = RandomValues(30, 1);
  const std::vector<int32_t> labels = {0, 1, 2, 3, 0};
  const std::vector<int64_t> positions = {0, 1, 2, 3, 4};
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    HostRuntime::Options options;
    options.seed = seed;
    if (seed % 2 == 1) options.ignored_synchronize = StreamId::kCopyOut;
    HostDevice device(options);
    HostMemory* const memory = device.backend->host_memory();
    auto model =
        CreateModel(config, {{6}, 4}, 7, device.backend.get(), ModelRegistry());
    ASSERT_TRUE(model.ok()) << model.status();
    const auto call = [&](const auto& calls_it) {
      std::vector<HostBuffer> buffers;
      std::vector<absl::Span<const float>> spans;
      for (const proto::Variable& variable : (*model)->Variables()) {
        int64_t size = 1;
        for (const int64_t dimension : variable.shape()) size *= dimension;
        buffers.push_back(memory->Allocate(size));
        std::fill_n(buffers.back().get(), size, 0.5f);
        spans.push_back({buffers.back().get(), static_cast<size_t>(size)});
      }
      const absl::StatusOr<BatchResult> result = calls_it(spans);
      ASSERT_TRUE(result.ok()) << result.status();
    };
    const auto compute = [&](absl::Span<const absl::Span<const float>> spans) {
      return (*model)->ComputeGradients(spans, {inputs, labels, positions},
                                        [](int, absl::Span<const float>) {});
    };
    call(compute);
    call([&](const auto& spans) {
      return (*model)->Evaluate(spans, {inputs, labels});
    });
    const float input = std::exchange(inputs[0], NAN);
    call(compute);
    inputs[0] = input;
    ASSERT_EQ(device.misuse, absl::OkStatus());
  }
}

// Runs steps of a model on batches in pinned memory, each of which names the
// next batch; sometimes another batch comes. The memory of the named batch may
// be overwritten as soon as the step is over. Returns all gradients.
std::vector<std::vector<float>> TrainWithNextBatches(Backend* backend) {
  constexpr int kSteps = 9;
  constexpr int64_t kExamples = 5;
  constexpr int64_t kSize = kExamples * 6;
  proto::Model config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(layers { dense { units: 12 } }
           layers { tanh {} }
           layers { dropout { rate: 0.25 } }
           layers { dense { units: 4 } }
           loss { softmax_cross_entropy {} })pb",
      config.mutable_sequential()));
  auto model = CreateModel(config, {{6}, 4}, 7, backend, ModelRegistry());
  EXPECT_TRUE(model.ok()) << model.status();
  const std::vector<std::vector<float>> parameters = {
      RandomValues(72, 1), RandomValues(12, 2), RandomValues(48, 3),
      RandomValues(4, 4)};
  const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                   parameters.end());
  const std::vector<int32_t> labels = {0, 1, 2, 3, 0};
  std::vector<std::vector<int64_t>> positions(kSteps + 1);
  for (int step = 0; step <= kSteps; ++step) {
    for (int64_t i = 0; i < kExamples; ++i) {
      positions[step].push_back(kExamples * step + i);
    }
  }
  std::vector<HostBuffer> slots;
  for (int i = 0; i < 2; ++i) slots.push_back(*backend->AllocateHost(kSize));
  const auto fill = [&](int slot, int step) {
    const std::vector<float> values = RandomValues(kSize, 100 + step);
    std::copy(values.begin(), values.end(), slots[slot].get());
  };

  std::vector<std::vector<float>> made;
  fill(0, 0);
  for (int step = 0; step < kSteps; ++step) {
    const int slot = step % 2;
    fill(1 - slot, step + 1);
    Batch batch;
    batch.inputs = {slots[slot].get(), kSize};
    batch.labels = labels;
    batch.positions = positions[step];
    batch.next_inputs = {slots[1 - slot].get(), kSize};
    batch.next_positions = positions[step + 1];
    // Another batch comes.
    const bool wrong = step % 3 == 2;
    if (wrong) {
      fill(1 - slot, 1000);
      batch.next_positions = positions[0];
    }
    const auto result = (*model)->ComputeGradients(
        spans, batch, [&](int, absl::Span<const float> gradient) {
          made.emplace_back(gradient.begin(), gradient.end());
        });
    EXPECT_TRUE(result.ok()) << result.status();
    std::fill_n(slots[slot].get(), kSize, NAN);
    // A device has copied it already, if it was named.
    const bool brought = dynamic_cast<StreamBackend*>(backend) != nullptr;
    if (brought && !wrong) {
      std::fill_n(slots[1 - slot].get(), kSize, NAN);
    } else {
      fill(1 - slot, step + 1);
    }
  }
  return made;
}

TEST(StreamBackendTest, TheNextBatchIsBroughtWhileGradientsAreComputed) {
  const auto cpu = *CpuBackend::Create({});
  const auto expected = TrainWithNextBatches(cpu.get());
  ASSERT_EQ(expected.size(), 36u);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    HostDevice device({.seed = seed});
    const auto made = TrainWithNextBatches(device.backend.get());
    ASSERT_EQ(made.size(), expected.size());
    for (size_t i = 0; i < made.size(); ++i) {
      ASSERT_TRUE(SameBits(made[i], expected[i])) << "gradient " << i;
    }
    device.backend.reset();
    EXPECT_EQ(device.misuse, absl::OkStatus());
  }
}

TEST(StreamBackendTest, TakesNoMemoryInTheSteadyState) {
  const Training training(R"pb(
                            layers { dense { units: 12 } }
                            layers { relu {} }
                            layers { dropout { rate: 0.25 } }
                            layers { dense { units: 4 } }
                            loss { sigmoid_cross_entropy {} }
                          )pb",
                          {6}, 4);
  HostDevice a_few_steps, more_steps;
  training.Run(a_few_steps.backend.get(), 4);
  training.Run(more_steps.backend.get(), 8);
  EXPECT_EQ(more_steps.runtime->allocations(),
            a_few_steps.runtime->allocations());
}

}  // namespace
}  // namespace holdfast
