// SPDX-License-Identifier: Apache-2.0
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

// A block of a device's memory, and the work under way in it: the last item of
// each stream's Timeline that touches it. These items stay when the block is
// given back, so the next user of the block waits for the previous one.
struct Block {
  float* device = nullptr;
  int64_t size = 0;
  // A block of the same size on the host; null until a copy needs it.
  float* pinned = nullptr;

  uint64_t computed = 0;
  uint64_t copied_in = 0;
  uint64_t copied_out = 0;

  bool taken = false;
};

// A device's memory, in blocks that are kept for the next request of a similar
// size, because allocating and freeing a device's memory may stall all of its
// streams.
//
// Thread-compatible.
class BlockPool {
 public:
  // `device` is its name for messages. `await_streams` waits until no work is
  // under way. None may be under way either when the pool is destroyed.
  BlockPool(DeviceRuntime* runtime, std::string device,
            std::function<absl::Status()> await_streams);
  ~BlockPool();

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns a block of at least `size` values, which is above 0, and of at most
  // about twice as many. Frees all blocks that are not taken if that is needed
  // to make room. Errors: RESOURCE_EXHAUSTED, saying how much was asked for and
  // how much is free; those of `await_streams`.
  absl::StatusOr<Block*> Take(int64_t size);
  // Gives back a block that was taken, named by its first value.
  void GiveBack(float* device);

  // Makes `block->pinned`. Errors: RESOURCE_EXHAUSTED.
  absl::Status Pin(Block* block);

  // The taken block that holds this value; null if there is none.
  Block* Find(const float* value);

 private:
  absl::Status FreeUntaken();

  DeviceRuntime* const runtime_;
  const std::string device_;
  const std::function<absl::Status()> await_streams_;
  // Keyed by their first value.
  std::map<const float*, std::unique_ptr<Block>> blocks_;
  // The total size of the blocks, taken or not.
  int64_t held_bytes_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_BLOCK_POOL_H_
