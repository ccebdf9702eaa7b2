// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_PROCESS_TESTING_HOST_MEMORY_TESTING_H_
#define HOLDFAST_COMMON_PROCESS_TESTING_HOST_MEMORY_TESTING_H_

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/process/host_memory.h"
#include "gtest/gtest.h"

namespace holdfast {

// Pins nothing, but records what it was asked to pin. Requests that a device
// would reject fail the test.
//
// Thread-safe.
class FakeHostMemory final : public HostMemory {
 public:
  // Whether to refuse all requests. Set by tests.
  std::atomic<bool> refuses{false};

  ~FakeHostMemory() override {
    EXPECT_EQ(buffers_, 0);
    EXPECT_EQ(num_ranges(), 0);
  }

  // The number of buffers that Allocate has made so far, and the number of
  // those that are not released yet.
  int allocations() const { return allocations_; }
  int buffers() const { return buffers_; }
  // The number of calls of Register.
  int requests() const { return requests_; }
  int num_ranges() const {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(ends_.size());
  }
  // Whether all `bytes` bytes from `data` on are registered, in one range or
  // several.
  bool IsRegistered(const void* data, size_t bytes) const {
    const char* place = static_cast<const char*>(data);
    const char* const end = place + bytes;
    absl::MutexLock lock(&mutex_);
    while (place < end) {
      const auto next = ends_.upper_bound(place);
      if (next == ends_.begin() || std::prev(next)->second <= place) {
        return false;
      }
      place = std::prev(next)->second;
    }
    return true;
  }

  HostBuffer Allocate(int64_t size) override {
    if (refuses) return nullptr;
    ++allocations_;
    ++buffers_;
    return HostBuffer(new float[size], [this](float* memory) {
      --buffers_;
      delete[] memory;
    });
  }

  bool Register(const void* data, size_t bytes) override {
    ++requests_;
    if (refuses) return false;
    const size_t page = sysconf(_SC_PAGESIZE);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % page, 0);
    EXPECT_EQ(bytes % page, 0);
    EXPECT_GT(bytes, 0);
    const char* const begin = static_cast<const char*>(data);
    absl::MutexLock lock(&mutex_);
    const auto next = ends_.lower_bound(begin);
    EXPECT_TRUE(next == ends_.end() || next->first >= begin + bytes);
    EXPECT_TRUE(next == ends_.begin() || std::prev(next)->second <= begin);
    ends_[begin] = begin + bytes;
    return true;
  }

  void Unregister(const void* data) override {
    absl::MutexLock lock(&mutex_);
    EXPECT_EQ(ends_.erase(static_cast<const char*>(data)), 1);
  }

 private:
  std::atomic<int> allocations_{0};
  std::atomic<int> buffers_{0};
  std::atomic<int> requests_{0};
  mutable absl::Mutex mutex_;
  // The registered ranges: for the address of each range's first byte, the
  // address after its last byte.
  std::map<const char*, const char*> ends_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_TESTING_HOST_MEMORY_TESTING_H_
