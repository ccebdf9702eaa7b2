// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TABLE_BUCKET_STORE_H_
#define HOLDFAST_PS_SERVER_TABLE_BUCKET_STORE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/tensor/row_bucket.h"
#include "ps_server/table/bucket_index.h"
#include "ps_server/table/row_slab.h"

namespace holdfast {

// The number of buckets in a stripe: consecutive buckets whose rows share a
// slab. Threads that change rows own whole stripes.
inline constexpr uint32_t kStripeBuckets = 256;
inline constexpr uint32_t kStripes = kRowBuckets / kStripeBuckets;
constexpr uint32_t StripeOfBucket(uint32_t bucket) {
  return bucket / kStripeBuckets;
}

// The rows of one stripe.
//
// Thread-compatible.
class RowStripe {
 public:
  explicit RowStripe(size_t floats_per_row) : slab_(floats_per_row) {}

  // The row `id`, whose hash is `hash`; null if it does not exist.
  RowHeader* Find(uint64_t hash, uint64_t id) const {
    const uint32_t place = IndexOf(hash).Find(
        hash, RowSlab::kNoPlace,
        [&](uint32_t place) { return slab_.At(place)->id() == id; });
    return place == RowSlab::kNoPlace ? nullptr : slab_.At(place);
  }
  // Makes the row of an id that has none. Sets only the row's id.
  RowHeader* Insert(uint64_t hash, uint64_t id);
  // Removes the row of an id that has one.
  void Erase(uint64_t hash, uint64_t id);

  const BucketIndex& index(uint32_t bucket) const {
    return indexes_[bucket % kStripeBuckets];
  }
  const BucketIndex& IndexOf(uint64_t hash) const {
    return index(BucketOfHash(hash));
  }
  const RowSlab& slab() const { return slab_; }

  // Calls visit(row) for each row of a bucket, in no particular order.
  template <typename Visit>
  void ForEach(uint32_t bucket, Visit visit) const {
    index(bucket).ForEach(
        [this](uint32_t place) { __builtin_prefetch(slab_.At(place)); },
        [&](uint32_t place) { visit(slab_.At(place)); });
  }

  uint32_t rows() const { return slab_.rows(); }
  // The number of bytes of rows and indexes.
  int64_t bytes() const { return slab_.bytes() + index_bytes_; }

 private:
  RowSlab slab_;
  int64_t index_bytes_ = 0;
  std::array<BucketIndex, kStripeBuckets> indexes_;
};

// The rows of a range of buckets, and copies of rows, which keep held versions
// readable.
//
// Thread-compatible. In addition, several threads may find, make, change and
// remove rows, and call BeforeChange, RowsOf and ForEachHeld, at the same time,
// if each does so in stripes of its own.
class BucketStore {
 public:
  BucketStore(size_t floats_per_row, BucketRange buckets);

  const BucketRange& buckets() const { return buckets_; }
  // `index` must be that of a stripe that overlaps buckets().
  RowStripe& stripe(uint32_t index) { return *stripes_[index]; }
  const RowStripe& stripe(uint32_t index) const { return *stripes_[index]; }
  RowStripe& StripeOf(uint64_t hash) {
    return *stripes_[StripeOfBucket(BucketOfHash(hash))];
  }
  const RowStripe& StripeOf(uint64_t hash) const {
    return *stripes_[StripeOfBucket(BucketOfHash(hash))];
  }

  // Calls visit(i, row) for each ids[i], in order; row is null if the id has
  // none. Prefetches the first `bytes` bytes of each row. All ids must belong
  // to buckets(). `visit` may change rows and make rows of other ids, but must
  // not remove any.
  template <typename Visit>
  void FindMany(absl::Span<const uint64_t> ids, size_t bytes,
                Visit visit) const;

  uint32_t RowsOf(uint32_t bucket) const {
    return stripe(StripeOfBucket(bucket)).index(bucket).size();
  }
  int64_t rows() const;
  // The number of rows that can be made in the memory of removed rows.
  int64_t free_rows() const;
  // The number of bytes of rows and indexes, without the copies for held
  // versions.
  int64_t bytes() const;

