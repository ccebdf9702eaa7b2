// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_CHECKPOINT_STORED_TABLE_H_
#define HOLDFAST_COMMON_CHECKPOINT_STORED_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/row_extent.h"
#include "common/tensor/row_bucket.h"
#include "proto/checkpoint.pb.h"
#include "proto/table.pb.h"

namespace holdfast {

// A table in the data files of one checkpoint. Private to the library.
//
// Thread-compatible.
class StoredTable {
 public:
  explicit StoredTable(const proto::EmbeddingTable* declared)
      : declared_(declared) {}

  const proto::EmbeddingTable& declared() const { return *declared_; }
  uint32_t floats_per_row() const { return floats_per_row_; }

  // Adds an extent of a file. Returns its size in bytes.
  // Errors: those of RowExtent::Create; DATA_LOSS when its rows are not as long
  // as those of the extents before.
  absl::StatusOr<uint64_t> Take(const RowExtent::Source& source,
                                const proto::StoredRows& stored);
  // Checks that the extents have each bucket exactly once. Must be called after
  // the last Take.
  // Errors: DATA_LOSS, without a path, when a bucket is missing or stored
  // twice.
  absl::Status CheckCoverage();

  // The following methods require a successful CheckCoverage.

  // The extents that have buckets, in ascending order.
  const std::vector<RowExtent>& extents() const { return extents_; }
  const RowExtent& ExtentOf(uint32_t bucket) const;
  // Whether the extents list, for all of `buckets`, the ids that were removed
  // since the previous checkpoint.
  bool ListsRemoved(BucketRange buckets) const;

 private:
  const proto::EmbeddingTable* declared_;
  uint32_t floats_per_row_ = 0;
  std::vector<RowExtent> extents_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_STORED_TABLE_H_
