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
#error "Rows are written as they lie in memory, which must be little-endian."
#endif
static_assert(sizeof(RowHeader) == 16);

namespace {

// Appends a held version of a bucket, in the order of ids; returns the number
// of rows.
uint64_t AppendSorted(SharedRows* shared, const BucketStore& store,
                      GlobalStep version, uint32_t bucket, size_t row_bytes,
                      std::string* bytes) {
  // A row may change as soon as the locks are gone, so all are copied; what can
  // wait, is done after that.
  std::string copied;
  std::vector<std::pair<uint64_t, size_t>> by_id;
  {
    const CopyMutex::Copying holds(&shared->holds);
    const CopyMutex::Copying stripe(&shared->stripes[StripeOfBucket(bucket)]);
    copied.reserve(store.RowsOf(bucket) * row_bytes);
    store.ForEachHeld(version.value(), bucket, [&](const RowHeader* row) {
      by_id.emplace_back(row->id(), copied.size());
      copied.append(reinterpret_cast<const char*>(row), row_bytes);
    });
  }
  std::sort(by_id.begin(), by_id.end());
  for (const auto& [id, at] : by_id) bytes->append(copied, at, row_bytes);
  return by_id.size();
}

}  // namespace

TableSnapshot::Held::~Held() {
  const absl::MutexLock lock(&shared->unneeded_mutex);
  shared->unneeded.push_back(version);
}

TableSnapshot::TableSnapshot(std::shared_ptr<SharedRows> shared,
                             GlobalStep version, const Counts& counts)
    : held_(new Held{std::move(shared), version, counts}) {}

const proto::EmbeddingTable& TableSnapshot::declared() const {
  return held_->shared->declared;
}

const BucketRange& TableSnapshot::buckets() const {
  return held_->shared->rows.buckets();
}

size_t TableSnapshot::floats_per_row() const {
  return held_->shared->floats_per_row;
}

uint64_t TableSnapshot::bytes() const {
  return counts().rows *
             (sizeof(RowHeader) + floats_per_row() * sizeof(float)) +
         counts().candidates * sizeof(RowHeader);
}

TableSnapshot::Counts TableSnapshot::AppendBucket(uint32_t bucket,
                                                  std::string* bytes) const {
  SharedRows* const shared = held_->shared.get();
  Counts appended;
  appended.rows =
      AppendSorted(shared, shared->rows, version(), bucket,
                   sizeof(RowHeader) + floats_per_row() * sizeof(float), bytes);
  appended.candidates = AppendSorted(shared, shared->candidates, version(),
                                     bucket, sizeof(RowHeader), bytes);
  return appended;
}

}  // namespace holdfast
