// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SHARD_ROW_MEMORY_H_
#define HOLDFAST_PS_SERVER_SHARD_ROW_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/shared_memory/arena.h"

namespace holdfast {

// The memory to which rows of embedding tables are copied for an answer: shared
// memory, which a process of the same host can read in place
// (docs/protocol/same_host.md), up to a limit, or else private memory.
//
// Thread-compatible. What Take has returned may be released on any thread, and
// may outlive the object and the arena.
class RowMemory {
 public:
  // Private memory only.
  RowMemory() = default;
  // Takes at most `max_shared_bytes` of `arena` at a time; `arena` must outlive
  // the object.
  RowMemory(SharedArena* arena, int64_t max_shared_bytes)
      : arena_(arena), max_shared_bytes_(max_shared_bytes) {}

  // Returns memory for `size` (at least 1) elements, with unspecified contents:
  // shared memory if `may_be_lent`, and if the limit leaves any.
  std::shared_ptr<float> Take(size_t size, bool may_be_lent);

 private:
  // Returns null if no shared memory may or can be taken.
  std::shared_ptr<float> TakeShared(size_t bytes);

  SharedArena* arena_ = nullptr;
  int64_t max_shared_bytes_ = 0;
  // The number of bytes of shared memory that are in use.
  std::shared_ptr<std::atomic<int64_t>> shared_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_ROW_MEMORY_H_
