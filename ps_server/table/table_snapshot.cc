// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/table_snapshot.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/base/config.h"
#include "absl/synchronization/mutex.h"
#include "ps_server/table/bucket_store.h"
#include "ps_server/table/shared_rows.h"

namespace holdfast {

#if !defined(ABSL_IS_LITTLE_ENDIAN)
#error "Rows are written as they are in memory, which must be little-endian."
#endif
static_assert(sizeof(RowHeader) == 16);

namespace {

// Copies of the rows, or of the candidates, of a bucket, to be appended to the
// checkpoint.
struct Copied {
  // The rows, each of row_bytes bytes, and the order of their ids.
  std::string rows;
  std::vector<std::pair<uint64_t, size_t>> by_id;
  // The ids that were removed and do not exist in the snapshot's version, in
  // ascending order.
  std::vector<uint64_t> removed;
};

// Copies entries of a held version: those of the ids in `touched` that exist,
// or all if it is null. `removed` has ids that were removed, and may have been
// made again.
Copied Copy(SharedRows* shared, const BucketStore& store, GlobalStep version,
            uint32_t bucket, size_t row_bytes,
            const std::vector<uint64_t>* touched,
            const std::vector<uint64_t>& removed) {
  // A row may change as soon as the locks are released, so all rows are copied
  // first, and only then is the rest done.
  Copied copied;
  const auto copy = [&](const RowHeader* row) {
    copied.by_id.emplace_back(row->id(), copied.rows.size());
    copied.rows.append(reinterpret_cast<const char*>(row), row_bytes);
  };
  {
    const CopyMutex::Copying holds(&shared->holds);
    const CopyMutex::Copying stripe(&shared->stripes[StripeOfBucket(bucket)]);
    if (touched == nullptr) {
      copied.rows.reserve(store.RowsOf(bucket) * row_bytes);
      store.ForEachHeld(version.value(), bucket, copy);
    } else {
      for (const uint64_t id : *touched) {
        const RowHeader* const row = store.FindHeld(version.value(), id);
        if (row != nullptr) copy(row);
      }
    }
    for (const uint64_t id : removed) {
      if (store.FindHeld(version.value(), id) == nullptr) {
        copied.removed.push_back(id);
      }
    }
  }
  std::sort(copied.by_id.begin(), copied.by_id.end());
  return copied;
}

void AppendRows(const Copied& copied, size_t row_bytes, std::string* bytes) {
  for (const auto& [id, at] : copied.by_id) {
    bytes->append(copied.rows, at, row_bytes);
  }
}

void AppendIds(const std::vector<uint64_t>& ids, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(ids.data()),
                ids.size() * sizeof(uint64_t));
}

}  // namespace

TableSnapshot::Held::~Held() {
  const absl::MutexLock lock(&shared->unneeded_mutex);
  shared->unneeded.push_back(version);
}

TableSnapshot::ChangedIds TableSnapshot::Held::ChangedIn(
    uint32_t bucket) const {
  ChangedIds ids;
  if (contents.changed.empty()) return ids;
  const absl::MutexLock lock(&mutex);
  const uint32_t its_stripe = StripeOfBucket(bucket);
  const bool is_other = stripe != its_stripe;
  stripe = its_stripe;
  for (size_t kind = 0; kind < ChangeLog::kKinds; ++kind) {
    // The checkpoint has all rows, touched or not.
    if (!contents.changes && kind <= ChangeLog::kCandidate) continue;
    auto& of_stripe = sorted[kind];
    if (is_other) {
      of_stripe.clear();
      for (const auto& period : contents.changed) {
        for (const uint64_t id :
             period->ids(its_stripe, static_cast<ChangeLog::Kind>(kind))) {
          of_stripe.emplace_back(BucketOfRow(id), id);
        }
      }
      std::sort(of_stripe.begin(), of_stripe.end());
      of_stripe.erase(std::unique(of_stripe.begin(), of_stripe.end()),
                      of_stripe.end());
    }
    auto at = std::lower_bound(of_stripe.begin(), of_stripe.end(),
                               std::pair(bucket, uint64_t{0}));
    for (; at != of_stripe.end() && at->first == bucket; ++at) {
      ids[kind].push_back(at->second);
    }
  }
  return ids;
}

TableSnapshot::TableSnapshot(std::shared_ptr<SharedRows> shared,
                             GlobalStep version, uint64_t bytes,
                             Contents contents)
    : held_(new Held{
          std::move(shared), version, bytes, std::move(contents), {}, {}, {}}) {
}

const proto::EmbeddingTable& TableSnapshot::declared() const {
  return held_->shared->declared;
}

const BucketRange& TableSnapshot::buckets() const {
  return held_->shared->rows.buckets();
}

size_t TableSnapshot::floats_per_row() const {
  return held_->shared->floats_per_row;
}

StoredBucket TableSnapshot::AppendBucket(uint32_t bucket,
                                         std::string* bytes) const {
  SharedRows* const shared = held_->shared.get();
  const ChangedIds changed = held_->ChangedIn(bucket);
  const auto only = [&](ChangeLog::Kind kind) {
    return contents().changes ? &changed[kind] : nullptr;
  };
  const size_t row_bytes = sizeof(RowHeader) + floats_per_row() * sizeof(float);
  const Copied rows =
      Copy(shared, shared->rows, version(), bucket, row_bytes,
           only(ChangeLog::kRow), changed[ChangeLog::kRemovedRow]);
  const Copied candidates =
      Copy(shared, shared->candidates, version(), bucket, sizeof(RowHeader),
           only(ChangeLog::kCandidate), changed[ChangeLog::kRemovedCandidate]);
  AppendRows(rows, row_bytes, bytes);
  AppendRows(candidates, sizeof(RowHeader), bytes);
  AppendIds(rows.removed, bytes);
  AppendIds(candidates.removed, bytes);
  StoredBucket appended;
  appended.rows = rows.by_id.size();
  appended.candidates = candidates.by_id.size();
  appended.removed_rows = rows.removed.size();
  appended.removed_candidates = candidates.removed.size();
  appended.all_rows = appended.rows;
  appended.all_candidates = appended.candidates;
  if (contents().changes) {
    const uint32_t i = bucket - buckets().begin;
    appended.all_rows = contents().num_rows[i];
    appended.all_candidates = contents().num_candidates[i];
  }
  return appended;
}

}  // namespace holdfast
