#ifndef HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_
#define HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace holdfast {

// Memory for chunks, used again when the last reference to a chunk goes: fresh
// pages cost more than the update that fills them.
//
// Of each size of chunk it keeps as many as were in use at one time, never
// more.
//
// Thread-safe, as are the chunks' references, which may outlive the pool.
class ChunkPool {
 public:
  ChunkPool();
  ~ChunkPool();
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  // Room for `elements` float32, aligned to a cache line; a multiple of 2 MiB
  // lies in huge pages, where the system has them: without misses of the TLB an
  // update is a fifth to a third faster. The content is not specified.
  std::shared_ptr<float> Take(size_t elements);

  // Of all its chunks, those in use and the spare ones.
  int64_t bytes() const;

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_STORE_CHUNK_POOL_H_
