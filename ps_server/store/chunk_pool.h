// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_
#define HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/shared_memory/arena.h"

namespace holdfast {

// Memory for a shard's slots and values, reused once the last reference to a
// piece is gone: fresh pages cost more than the update that fills them.
//
// The pool keeps as many pieces of each size as were ever in use at one time,
// never more.
//
// Thread-safe, as are the pieces' references, which may outlive the pool.
class ChunkPool {
 public:
  // `values` is the arena from which TakeValues takes memory; it must outlive
  // the pool. If `values` is null, TakeValues takes private memory, for
  // instance because the system has no huge pages of shared memory
  // (SharedArena::HugePagesWork).
  explicit ChunkPool(SharedArena* values = nullptr);
  ~ChunkPool();
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  // Returns private memory for `elements` float32, aligned to a cache line,
  // with unspecified content. Memory of 2 MiB or more begins at a huge page
  // and, if the system has huge pages, consists of them, except for the rest
  // that fills no whole one: without TLB misses an update is a fifth to a third
  // faster.
  std::shared_ptr<float> Take(size_t elements);
  // Like Take, but the memory is in the arena, so that other processes may map
  // it; it is private if the arena can get no more memory.
  std::shared_ptr<float> TakeValues(size_t elements);

  // The number of bytes of all pieces of the pool, in use or spare, and of the
  // whole arena.
  int64_t bytes() const;

 private:
  struct Shelf;
  SharedArena* const values_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_
