#ifndef HOLDFAST_COMMON_PROCESS_HOST_MEMORY_H_
#define HOLDFAST_COMMON_PROCESS_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace holdfast {

// float32 memory of the host, given back at the end to whoever made it.
using HostBuffer = std::unique_ptr<float[], std::function<void(float*)>>;

// Pinned memory of the host: what a device copies from by itself. From any
// other memory the host has to move values to pinned memory first, several
// times as slowly as the device could copy them.
//
// Without it all works alike, so a lack of it is no error: the log says so,
// once.
//
// Thread-safe.
class HostMemory {
 public:
  virtual ~HostMemory() = default;

  // Pinned memory for so many values, which are undefined; null where there is
  // none. It must not outlive this object, and nobody may be copying from it
  // when it goes.
  virtual HostBuffer Allocate(int64_t size) = 0;

  // Pins memory that is there: `bytes` from `data` on, whole pages, which may
  // be mapped for reading only and of which none is pinned. Whether it could be
  // done; then Unregister must be called before the memory is unmapped.
  virtual bool Register(const void* data, size_t bytes) = 0;
  // Of what was registered from `data` on. Nobody may be copying from it.
  virtual void Unregister(const void* data) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_HOST_MEMORY_H_
