// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_TFRECORD_FILE_H_
#define HOLDFAST_COMMON_DATA_TFRECORD_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/data/file_bytes.h"
#include "common/data/unpack.h"

namespace holdfast {

// Reads the records of a TFRecord file (tfrecord_frame.h), plain or gzip, in
// their order.
//
// Thread-compatible.
class TfRecordReader {
 public:
  struct Record {
    absl::string_view data;
    // The offset of the record's first byte.
    int64_t offset = 0;
    // Whether the checksum of `data` is correct.
    bool intact = true;
  };

  // Errors: those of ReadFileBytes.
  static absl::StatusOr<TfRecordReader> Open(
      const std::string& path, const ReadingOptions& options = {});

  // Fills in the next record. Returns false if there is none.
  // Errors: INVALID_ARGUMENT for a file that does not begin with a record;
  // DATA_LOSS if a record is truncated, or its length is damaged, so that no
  // further record can be found.
  absl::StatusOr<bool> Next(Record* record);

  const std::string& path() const { return path_; }
  const FileBytes& file() const { return file_; }
  // The number of records that Next() has returned so far.
  int64_t records() const { return records_; }

  // An error about the record that Next() returned last.
  absl::Status Error(absl::StatusCode code, absl::string_view what) const;

 private:
  TfRecordReader(const std::string& path, FileBytes file)
      : path_(path), file_(std::move(file)) {}

  // An error about the record at next_.
  absl::Status NextError(absl::StatusCode code, absl::string_view what) const;
  absl::Status ErrorAt(absl::StatusCode code, int64_t record, int64_t offset,
                       absl::string_view what) const;

  std::string path_;
  FileBytes file_;
  int64_t records_ = 0;
  int64_t offset_ = 0;
  int64_t next_ = 0;
};

// The offsets of records in files, 8 bytes each, for random access.
//
// Thread-compatible while records are added, then immutable and thread-safe.
class TfRecordIndex {
 public:
  // Begins a file: the records that are added from now on are in it.
  void AddFile(const std::string& path, const FileBytes& file);
  void Add(int64_t offset) { offsets_.push_back(offset); }
  // Releases unused memory.
  void Finish() { offsets_.shrink_to_fit(); }

  int64_t records() const { return offsets_.size(); }
  // The size of the index, in bytes.
  int64_t bytes() const {
    return static_cast<int64_t>(offsets_.size() * sizeof(int64_t));
  }
  // Returns the data of a record.
  // Errors: DATA_LOSS when the file has changed since the record was added.
  absl::StatusOr<absl::string_view> Read(int64_t record) const;
  // "record 7 (from 0) of "part.tfrecord"", for messages. The number counts
  // only records that were added.
  std::string Place(int64_t record) const;

 private:
  struct File {
    std::string path;
    FileBytes file;
    // The number of records in the files before it.
    int64_t first = 0;
  };
  const File& FileOf(int64_t record) const;

  std::vector<File> files_;
  std::vector<int64_t> offsets_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_TFRECORD_FILE_H_
