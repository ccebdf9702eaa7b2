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

// A version of an embedding table, held so that another thread can write it
// while steps go on. It may outlive the table.
//
// Copies share one held version, which the table releases at the step after the
// last of them is gone. Thread-safe.
class TableSnapshot {
 public:
  // What a checkpoint contains of the version.
  struct Contents {
    // Ids that were removed after this version are listed. Absent: none are
    // listed.
    std::optional<GlobalStep> since;
    // What changed between `since` and the version.
    ChangeLog::Periods changed;
    // Whether it contains only rows and candidates that were touched after
    // `since`. If so, also how many rows and candidates the table has, by
    // bucket.
    bool changes = false;
    std::vector<uint32_t> num_rows;
    std::vector<uint32_t> num_candidates;
  };

  // Called by EmbeddingTable::Snapshot. `version` of `shared` must be held once
  // more for the snapshot. `bytes`: those of all rows and candidates.
  TableSnapshot(std::shared_ptr<SharedRows> shared, GlobalStep version,
                uint64_t bytes, Contents contents);

  const proto::EmbeddingTable& declared() const;
  const BucketRange& buckets() const;
  // The number of float32 of a row: values and slots.
  size_t floats_per_row() const;
  GlobalStep version() const { return held_->version; }
  const Contents& contents() const { return held_->contents; }
  // Bytes of all rows and candidates, touched or not, as in a checkpoint.
  uint64_t bytes() const { return held_->bytes; }

  // Appends the part of contents() that is in a bucket, in the format of a
  // checkpoint (docs/formats/checkpoint.md). A step waits while a bucket of its
  // stripe is copied.
  StoredBucket AppendBucket(uint32_t bucket, std::string* bytes) const;

 private:
  // The ids of a bucket, indexed by ChangeLog::Kind; ascending, each once.
  using ChangedIds = std::array<std::vector<uint64_t>, ChangeLog::kKinds>;

  struct Held {
    ~Held();

    // The ids of contents.changed that are in a bucket.
    ChangedIds ChangedIn(uint32_t bucket) const;

    const std::shared_ptr<SharedRows> shared;
    const GlobalStep version;
    const uint64_t bytes;
    const Contents contents;

    // The changed ids of the stripe that was asked for last, sorted by bucket
    // and id.
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
