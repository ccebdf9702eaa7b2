#ifndef HOLDFAST_WORKER_BACKEND_STREAM_BLOCK_POOL_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_BLOCK_POOL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/stream/device_runtime.h"

namespace holdfast {

// A piece of a device's memory, and what is under way in it: the last item of
// each stream's Timeline that touches it. That stays when the block is given
// back, so whoever takes it next waits for whoever had it before.
struct Block {
  float* device = nullptr;
  int64_t size = 0;
  // As large, on the host; null until a copy needs it.
  float* pinned = nullptr;

  uint64_t computed = 0;
  uint64_t copied_in = 0;
  uint64_t copied_out = 0;

  bool taken = false;
};

// A device's memory, in blocks that are kept for the next one who wants such a
// size: taking memory from the device, and giving it back, may halt all of its
// streams.
//
// Thread-compatible.
class BlockPool {
 public:
  // `device` is its name for messages. `await_streams` waits until nothing is
  // under way, which must be so too when the pool ends.
  BlockPool(DeviceRuntime* runtime, std::string device,
            std::function<absl::Status()> await_streams);
  ~BlockPool();

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block of at least `size` values, above 0, and about twice as many at
  // most. Gives what nobody has taken back to the device where that makes room.
  // Errors: RESOURCE_EXHAUSTED, with what was asked for and what is free; those
  // of `await_streams`.
  absl::StatusOr<Block*> Take(int64_t size);
  // Of a block that was taken, by its first value.
  void GiveBack(float* device);

  // Makes `block->pinned`. Errors: RESOURCE_EXHAUSTED.
  absl::Status Pin(Block* block);

  // The taken block that holds this value; null where there is none.
  Block* Find(const float* value);

 private:
  absl::Status FreeUntaken();

  DeviceRuntime* const runtime_;
  const std::string device_;
  const std::function<absl::Status()> await_streams_;
  // By their first value.
  std::map<const float*, std::unique_ptr<Block>> blocks_;
  // In blocks, taken or not.
  int64_t held_bytes_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_BLOCK_POOL_H_
