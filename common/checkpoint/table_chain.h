#ifndef HOLDFAST_COMMON_CHECKPOINT_TABLE_CHAIN_H_
#define HOLDFAST_COMMON_CHECKPOINT_TABLE_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/row_extent.h"
#include "common/checkpoint/stored_table.h"
#include "common/tensor/row_bucket.h"

namespace holdfast {

// A table of a checkpoint, merged from the checkpoint's own files and those of
// the checkpoints in its chain. Of each bucket the newest files that say
// anything of an id count, from the newest ones on that have all rows of the
// bucket. Private to the library.
//
// Thread-compatible.
class TableChain {
 public:
  struct Link {
    const StoredTable* table;
    RowBlock* block;
  };

  // `links`, whose parts must outlive it: the checkpoint's own, then those of
  // its chain, the newest first.
  explicit TableChain(std::vector<Link> links);

  // Errors: DATA_LOSS, naming a file, when the links do not have all rows, or
  // cannot have as many as there should be.
  absl::Status Check() const;

  const proto::EmbeddingTable& declared() const { return own().declared(); }
  uint32_t floats_per_row() const { return own().floats_per_row(); }
  // Of CheckpointReader, after Check.
  StoredCounts Count(BucketRange buckets) const;
  absl::Status Read(BucketRange buckets, CheckpointReader::VisitRow visit);
  // `line`: all checkpoints of the job's line whose steps are above
  // `since_step`, the newest first: the first of the links, and those before
  // them. All of them list what was removed.
  absl::Status ReadChanges(BucketRange buckets, uint64_t since_step,
                           absl::Span<const Link> line,
                           CheckpointReader::VisitRow visit_row,
                           CheckpointReader::VisitRemoved visit_removed);

 private:
  // What a link with changes says of an id.
  struct Change {
    enum class Kind { kRow, kCandidate, kRemoved };
    uint64_t id;
    size_t link;
    Kind kind;
    // Of rows and candidates.
    StoredRow row;
  };

  const StoredTable& own() const { return *links_[0].table; }
  // The newest link that has all rows of the bucket, or their number.
  size_t BaseOf(uint32_t bucket) const;
  // Reads the changes that the first `count` links have.
  absl::Status ReadNewer(uint32_t bucket, size_t count,
                         RowExtent::VisitRemoved visit_removed);
  // Visits what the first `count` links know of a bucket: rows, then
  // candidates, each in the order of ids; and, in no order, what they list as
  // removed.
  absl::Status Merge(uint32_t bucket, size_t count,
                     CheckpointReader::VisitRow visit_row,
                     RowExtent::VisitRemoved visit_removed);
  absl::Status ReadMerged(uint32_t bucket, CheckpointReader::VisitRow visit);

  std::vector<Link> links_;
  // Of the bucket at hand: the bytes of each link, and what they say, by id.
  std::vector<std::string> bytes_;
  std::vector<Change> changes_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_TABLE_CHAIN_H_
