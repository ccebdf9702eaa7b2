#include "ps_server/store/chunk_pool.h"

#include <new>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace holdfast {
namespace {

constexpr std::align_val_t kAlignment{64};

float* Allocate(size_t elements) {
  return static_cast<float*>(
      ::operator new(elements * sizeof(float), kAlignment));
}

void Free(float* chunk) { ::operator delete(chunk, kAlignment); }

}  // namespace

struct ChunkPool::Shelf {
  absl::Mutex mutex;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  // Spare chunks by their size in elements.
  absl::flat_hash_map<size_t, std::vector<float*>> spare ABSL_GUARDED_BY(mutex);
};

ChunkPool::ChunkPool() : shelf_(std::make_shared<Shelf>()) {}

ChunkPool::~ChunkPool() {
  absl::MutexLock lock(&shelf_->mutex);
  shelf_->closed = true;
  for (auto& [size, chunks] : shelf_->spare) {
    for (float* chunk : chunks) Free(chunk);
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
    }
  }
  if (chunk == nullptr) chunk = Allocate(elements);
  return std::shared_ptr<float>(chunk,
                                [elements, shelf = shelf_](float* returned) {
                                  absl::MutexLock lock(&shelf->mutex);
                                  if (shelf->closed) {
                                    Free(returned);
                                  } else {
                                    shelf->spare[elements].push_back(returned);
                                  }
                                });
}

}  // namespace holdfast
