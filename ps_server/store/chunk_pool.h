#ifndef HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_
#define HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/shared_memory/arena.h"

namespace holdfast {

// Memory for a shard's slots and values, used again when the last reference to
// a piece goes: fresh pages cost more than the update that fills them.
//
// Of each size of piece it keeps as many as were in use at one time, never
// more.
//
// Thread-safe, as are the pieces' references, which may outlive the pool.
class ChunkPool {
 public:
  // `values`: where TakeValues takes memory from; it must outlive the pool.
  // Null: private memory, as where the system has no huge pages of shared
  // memory (SharedArena::HugePagesWork).
  explicit ChunkPool(SharedArena* values = nullptr);
  ~ChunkPool();
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  // Private room for `elements` float32, aligned to a cache line. What is 2 MiB
  // or longer begins at a huge page, and lies in such as far as it is whole
  // ones, where the system has them: without misses of the TLB an update is a
  // fifth to a third faster. The content is not specified.
  std::shared_ptr<float> Take(size_t elements);
  // The same, but memory that others may map; private memory where the arena
  // can get no more.
  std::shared_ptr<float> TakeValues(size_t elements);

  // Of all its pieces, those in use and the spare ones, and all of the arena.
  int64_t bytes() const;

 private:
  struct Shelf;
  SharedArena* const values_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_