  // Hold(v) makes the newest version, v, readable until Release(v). v must be
  // above all versions that are held, and every later change must set a step
  // above v. After Hold, the first change or removal of a row is preceded by a
  // copy of the row.
  void Hold(uint64_t version);
  void Release(uint64_t version);
  // Must be called before a row is changed or removed.
  void BeforeChange(uint64_t hash, const RowHeader* row) {
    if (!holds_.empty() && row->step() <= holds_.back().version) {
      Keep(hash, row);
    }
  }
  // The row `id` as it was at `version`, which must be held; null if it did not
  // exist.
  const RowHeader* FindHeld(uint64_t version, uint64_t id) const;
  // Calls visit(row) for each row of a bucket, in no particular order.
  template <typename Visit>
  void ForEachHeld(uint64_t version, uint32_t bucket, Visit visit) const;
  // The number of bytes of the copies.
  int64_t held_bytes() const;

 private:
  using Stripes = std::array<std::unique_ptr<RowStripe>, kStripes>;
  struct Held {
    uint64_t version;
    // Copies of the rows, as they were at `version`, that were changed or
    // removed before the next version was held. Null for stripes without such
    // rows.
    Stripes copies;
  };

  void Keep(uint64_t hash, const RowHeader* row);
  // Copies a row into `copies`, which must not have a row of the same id.
  void Copy(uint64_t hash, const RowHeader* row, Stripes* copies) const;

  const BucketRange buckets_;
  const size_t floats_per_row_;
  // Null for stripes that have none of buckets_.
  Stripes stripes_;
  // The held versions, in ascending order.
  std::vector<Held> holds_;
};

template <typename Visit>
void BucketStore::FindMany(absl::Span<const uint64_t> ids, size_t bytes,
                           Visit visit) const {
  // A pipeline of stages, each a block behind the previous one, so that what a
  // stage reads (the line of the index that is searched, and the row) has been
  // fetched while the others worked.
  constexpr size_t kBlock = 16;
  struct Search {
    uint64_t hash;
    const BucketIndex* index;
    const RowStripe* stripe;
    RowHeader* row;
  };
  constexpr size_t kStages = 3;
  Search searches[kStages][kBlock];
  const size_t num_blocks = (ids.size() + kBlock - 1) / kBlock;
  for (size_t turn = 0; turn < num_blocks + kStages - 1; ++turn) {
    // Calls work(i, search) for each id that has reached a stage.
    const auto at_stage = [&](size_t stage, auto work) {
      if (turn < stage || turn - stage >= num_blocks) return;
      const size_t begin = (turn - stage) * kBlock;
      const size_t end = std::min(begin + kBlock, ids.size());
      Search* search = searches[(turn - stage) % kStages];
      for (size_t i = begin; i < end; ++i) work(i, *search++);
    };
    at_stage(0, [&](size_t i, Search& search) {
      search.hash = HashRowId(ids[i]);
      search.stripe = &StripeOf(search.hash);
      search.index = &search.stripe->IndexOf(search.hash);
      search.index->Prefetch(search.hash);
    });
    at_stage(1, [bytes](size_t, Search& search) {
      const uint32_t place =
          search.index->Candidate(search.hash, RowSlab::kNoPlace);
      search.row = nullptr;
      if (place == RowSlab::kNoPlace) return;
      search.row = search.stripe->slab().At(place);
      const auto* const row = reinterpret_cast<const char*>(search.row);
      for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
      __builtin_prefetch(row + bytes - 1);
    });
    at_stage(2, [&](size_t i, const Search& search) {
      RowHeader* row = search.row;
      if (row == nullptr || row->id() != ids[i]) {
        row = search.stripe->Find(search.hash, ids[i]);
      }
      visit(i, row);
    });
  }
}

template <typename Visit>
void BucketStore::ForEachHeld(uint64_t version, uint32_t bucket,
                              Visit visit) const {
  const uint32_t stripe = StripeOfBucket(bucket);
  // Rows that have changed after `version` have a higher step. A copy that is
  // as old as `version` is the row as it was then; there is at most one,
  // because the copies that later versions keep were made after a change.
  const auto visit_if_old = [&](const RowHeader* row) {
    if (row->step() <= version) visit(row);
  };
  for (const Held& held : holds_) {
    if (held.version >= version && held.copies[stripe] != nullptr) {
      held.copies[stripe]->ForEach(bucket, visit_if_old);
    }
  }
  stripes_[stripe]->ForEach(bucket, visit_if_old);
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_BUCKET_STORE_H_
