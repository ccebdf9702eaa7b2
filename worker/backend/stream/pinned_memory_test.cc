// SPDX-License-Identifier: Apache-2.0

// Which copies to the fake device read the host's memory directly, because it
// is pinned.
#include "worker/backend/stream/pinned_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/process/host_memory.h"
#include "worker/backend/backend.h"
#include "worker/backend/pinned_ranges.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/testing/host_device.h"

namespace holdfast {
namespace {

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

TEST(PinnedMemoryTest, UploadsBeginInPinnedMemory) {
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
  // The call itself reads other memory.
  std::vector<float> other(4);
  EXPECT_FALSE(BeginsThere(backend, absl::MakeSpan(other)));
  // Freeing the memory waits for copies that may read it.
  ASSERT_TRUE(backend->Upload({host->get(), 4}, 2, 2, &staging).ok());
  host->reset();
  EXPECT_EQ(device.misuse, absl::OkStatus());
}

TEST(PinnedMemoryTest, PinnedMemoryIsThatOfAllBackendsThatShareIt) {
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

TEST(PinnedMemoryTest, MemoryOfOthersIsPinnedByRanges) {
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

TEST(PinnedMemoryTest, WithoutRegistrationTheHostMovesValues) {
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

}  // namespace
}  // namespace holdfast
