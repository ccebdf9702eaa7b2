// SPDX-License-Identifier: Apache-2.0
#include "ps_server/store/chunk_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/shared_memory/sealed_file.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kHugePage = kHugePageBytes;

bool IsMapped(size_t bytes) { return bytes >= kHugePage; }

size_t MappedBytes(size_t bytes) {
  const size_t page = sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

// Memory of at least one huge page is mapped here: what malloc maps is not
// aligned and, with malloc's header, takes a page more. If the system has no
// huge pages left, the memory is in small pages.
char* MapHuge(size_t bytes) {
  bytes = MappedBytes(bytes);
  void* const mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  PCHECK(mapped != MAP_FAILED) << "no memory for values";
  char* const begin = static_cast<char*>(mapped);
  const size_t before =
      (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kHugePage - before);
  // The tail behind the last whole huge page is left out. It would take a huge
  // page, too, if the system happened to map similar memory right behind it.
  madvise(begin + before, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return begin + before;
}

float* Allocate(size_t elements) {
  const size_t bytes = elements * sizeof(float);
  return reinterpret_cast<float*>(
      IsMapped(bytes) ? MapHuge(bytes)
                      : static_cast<char*>(::operator new(bytes, kAlignment)));
}

void Free(float* chunk, size_t elements) {
  const size_t bytes = elements * sizeof(float);
  if (IsMapped(bytes)) {
    munmap(chunk, MappedBytes(bytes));
  } else {
    ::operator delete(chunk, kAlignment);
  }
}

}  // namespace

struct ChunkPool::Shelf {
  absl::Mutex mutex;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  // Spare chunks, by their size in elements.
  absl::flat_hash_map<size_t, std::vector<float*>> spare ABSL_GUARDED_BY(mutex);
  int64_t bytes ABSL_GUARDED_BY(mutex) = 0;
};

ChunkPool::ChunkPool(SharedArena* values)
    : values_(values != nullptr && SharedArena::HugePagesWork() ? values
                                                                : nullptr),
      shelf_(std::make_shared<Shelf>()) {}

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

std::shared_ptr<float> ChunkPool::TakeValues(size_t elements) {
  if (values_ == nullptr) return Take(elements);
  absl::StatusOr<std::shared_ptr<char>> shared =
      values_->Take(elements * sizeof(float));
  if (!shared.ok()) {
    LOG_FIRST_N(WARNING, 1) << "values are in private memory, and are not lent "
                               "to processes of this host: "
                            << shared.status();
    return Take(elements);
  }
  float* const memory = reinterpret_cast<float*>(shared->get());
  return std::shared_ptr<float>(*std::move(shared), memory);
}

int64_t ChunkPool::bytes() const {
  const int64_t shared = values_ != nullptr ? values_->bytes() : 0;
  absl::MutexLock lock(&shelf_->mutex);
  return shelf_->bytes + shared;
}

}  // namespace holdfast
