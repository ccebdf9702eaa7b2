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

// Bytes of a block, which has a checksum of its own. A larger one makes a
// reader that wants little read more; a smaller one makes the index longer.
inline constexpr uint64_t kCheckpointBlockBytes = uint64_t{1} << 20;

// Writes one ps' share of a checkpoint: extents, then their index
// (docs/formats/checkpoint.md). The file has its name only once it is whole.
//
// Thread-compatible. Errors are those of the file system; after one, all calls
// return it.
class DataFileWriter {
 public:
  // Makes the checkpoint's folder, if need be.
  static absl::StatusOr<std::unique_ptr<DataFileWriter>> Create(
      const CheckpointDirectory& directory, const proto::CheckpointName& name,
      uint32_t ps, uint32_t num_ps);
  // Removes what is not finished.
  virtual ~DataFileWriter() = default;

  // Begins an extent of `size` elements from `begin` of the variable's values
  // (slot 0) or of slot `slot` - 1; its elements follow by Append.
  virtual absl::Status Begin(absl::string_view variable, uint32_t slot,
                             uint64_t begin, uint64_t size) = 0;
  virtual absl::Status Append(absl::Span<const float> elements) = 0;

  struct Rows {
    absl::string_view table;
    // Values and slots.
    uint32_t floats_per_row = 0;
    BucketRange buckets;
    // As in proto::StoredRows.
    std::optional<uint64_t> since;
    bool changes = false;
  };
  // Begins the rows of a table; all of its buckets follow by AppendBucket, in
  // their order. Variables come before tables.
  virtual absl::Status BeginRows(const Rows& rows) = 0;
  // The next bucket: its rows, its candidates, and removed ids, each in the
  // order of ids, as docs/formats/checkpoint.md has them.
  virtual absl::Status AppendBucket(const StoredBucket& contents,
                                    absl::string_view bytes) = 0;

  // Writes the index, syncs and renames.
  // Errors: also INTERNAL when an extent has not got as many elements or
  // buckets as it was begun with.
  virtual absl::StatusOr<proto::DataFile> Finish() = 0;
};

// A row of a table, or a candidate, in a checkpoint.
struct StoredRow {
  uint32_t bucket;
  // It has no floats.
  bool is_candidate;
  uint64_t id;
  uint64_t step;
  uint32_t count;
  // Values and slots. Valid during the visit.
  absl::Span<const float> floats;
};

// How many a table has in some buckets, and the bytes that are read for them,
// of all checkpoints that are needed.
struct StoredCounts {
  uint64_t rows = 0;
  uint64_t candidates = 0;
  uint64_t bytes = 0;
};

// Reads a checkpoint as one: whoever saved which part of it, and in whichever
// checkpoint of its chain a row lies.
//
// Thread-compatible.
class CheckpointReader {
 public:
  // Reads the manifest and the index of each data file, also of the checkpoints
  // in its chain, whose folders are beside its own.
  // Errors: those of CheckpointDirectory::ReadManifest; DATA_LOSS also when an
  // index is not the one that the manifest means, or extents overlap or leave
  // elements of a declared variable, or buckets of a declared table, out; when
  // a checkpoint of the chain is not there, damaged, or of another line; and
  // when no checkpoint of the chain has all rows of a bucket.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(
      const CheckpointDirectory& directory, const proto::CheckpointName& name);
  // The same by the path of the checkpoint's folder.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenFolder(
      const std::string& folder, FileSystem* file_system);
  virtual ~CheckpointReader() = default;

  virtual const proto::Manifest& manifest() const = 0;
  // What is declared of it, or null.
  virtual const proto::Variable* FindVariable(absl::string_view name) const = 0;
  // Slots that are stored of a variable, which is declared.
  virtual uint32_t num_slots(absl::string_view variable) const = 0;
  // Reads elements from `begin` on, as many as `into` has, of the values (slot
  // 0) or of slot `slot` - 1; every block that it takes from is tested.
  // Errors: NOT_FOUND when they are not stored; DATA_LOSS; of the file system.
  virtual absl::Status Read(absl::string_view variable, uint32_t slot,
                            uint64_t begin, absl::Span<float> into) = 0;

  // What is declared of it, or null.
  virtual const proto::EmbeddingTable* FindTable(
      absl::string_view name) const = 0;
  // Float32 of a row of a table, which is declared: values and slots.
  virtual uint32_t floats_per_row(absl::string_view table) const = 0;
  // What there is in `buckets` of a table, which is declared.
  virtual StoredCounts CountRows(absl::string_view table,
                                 BucketRange buckets) const = 0;
  using VisitRow = absl::FunctionRef<absl::Status(const StoredRow& row)>;
  // Calls visit(row) for all that there is in `buckets` of a table, in the
  // order of buckets; of a bucket, for its rows and then its candidates, each
  // in the order of ids. Every block that it takes from is tested, and that the
  // ids rise, belong to their buckets, and are of steps that can be there. The
  // memory that it takes is a block; where rows are merged, a block and the
  // changes of a bucket for each checkpoint that is needed.
  // Errors: NOT_FOUND when the table is not stored; DATA_LOSS; of the file
  // system; what `visit` returns, which ends it. A DATA_LOSS names the file,
  // the table and the bucket.
  virtual absl::Status ReadRows(absl::string_view table, BucketRange buckets,
                                VisitRow visit) = 0;

  using VisitRemoved =
      absl::FunctionRef<absl::Status(uint32_t bucket, uint64_t id)>;
  // Tells how a copy of the table's rows as of `since_step` becomes one of this
  // checkpoint: visit_row(row) for each row, not candidate, of a later step,
  // and visit_removed(bucket, id) for each id that was removed as a row since
  // then and is not a row here; of a bucket, rows come first, each in the order
  // of ids. An id that the copy does not have may be told as removed: the
  // checkpoint that lists it may begin before `since_step`.
  // Errors: as ReadRows; INVALID_ARGUMENT when `since_step` is after the
  // checkpoint; FAILED_PRECONDITION when it is before the oldest step since
  // which removed rows are listed, in the checkpoints of the job's line that
  // are still there; the message tells that step.
  virtual absl::Status ReadChanges(absl::string_view table, BucketRange buckets,
                                   uint64_t since_step, VisitRow visit_row,
                                   VisitRemoved visit_removed) = 0;

  // Tests every block of the checkpoint's own files, and the rows that are
  // needed of others, as ReadRows does.
  virtual absl::Status Verify() = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_H_
