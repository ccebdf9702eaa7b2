// SPDX-License-Identifier: Apache-2.0
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
// the checkpoints in its chain. A bucket is read from the newest files that
// have all of its rows and from all newer ones; for each id, the newest file
// that mentions it counts. Private to the library.
//
// Thread-compatible.
class TableChain {
 public:
  struct Link {
    const StoredTable* table;
    RowBlock* block;
  };

  // `links` has one link for the checkpoint itself, then one for each
  // checkpoint of its chain, newest first. What they point to must outlive the
  // TableChain.
  explicit TableChain(std::vector<Link> links);

  // Checks that the links have all rows of the table.
  // Errors: DATA_LOSS, naming a file, when they do not, or when they cannot
  // have as many rows as the index says.
  absl::Status Check() const;

  const proto::EmbeddingTable& declared() const { return own().declared(); }
  uint32_t floats_per_row() const { return own().floats_per_row(); }
  // As CountRows and ReadRows of CheckpointReader; Check must have succeeded.
  StoredCounts Count(BucketRange buckets) const;
  absl::Status Read(BucketRange buckets, CheckpointReader::VisitRow visit);
  // `line` has all checkpoints from this one back, each the predecessor of the
  // one before it, whose steps are above `since_step`. It is a prefix of the
  // links, perhaps continued by older checkpoints. All of them must list the
  // ids that were removed.
  absl::Status ReadChanges(BucketRange buckets, uint64_t since_step,
                           absl::Span<const Link> line,
                           CheckpointReader::VisitRow visit_row,
                           CheckpointReader::VisitRemoved visit_removed);

 private:
  // What a link with changes says about an id.
  struct Change {
    enum class Kind { kRow, kCandidate, kRemoved };
    uint64_t id;
    size_t link;
    Kind kind;
    // Set for rows and candidates.
    StoredRow row;
  };

  const StoredTable& own() const { return *links_[0].table; }
  // The index of the newest link that has all rows of the bucket, or the number
  // of links if there is none.
  size_t BaseOf(uint32_t bucket) const;
  // Reads into changes_ what the first `count` links say about the bucket's
  // ids.
  absl::Status ReadNewer(uint32_t bucket, size_t count,
                         RowExtent::VisitRemoved visit_removed);
  // Merges what the first `count` links have of a bucket. Visits its rows, then
  // its candidates, each in the order of ids; and, in no particular order, the
  // ids that the links list as removed.
  absl::Status Merge(uint32_t bucket, size_t count,
                     CheckpointReader::VisitRow visit_row,
                     RowExtent::VisitRemoved visit_removed);
  absl::Status ReadMerged(uint32_t bucket, CheckpointReader::VisitRow visit);

  std::vector<Link> links_;
  // For the current bucket: the bytes of each link, and the changes, by id.
  std::vector<std::string> bytes_;
  std::vector<Change> changes_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_TABLE_CHAIN_H_
