#ifndef HOLDFAST_PS_SERVER_TABLE_TABLE_SNAPSHOT_H_
#define HOLDFAST_PS_SERVER_TABLE_TABLE_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/ids.h"
#include "common/row_bucket.h"
#include "proto/table.pb.h"

namespace holdfast {

struct SharedRows;

// A version of an embedding table, held so that another thread can write it
// while steps go on. It may outlive the table.
//
// Copies are of one held version, which the table releases at the step after
// the last of them is gone. Thread-safe.
class TableSnapshot {
 public:
  // Numbers of rows and candidates.
  struct Counts {
    uint64_t rows = 0;
    uint64_t candidates = 0;
  };

  // `version` of `shared` must be held once more for it. EmbeddingTable::
  // Snapshot calls this.
  TableSnapshot(std::shared_ptr<SharedRows> shared, GlobalStep version,
                const Counts& counts);

  const proto::EmbeddingTable& declared() const;
  const BucketRange& buckets() const;
  // Float32 of a row: values and slots.
  size_t floats_per_row() const;
  GlobalStep version() const { return held_->version; }
  const Counts& counts() const { return held_->counts; }
  // What AppendBucket appends for all buckets.
  uint64_t bytes() const;

  // Appends the rows of a bucket and then its candidates, each in the order of
  // ids, as a checkpoint has them (docs/checkpoint_format.md). A step waits
  // while a bucket of its stripe is copied.
  Counts AppendBucket(uint32_t bucket, std::string* bytes) const;

 private:
  struct Held {
    ~Held();

    std::shared_ptr<SharedRows> shared;
    GlobalStep version;
    Counts counts;
  };

  std::shared_ptr<const Held> held_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_TABLE_SNAPSHOT_H_
