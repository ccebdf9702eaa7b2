// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TABLE_ROW_SLAB_H_
#define HOLDFAST_PS_SERVER_TABLE_ROW_SLAB_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace holdfast {

// The header of a row, which precedes the row's floats. Checkpoints contain the
// header as it is in memory.
//
// Step and count share eight bytes, because a row of a large table must be
// small.
class RowHeader {
 public:
  static constexpr uint64_t kMaxStep = (uint64_t{1} << 40) - 1;
  static constexpr uint32_t kMaxCount = (uint32_t{1} << 24) - 1;

  uint64_t id() const { return id_; }
  void set_id(uint64_t id) { id_ = id; }

  // The version that the last change of the row made.
  uint64_t step() const { return step_and_count_ >> 24; }
  // The number of pushes that have touched the row. Once the count has reached
  // kMaxCount, it stays there.
  uint32_t count() const { return step_and_count_ & kMaxCount; }
  void Set(uint64_t step, uint64_t count) {
    step_and_count_ = step << 24 | (count < kMaxCount ? count : kMaxCount);
  }

  // The values, and after them the slots.
  float* floats() { return reinterpret_cast<float*>(this + 1); }
  const float* floats() const {
    return reinterpret_cast<const float*>(this + 1);
  }

 private:
  uint64_t id_;
  uint64_t step_and_count_;
};

// Rows of one size, in slabs. Each row is identified by its place, a number of
// 4 bytes, and never moves.
//
// Slab 0 has kFirstRows rows and each later one as many as all before it, so
// growth copies nothing and a few slabs serve any size. Large slabs are mapped,
// and the system makes their pages when rows are first written: rows that are
// not used yet take address space but no memory. Freed places are reused first;
// their memory is not given back to the system.
//
// Thread-compatible.
class RowSlab {
 public:
  static constexpr uint32_t kNoPlace = 0xffffffff;

  explicit RowSlab(size_t floats_per_row);
  ~RowSlab();
  RowSlab(const RowSlab&) = delete;
  RowSlab& operator=(const RowSlab&) = delete;

  // The number of bytes of a row with `floats` floats.
  static constexpr size_t RowBytes(size_t floats) {
    // Headers are aligned to 8.
    return sizeof(RowHeader) + (floats + 1) / 2 * 2 * sizeof(float);
  }

  // Returns a place for a row, whose content is not specified.
  uint32_t Take();
  void Free(uint32_t place);

  RowHeader* At(uint32_t place) const {
    const int slab =
        31 - __builtin_clz(place | (kFirstRows - 1)) - (kFirstBits - 1);
    return reinterpret_cast<RowHeader*>(bases_[slab] + place * row_bytes_);
  }

  size_t row_bytes() const { return row_bytes_; }
  // The number of rows in use.
  uint32_t rows() const { return end_ - num_free_; }
  uint32_t free_rows() const { return num_free_; }
  // The number of bytes of the most rows that were ever in use at a time.
  int64_t bytes() const { return int64_t{end_} * row_bytes_; }

 private:
  static constexpr int kFirstBits = 6;
  static constexpr uint32_t kFirstRows = uint32_t{1} << kFirstBits;

  static uint32_t FirstPlace(int slab) {
    return slab == 0 ? 0 : kFirstRows << (slab - 1);
  }
  size_t SlabBytes(int slab) const {
    return row_bytes_ * (slab == 0 ? kFirstRows : FirstPlace(slab));
  }

  const size_t row_bytes_;
  int num_slabs_ = 0;
  // For each slab, the address that place 0 would have if the slab began there.
  std::array<uintptr_t, 33 - kFirstBits> bases_;
  // All places below this one have been taken at some time.
  uint32_t end_ = 0;
  // The first place in the list of free places below end_, or kNoPlace; the id
  // of a free row is the next place in the list.
  uint32_t free_ = kNoPlace;
  uint32_t num_free_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_ROW_SLAB_H_
