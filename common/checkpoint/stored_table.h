#ifndef HOLDFAST_COMMON_CHECKPOINT_STORED_TABLE_H_
#define HOLDFAST_COMMON_CHECKPOINT_STORED_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/file_system.h"
#include "common/row_bucket.h"
#include "proto/checkpoint.pb.h"
#include "proto/table.pb.h"

namespace holdfast {

// A table in the data files of a checkpoint. Private to the library.
//
// Thread-compatible.
class StoredTable {
 public:
  explicit StoredTable(const proto::EmbeddingTable* declared)
      : declared_(declared) {}

  const proto::EmbeddingTable& declared() const { return *declared_; }
  uint32_t floats_per_row() const { return floats_per_row_; }

  // Takes a stretch of a file; both must outlive this object. The file's
  // stretches end at `end`, which is not before this one's offset. Returns the
  // stretch's bytes. Errors: DATA_LOSS when it cannot be, with `path`.
  absl::StatusOr<uint64_t> Take(const std::string& path, ReadableFile* file,
                                const proto::StoredRows& stored, uint64_t end);
  // After the last one. Errors: DATA_LOSS, without a path, when a bucket is
  // missing or there twice.
  absl::Status CheckCoverage();

  StoredCounts Count(BucketRange buckets) const;
  // As CheckpointReader::ReadRows. `block` is memory for a block, whose content
  // is not specified.
  absl::Status Read(BucketRange buckets, std::string* block,
                    CheckpointReader::VisitRow visit) const;

 private:
  struct Stretch {
    std::string path;
    ReadableFile* file;
    const proto::StoredRows* stored;
    BucketRange buckets;
    // Of each bucket, in bytes of the stretch; and the end.
    std::vector<uint64_t> begins;
  };
  class Decoder;

  // Reads the part of a stretch that is in `buckets`.
  absl::Status ReadStretch(const Stretch& stretch, BucketRange buckets,
                           std::string* block,
                           CheckpointReader::VisitRow visit) const;
  absl::Status ReadBlock(const Stretch& stretch, uint64_t number,
                         std::string* block) const;

  const proto::EmbeddingTable* declared_;
  uint32_t floats_per_row_ = 0;
  // Those that have buckets, by them.
  std::vector<Stretch> stretches_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_STORED_TABLE_H_
