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
// It keeps as many pieces of each size as were ever in use at one time, never
// more.
//
// Thread-safe, as are the pieces' references, which may outlive the pool.
class ChunkPool {
 public:
  // `values`: the arena from which TakeValues takes memory; it must outlive the
  // pool. Null: private memory, for instance if the system has no huge pages of
  // shared memory (SharedArena::HugePagesWork).
  explicit ChunkPool(SharedArena* values = nullptr);
  ~ChunkPool();
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  // Private memory for `elements` float32, aligned to a cache line. Memory of 2
  // MiB or more begins at a huge page, and consists of huge pages, except for
  // its tail, if the system has them: without TLB misses an update is a fifth
  // to a third faster. The content is not specified.
  std::shared_ptr<float> Take(size_t elements);
  // The same, but memory that other processes may map; private memory if the
  // arena can get no more.
  std::shared_ptr<float> TakeValues(size_t elements);

  // Bytes of all its pieces, in use or spare, and of the whole arena.
  int64_t bytes() const;

 private:
  struct Shelf;
  SharedArena* const values_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_
