// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_PROCESS_HOST_MEMORY_H_
#define HOLDFAST_COMMON_PROCESS_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace holdfast {

// float32 memory of the host. Its destruction gives the memory back to its
// allocator.
using HostBuffer = std::unique_ptr<float[], std::function<void(float*)>>;

// Pinned memory of the host, from which a device can copy by itself. Values in
// other memory must first be copied to pinned memory by the host, several times
// more slowly than the device could copy them.
//
// Everything works without pinned memory, so a lack of it is not an error: it
// is logged once.
//
// Thread-safe.
class HostMemory {
 public:
  virtual ~HostMemory() = default;

  // Allocates pinned memory for `size` values, which are undefined. Returns
  // null if there is no pinned memory. The buffer must not outlive this object,
  // and no copy from it may be in progress when it is released.
  virtual HostBuffer Allocate(int64_t size) = 0;

  // Pins existing memory: `bytes` bytes from `data` on. They must be whole
  // pages, none of them pinned yet; they may be mapped read-only. Returns
  // whether it succeeded; if so, Unregister must be called before the memory is
  // unmapped.
  virtual bool Register(const void* data, size_t bytes) = 0;
  // Unpins the memory that was registered from `data` on. No copy from it may
  // be in progress.
  virtual void Unregister(const void* data) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_HOST_MEMORY_H_
