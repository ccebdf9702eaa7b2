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

// A block of a device's memory, and the work that may be under way in it: for
// each stream, the last item of its Timeline that touches the block; 0 if there
// is none. The block keeps these items when it is given back, so that its next
// user waits for the previous one.
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

// Allocates a device's memory in blocks, and keeps a block that is given back
// for the next request of a similar size, because allocating and freeing a
// device's memory may stall all of its streams.
//
// Thread-compatible.
class BlockPool {
 public:
  // `device` is the device's name for messages. `await_streams` waits until no
  // work is under way on the device. No work may be under way when the pool is
  // destroyed.
  BlockPool(DeviceRuntime* runtime, std::string device,
            std::function<absl::Status()> await_streams);
  ~BlockPool();

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns a block of at least `size` values, which must be above 0, and of at
  // most about twice as many. If there is no room for the block, first frees
  // all blocks that are not taken. Errors: RESOURCE_EXHAUSTED, saying how much
  // was asked for and how much is free; those of `await_streams`.
  absl::StatusOr<Block*> Take(int64_t size);
  // Gives back a block that was taken; `device` is its Block::device.
  void GiveBack(float* device);

  // Allocates `block->pinned`, unless it is allocated already. Errors:
  // RESOURCE_EXHAUSTED.
  absl::Status Pin(Block* block);

  // Returns the taken block that contains this address; null if there is none.
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
