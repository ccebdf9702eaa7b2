#include "ps_server/store/chunk_pool.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kHugePage = size_t{2} << 20;

bool IsHuge(size_t bytes) { return bytes > 0 && bytes % kHugePage == 0; }

// Whole huge pages are mapped here: what malloc maps lies anywhere, and with
// its own header takes a page more. Where the system has no huge pages to give,
// these are small ones.
char* MapHuge(size_t bytes) {
  void* const mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  PCHECK(mapped != MAP_FAILED) << "no memory for a chunk of values";
  char* const begin = static_cast<char*>(mapped);
  const size_t before =
      (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kHugePage - before);
  madvise(begin + before, bytes, MADV_HUGEPAGE);
  return begin + before;
}

float* Allocate(size_t elements) {
  const size_t bytes = elements * sizeof(float);
  return reinterpret_cast<float*>(
      IsHuge(bytes) ? MapHuge(bytes)
                    : static_cast<char*>(::operator new(bytes, kAlignment)));
}

void Free(float* chunk, size_t elements) {
  const size_t bytes = elements * sizeof(float);
  if (IsHuge(bytes)) {
    munmap(chunk, bytes);
  } else {
    ::operator delete(chunk, kAlignment);
  }
}

}  // namespace

struct ChunkPool::Shelf {
  absl::Mutex mutex;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  // Spare chunks by their size in elements.
  absl::flat_hash_map<size_t, std::vector<float*>> spare ABSL_GUARDED_BY(mutex);
  int64_t bytes ABSL_GUARDED_BY(mutex) = 0;
};

ChunkPool::ChunkPool() : shelf_(std::make_shared<Shelf>()) {}

ChunkPool::~ChunkPool() {
  absl::MutexLock lock(&shelf_->mutex);
  shelf_->closed = true;
  for (auto& [size, chunks] : shelf_->spare) {
    for (float* chunk : chunks) Free(chunk, size);
  }
  shelf_->spare.clear();
}

std::shared_ptr<float> ChunkPool::Take(size_t elements) {
  float* chunk = nullptr;
  {
    absl::MutexLock lock(&shelf_->mutex);
    const auto it = shelf_->spare.find(elements);
    if (it != shelf_->spare.end() && !it->second.empty()) {
      chunk = it->second.back();
      it->second.pop_back();
    } else {
      shelf_->bytes += elements * sizeof(float);
    }
  }
  if (chunk == nullptr) chunk = Allocate(elements);
  return std::shared_ptr<float>(chunk,
                                [elements, shelf = shelf_](float* returned) {
                                  absl::MutexLock lock(&shelf->mutex);
                                  if (shelf->closed) {
                                    Free(returned, elements);
                                  } else {
                                    shelf->spare[elements].push_back(returned);
                                  }
                                });
}

int64_t ChunkPool::bytes() const {
  absl::MutexLock lock(&shelf_->mutex);
  return shelf_->bytes;
}

}  // namespace holdfast
