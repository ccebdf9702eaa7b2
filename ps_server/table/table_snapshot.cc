#include "ps_server/table/table_snapshot.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/base/config.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "ps_server/table/bucket_store.h"
#include "ps_server/table/shared_rows.h"

namespace holdfast {

#if !defined(ABSL_IS_LITTLE_ENDIAN)
#error "Rows are written as they lie in memory, which must be little-endian."
#endif
static_assert(sizeof(RowHeader) == 16);

namespace {

// What is to be appended of a bucket: its rows, or its candidates.
struct Copied {
  // Each of row_bytes, and their places in the order of ids.
  std::string rows;
  std::vector<std::pair<uint64_t, size_t>> by_id;
  // Ids that were removed and are not there, rising.
  std::vector<uint64_t> removed;
  // Whether they are appended or not.
  uint64_t all_rows = 0;
};

// Of a held version. `since`: only what was touched after it. `removed`: ids
// that were removed, and may have been made again.
Copied Copy(SharedRows* shared, const BucketStore& store, GlobalStep version,
            uint32_t bucket, size_t row_bytes, std::optional<GlobalStep> since,
            std::vector<uint64_t> removed) {
  // A row may change as soon as the locks are gone, so all are copied; what can
  // wait, is done after that.
  Copied copied;
  std::vector<uint64_t> untouched;
  {
    const CopyMutex::Copying holds(&shared->holds);
    const CopyMutex::Copying stripe(&shared->stripes[StripeOfBucket(bucket)]);
    if (!since.has_value()) {
      copied.rows.reserve(store.RowsOf(bucket) * row_bytes);
    }
    store.ForEachHeld(version.value(), bucket, [&](const RowHeader* row) {
      ++copied.all_rows;
      if (since.has_value() && row->step() <= since->value()) {
        if (!removed.empty()) untouched.push_back(row->id());
        return;
      }
      copied.by_id.emplace_back(row->id(), copied.rows.size());
      copied.rows.append(reinterpret_cast<const char*>(row), row_bytes);
    });
  }
  std::sort(copied.by_id.begin(), copied.by_id.end());
  if (removed.empty()) return copied;
  std::sort(removed.begin(), removed.end());
  removed.erase(std::unique(removed.begin(), removed.end()), removed.end());
  const absl::flat_hash_set<uint64_t> still_there(untouched.begin(),
                                                  untouched.end());
  for (const uint64_t id : removed) {
    const bool touched = std::binary_search(
        copied.by_id.begin(), copied.by_id.end(), std::pair(id, size_t{0}),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    if (!touched && !still_there.contains(id)) copied.removed.push_back(id);
  }
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

TableSnapshot::TableSnapshot(std::shared_ptr<SharedRows> shared,
                             GlobalStep version, uint64_t bytes,
                             Contents contents)
    : held_(new Held{std::move(shared), version, bytes, std::move(contents)}) {}

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
  RemovalLog::Ids removed;
  for (const auto& period : contents().removed) {
    const RemovalLog::Ids* const ids = period->Find(bucket);
    if (ids == nullptr) continue;
    removed.rows.insert(removed.rows.end(), ids->rows.begin(), ids->rows.end());
    removed.candidates.insert(removed.candidates.end(), ids->candidates.begin(),
                              ids->candidates.end());
  }
  const std::optional<GlobalStep> touched_since =
      contents().changes ? contents().since : std::nullopt;
  const size_t row_bytes = sizeof(RowHeader) + floats_per_row() * sizeof(float);
  const Copied rows = Copy(shared, shared->rows, version(), bucket, row_bytes,
                           touched_since, std::move(removed.rows));
  const Copied candidates =
      Copy(shared, shared->candidates, version(), bucket, sizeof(RowHeader),
           touched_since, std::move(removed.candidates));
  AppendRows(rows, row_bytes, bytes);
  AppendRows(candidates, sizeof(RowHeader), bytes);
  AppendIds(rows.removed, bytes);
  AppendIds(candidates.removed, bytes);
  StoredBucket appended;
  appended.rows = rows.by_id.size();
  appended.candidates = candidates.by_id.size();
  appended.removed_rows = rows.removed.size();
  appended.removed_candidates = candidates.removed.size();
  appended.all_rows = rows.all_rows;
  appended.all_candidates = candidates.all_rows;
  return appended;
}

}  // namespace holdfast
