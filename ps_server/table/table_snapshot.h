// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TABLE_TABLE_SNAPSHOT_H_
#define HOLDFAST_PS_SERVER_TABLE_TABLE_SNAPSHOT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/stored_bucket.h"
#include "common/job/ids.h"
#include "common/tensor/row_bucket.h"
#include "proto/table.pb.h"
#include "ps_server/table/change_log.h"

namespace holdfast {

struct SharedRows;

// A version of an embedding table, held so that another thread can write it to
// a checkpoint while steps go on. It may outlive the table.
//
// Copies of a TableSnapshot share one held version, which the table releases at
// the first step after the last copy is gone. Thread-safe.
class TableSnapshot {
 public:
  // What a checkpoint of the version contains.
  struct Contents {
    // The version after which removed ids are listed. If absent, none are
    // listed.
    std::optional<GlobalStep> since;
    // The ids that were touched or removed between `since` and the snapshot's
    // version.
    ChangeLog::Periods changed;
    // Whether the checkpoint contains only the rows and candidates that were
    // touched after `since`. If so, num_rows and num_candidates are set: the
    // numbers of all rows and candidates of the table, indexed by bucket.
    bool changes = false;
    std::vector<uint32_t> num_rows;
    std::vector<uint32_t> num_candidates;
  };

  // Called by EmbeddingTable::Snapshot. The caller must have held `version` of
  // `shared` for the snapshot. `bytes` is the size of all rows and candidates,
  // as in bytes().
  TableSnapshot(std::shared_ptr<SharedRows> shared, GlobalStep version,
                uint64_t bytes, Contents contents);

  const proto::EmbeddingTable& declared() const;
  const BucketRange& buckets() const;
  // The number of float32 in a row: its values and slots.
  size_t floats_per_row() const;
  GlobalStep version() const { return held_->version; }
  const Contents& contents() const { return held_->contents; }
  // The number of bytes that all rows and candidates, touched or not, take in a
  // checkpoint.
  uint64_t bytes() const { return held_->bytes; }

  // Appends to `bytes` what contents() has of a bucket, in the format of a
  // checkpoint (docs/formats/checkpoint.md). While a bucket is copied, a step
  // that changes rows of the bucket's stripe waits.
  StoredBucket AppendBucket(uint32_t bucket, std::string* bytes) const;

 private:
  // The changed ids of a bucket, indexed by ChangeLog::Kind; each id once, in
  // ascending order.
  using ChangedIds = std::array<std::vector<uint64_t>, ChangeLog::kKinds>;

  struct Held {
    ~Held();

    // The ids of contents.changed that are in a bucket.
    ChangedIds ChangedIn(uint32_t bucket) const;

    const std::shared_ptr<SharedRows> shared;
    const GlobalStep version;
    const uint64_t bytes;
    const Contents contents;

    // `stripe` is the stripe of the bucket that ChangedIn was called for last,
    // and `sorted` has the stripe's changed ids, sorted by bucket and id.
    mutable absl::Mutex mutex;
    mutable std::optional<uint32_t> stripe ABSL_GUARDED_BY(mutex);
    mutable std::array<std::vector<std::pair<uint32_t, uint64_t>>,
                       ChangeLog::kKinds>
        sorted ABSL_GUARDED_BY(mutex);
  };

  std::shared_ptr<const Held> held_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_TABLE_SNAPSHOT_H_
