// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_CHECKPOINT_ROW_EXTENT_H_
#define HOLDFAST_COMMON_CHECKPOINT_ROW_EXTENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/stored_bucket.h"
#include "common/tensor/row_bucket.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

class RowExtent;

// Caches the last block read of an extent, so that the next bucket does not
// read it again. It must not outlive the extent.
struct RowBlock {
  const RowExtent* extent = nullptr;  // null: none
  uint64_t number = 0;
  std::string bytes;
};

// The rows of a table in consecutive buckets of a data file. Private to the
// library.
//
// Thread-compatible. Verifies every block read, and that ids are ascending,
// belong to their buckets, and have possible steps.
class RowExtent {
 public:
  // The data file, which must outlive the extent.
  struct Source {
    std::string path;
    ReadableFile* file = nullptr;
    // The offset in the file at which its extents end.
    uint64_t end = 0;
    // The steps of the checkpoint and of Manifest.previous.
    uint64_t step = 0;
    std::optional<uint64_t> previous_step;
    bool has_chain = false;
  };
  // `stored` must outlive the extent; its offset must not be above the source's
  // end.
  // Errors: DATA_LOSS, with the path, when `stored` is invalid.
  static absl::StatusOr<RowExtent> Create(const Source& source,
                                          const proto::StoredRows& stored,
                                          uint32_t row_length);

  const BucketRange& buckets() const { return buckets_; }
  uint32_t floats_per_row() const { return stored_->floats_per_row(); }
  // The step of the checkpoint to which the extent belongs.
  uint64_t step() const { return source_.step; }
  // Whether the extent has only the rows and candidates touched by steps after
  // since().
  bool is_delta() const { return stored_->changes(); }
  // The step since which the extent lists removed ids; absent if it lists none.
  std::optional<uint64_t> since() const;

  StoredBucket Contents(uint32_t bucket) const;
  // The size in bytes of `buckets`, all of which the extent must have.
  uint64_t Bytes(BucketRange buckets) const;
  uint64_t bytes() const { return begins_.back(); }

  using VisitRow = CheckpointReader::VisitRow;
  // Called for an id that was removed as a row, or as a candidate.
  using VisitRemoved =
      absl::FunctionRef<absl::Status(uint64_t id, bool as_candidate)>;

  // Visits the contents of `buckets`, in the order of their bytes in the file.
  // A row's floats are valid only during its visit.
  // Errors: DATA_LOSS, with path, table and bucket; those of the file system;
  // those of the visitors.
  absl::Status Read(BucketRange buckets, RowBlock* block, VisitRow visit_row,
                    VisitRemoved visit_removed) const;
  // Like Read, but for one bucket, whose bytes are copied to `bytes`, replacing
  // its content; the floats of rows stay valid as long as `bytes` does not
  // change.
  absl::Status ReadBucket(uint32_t bucket, RowBlock* block, std::string* bytes,
                          VisitRow visit_row, VisitRemoved visit_removed) const;

  // Returns DATA_LOSS, with path, table and bucket.
  absl::Status Damaged(uint32_t bucket, absl::string_view what) const;

 private:
  class Decoder;
  using VisitBytes = absl::FunctionRef<absl::Status(absl::string_view bytes)>;

  RowExtent(const Source& source, const proto::StoredRows& stored)
      : source_(source),
        stored_(&stored),
        buckets_{stored.first_bucket(),
                 stored.first_bucket() +
                     static_cast<uint32_t>(stored.rows_size())} {}

  absl::Status CheckBuckets(uint32_t row_length) const;
  absl::Status CheckSince() const;
  absl::Status CheckSizes();
  // Returns DATA_LOSS, with path and table.
  absl::Status Refuse(absl::string_view what) const;
  // Visits the bytes of `buckets`, which the extent must have, in pieces.
  absl::Status ReadBytes(BucketRange buckets, RowBlock* block,
                         VisitBytes visit) const;
  absl::Status ReadBlock(uint64_t number, RowBlock* block) const;

  Source source_;
  const proto::StoredRows* stored_;
  BucketRange buckets_;
  // The offset of each bucket in the extent, and last the extent's size.
  std::vector<uint64_t> begins_ = {0};
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_ROW_EXTENT_H_
