// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/bucket_store.h"

#include <cstring>

#include "glog/logging.h"

namespace holdfast {

RowHeader* RowStripe::Insert(uint64_t hash, uint64_t id) {
  const uint32_t place = slab_.Take();
  RowHeader* const row = slab_.At(place);
  row->set_id(id);
  BucketIndex& index = indexes_[BucketOfHash(hash) % kStripeBuckets];
  index_bytes_ -= index.bytes();
  index.Insert(
      hash, place,
      [this](uint32_t other) { return HashRowId(slab_.At(other)->id()); },
      [this](uint32_t other) { __builtin_prefetch(slab_.At(other)); });
  index_bytes_ += index.bytes();
  return row;
}

void RowStripe::Erase(uint64_t hash, uint64_t id) {
  BucketIndex& index = indexes_[BucketOfHash(hash) % kStripeBuckets];
  const uint32_t place =
      index.Find(hash, RowSlab::kNoPlace,
                 [&](uint32_t place) { return slab_.At(place)->id() == id; });
  index.Erase(hash, place);
  slab_.Free(place);
}

BucketStore::BucketStore(size_t floats_per_row, BucketRange buckets)
    : buckets_(buckets), floats_per_row_(floats_per_row) {
  for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
    const uint32_t begin = stripe * kStripeBuckets;
    if (begin < buckets.end && buckets.begin < begin + kStripeBuckets) {
      stripes_[stripe] = std::make_unique<RowStripe>(floats_per_row);
    }
  }
}

int64_t BucketStore::rows() const {
  int64_t rows = 0;
  for (const auto& stripe : stripes_) {
    if (stripe != nullptr) rows += stripe->rows();
  }
  return rows;
}

int64_t BucketStore::free_rows() const {
  int64_t rows = 0;
  for (const auto& stripe : stripes_) {
    if (stripe != nullptr) rows += stripe->slab().free_rows();
  }
  return rows;
}

int64_t BucketStore::bytes() const {
  int64_t bytes = 0;
  for (const auto& stripe : stripes_) {
    if (stripe != nullptr) bytes += stripe->bytes();
  }
  return bytes;
}

void BucketStore::Hold(uint64_t version) {
  CHECK(holds_.empty() || holds_.back().version < version);
  holds_.push_back({version, {}});
}

void BucketStore::Release(uint64_t version) {
  const auto released = std::find_if(
      holds_.begin(), holds_.end(),
      [version](const Held& held) { return held.version == version; });
  CHECK(released != holds_.end());
  if (released != holds_.begin()) {
    // A row of which the previous held version has no copy of its own is the
    // same in both versions, so it gets this version's copy.
    Held& before = *std::prev(released);
    for (const auto& stripe : released->copies) {
      if (stripe == nullptr) continue;
      for (uint32_t bucket = 0; bucket < kStripeBuckets; ++bucket) {
        stripe->ForEach(bucket, [&](const RowHeader* row) {
          if (row->step() > before.version) return;
          Copy(HashRowId(row->id()), row, &before.copies);
        });
      }
    }
  }
  holds_.erase(released);
}

void BucketStore::Keep(uint64_t hash, const RowHeader* row) {
  Copy(hash, row, &holds_.back().copies);
}

void BucketStore::Copy(uint64_t hash, const RowHeader* row,
                       Stripes* copies) const {
  auto& stripe = (*copies)[StripeOfBucket(BucketOfHash(hash))];
  if (stripe == nullptr) stripe = std::make_unique<RowStripe>(floats_per_row_);
  RowHeader* const copy = stripe->Insert(hash, row->id());
  std::memcpy(static_cast<void*>(copy), row, stripe->slab().row_bytes());
}

const RowHeader* BucketStore::FindHeld(uint64_t version, uint64_t id) const {
  const uint64_t hash = HashRowId(id);
  const uint32_t stripe = StripeOfBucket(BucketOfHash(hash));
  const auto if_old = [version](const RowHeader* row) {
    return row->step() <= version ? row : nullptr;
  };
  for (const Held& held : holds_) {
    if (held.version < version || held.copies[stripe] == nullptr) continue;
    const RowHeader* const copy = held.copies[stripe]->Find(hash, id);
    if (copy != nullptr) return if_old(copy);
  }
  const RowHeader* const row = stripes_[stripe]->Find(hash, id);
  return row == nullptr ? nullptr : if_old(row);
}

int64_t BucketStore::held_bytes() const {
  int64_t bytes = 0;
  for (const Held& held : holds_) {
    for (const auto& stripe : held.copies) {
      if (stripe != nullptr) bytes += stripe->bytes();
    }
  }
  return bytes;
}

}  // namespace holdfast
