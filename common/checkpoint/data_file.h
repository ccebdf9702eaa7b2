// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_H_
#define HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/stored_bucket.h"
#include "common/tensor/row_bucket.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

// The size in bytes of a block, the unit that has its own checksum. Larger
// blocks make readers of small ranges read more; smaller ones make the index
// longer.
inline constexpr uint64_t kCheckpointBlockBytes = uint64_t{1} << 20;

// Writes one ps's share of a checkpoint: extents, then their index
// (docs/formats/checkpoint.md). The file gets its name only once it is
// complete.
//
// Thread-compatible. Errors are those of the file system; after one error, all
// calls return it.
class DataFileWriter {
 public:
  // Creates the checkpoint's folder if it is missing.
  static absl::StatusOr<std::unique_ptr<DataFileWriter>> Create(
      const CheckpointDirectory& directory, const proto::CheckpointName& name,
      uint32_t ps, uint32_t num_ps);
  // Removes an unfinished file.
  virtual ~DataFileWriter() = default;

  // Begins an extent of `size` elements from `begin` of the variable's values
  // (slot 0) or of slot `slot` - 1; Append must then supply its elements.
  virtual absl::Status Begin(absl::string_view variable, uint32_t slot,
                             uint64_t begin, uint64_t size) = 0;
  virtual absl::Status Append(absl::Span<const float> elements) = 0;

  struct Rows {
    absl::string_view table;
    // Values and slots.
    uint32_t floats_per_row = 0;
    BucketRange buckets;
    // The fields `since` and `changes` of proto::StoredRows.
    std::optional<uint64_t> since;
    bool changes = false;
  };
  // Begins the rows of a table; AppendBucket must then supply all buckets of
  // `rows.buckets`, in ascending order. Variables come before tables.
  virtual absl::Status BeginRows(const Rows& rows) = 0;
  // Appends the next bucket: its rows, candidates and removed ids, each in the
  // order of ids, encoded as in docs/formats/checkpoint.md.
  virtual absl::Status AppendBucket(const StoredBucket& contents,
                                    absl::string_view bytes) = 0;

  // Writes the index, syncs the file, and gives it its name.
  // Errors: also INTERNAL when an extent was given fewer elements or buckets
  // than Begin or BeginRows announced.
  virtual absl::StatusOr<proto::DataFile> Finish() = 0;
};

// A row of a table, or a candidate, in a checkpoint.
struct StoredRow {
  uint32_t bucket;
  // Whether this is a candidate, which has no floats.
  bool is_candidate;
  uint64_t id;
  uint64_t step;
  uint32_t count;
  // The row's values and slots. Valid only until VisitRow returns.
  absl::Span<const float> floats;
};

// The numbers of rows and candidates in some buckets of a table, and the bytes
// read for them from all checkpoints that are needed.
struct StoredCounts {
  uint64_t rows = 0;
  uint64_t candidates = 0;
  uint64_t bytes = 0;
};

// Reads a checkpoint as a whole, whichever ps saved a part of it, and whichever
// checkpoint of its chain contains a row.
//
// Thread-compatible.
class CheckpointReader {
 public:
  // Reads the manifest and the index of each data file, including those of the
  // checkpoints in its chain, whose folders are next to its own.
  // Errors: those of CheckpointDirectory::ReadManifest; DATA_LOSS also when an
  // index is not the one that the manifest refers to; when extents overlap, or
  // do not cover a declared variable or all buckets of a declared table; when a
  // checkpoint of the chain is missing, damaged, or not the one that its
  // successor names as the previous one; and when no checkpoint of the chain
  // has all rows of a bucket.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(
      const CheckpointDirectory& directory, const proto::CheckpointName& name);
  // Like Open, but takes the path of the checkpoint's folder.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenFolder(
      const std::string& folder, FileSystem* file_system);
  virtual ~CheckpointReader() = default;

  virtual const proto::Manifest& manifest() const = 0;
  // The variable's declaration, or null if the checkpoint has no such variable.
  virtual const proto::Variable* FindVariable(absl::string_view name) const = 0;
  // The number of stored slots of a declared variable.
  virtual uint32_t num_slots(absl::string_view variable) const = 0;
  // Fills `into` with elements, from `begin` on, of the variable's values (slot
  // 0) or of its slot `slot` - 1. Verifies every block that it reads.
  // Errors: NOT_FOUND when the elements are not stored; DATA_LOSS; those of the
  // file system.
  virtual absl::Status Read(absl::string_view variable, uint32_t slot,
                            uint64_t begin, absl::Span<float> into) = 0;

  // The table's declaration, or null if the checkpoint has no such table.
  virtual const proto::EmbeddingTable* FindTable(
      absl::string_view name) const = 0;
  // The number of float32 in a row of a declared table: values and slots.
  virtual uint32_t floats_per_row(absl::string_view table) const = 0;
  // Counts the contents of `buckets` of a declared table.
  virtual StoredCounts CountRows(absl::string_view table,
                                 BucketRange buckets) const = 0;
  using VisitRow = absl::FunctionRef<absl::Status(const StoredRow& row)>;
  // Calls visit(row) for every entry in `buckets` of a table, in the order of
  // buckets; in each bucket for its rows and then its candidates, each in the
  // order of ids. Verifies every block read, and that ids are ascending, belong
  // to their buckets, and have possible steps. It needs memory for one block
  // or, if rows are merged, for one block and the changes of one bucket per
  // checkpoint that is needed.
  // Errors: NOT_FOUND when the table is not stored; DATA_LOSS, with the file,
  // the table and the bucket; those of the file system; any error of `visit`,
  // which ends the reading.
  virtual absl::Status ReadRows(absl::string_view table, BucketRange buckets,
                                VisitRow visit) = 0;

  using VisitRemoved =
      absl::FunctionRef<absl::Status(uint32_t bucket, uint64_t id)>;
  // Reads what turns a copy of the table's rows after step `since_step` into
  // the rows of this checkpoint. Calls visit_row(row) for each row (but no
  // candidate) that a later step touched, and visit_removed(bucket, id) for
  // each id whose row was removed after `since_step` and which has no row in
  // this checkpoint. In each bucket, rows come before removed ids, and both are
  // in the order of ids. An id that the copy does not have may also be visited
  // as removed, because the checkpoint that lists it may begin before
  // `since_step`.
  // Errors: those of ReadRows; INVALID_ARGUMENT when `since_step` is after the
  // checkpoint; FAILED_PRECONDITION when it is before the oldest step since
  // which this checkpoint and its existing predecessors list all removed rows;
  // the message contains that step.
  virtual absl::Status ReadChanges(absl::string_view table, BucketRange buckets,
                                   uint64_t since_step, VisitRow visit_row,
                                   VisitRemoved visit_removed) = 0;

  // Verifies every block of the checkpoint's own files and, as ReadRows does,
  // the rows that are needed from the other checkpoints of its chain.
  virtual absl::Status Verify() = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_H_
