// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/row_slab.h"

#include <sys/mman.h>

#include <new>

#include "glog/logging.h"

namespace holdfast {
namespace {

constexpr std::align_val_t kAlignment{64};
// Slabs of at least this many bytes are mapped.
constexpr size_t kMapped = size_t{1} << 20;

// Does not use huge pages: in a virtual machine whose own memory was in small
// pages they made no lookup faster, and the system took 17 ms to make one.
char* Allocate(size_t bytes) {
  if (bytes < kMapped) {
    return static_cast<char*>(::operator new(bytes, kAlignment));
  }
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                            /*fd=*/-1, 0);
  PCHECK(mapped != MAP_FAILED) << "no address space for rows";
  return static_cast<char*>(mapped);
}

void Free(char* memory, size_t bytes) {
  if (bytes < kMapped) {
    ::operator delete(memory, kAlignment);
  } else {
    munmap(memory, bytes);
  }
}

}  // namespace

RowSlab::RowSlab(size_t floats_per_row)
    : row_bytes_(RowBytes(floats_per_row)) {}

RowSlab::~RowSlab() {
  for (int slab = 0; slab < num_slabs_; ++slab) {
    holdfast::Free(
        reinterpret_cast<char*>(bases_[slab] + FirstPlace(slab) * row_bytes_),
        SlabBytes(slab));
  }
}

uint32_t RowSlab::Take() {
  if (free_ != kNoPlace) {
    const uint32_t place = free_;
    free_ = static_cast<uint32_t>(At(place)->id());
    --num_free_;
    return place;
  }
  CHECK_NE(end_, kNoPlace) << "more rows than places";
  if (end_ == FirstPlace(num_slabs_)) {
    const int slab = num_slabs_++;
    bases_[slab] = reinterpret_cast<uintptr_t>(Allocate(SlabBytes(slab))) -
                   FirstPlace(slab) * row_bytes_;
  }
  return end_++;
}

void RowSlab::Free(uint32_t place) {
  At(place)->set_id(free_);
  free_ = place;
  ++num_free_;
}

}  // namespace holdfast
