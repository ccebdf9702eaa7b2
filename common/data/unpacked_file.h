// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_UNPACKED_FILE_H_
#define HOLDFAST_COMMON_DATA_UNPACKED_FILE_H_

#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Reads a file's bytes in order, unpacked if it is gzip (RFC 1952, one member
// or several). This is determined by the file's contents, not its name.
//
// Thread-compatible.
class UnpackedFile {
 public:
  // `kind` names the format in errors: "IDX".
  // Errors: those of the system (NOT_FOUND, PERMISSION_DENIED, ...);
  // INVALID_ARGUMENT if `path` is not a regular file; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<UnpackedFile>> Open(
      const std::string& path, absl::string_view kind);

  ~UnpackedFile();

  UnpackedFile(const UnpackedFile&) = delete;
  UnpackedFile& operator=(const UnpackedFile&) = delete;

  // Fills `data` with the next `size` bytes, and returns how many there were.
  // Returns fewer than `size` only at the end of the file; a gzip file whose
  // end is reached has correct checksums.
  // Errors: DATA_LOSS for damaged gzip data; those of the system.
  absl::StatusOr<size_t> Read(uint8_t* data, size_t size);

  // An error about the byte at `offset` of the unpacked data.
  absl::Status Error(absl::StatusCode code, int64_t offset,
                     absl::string_view what) const;

  bool is_gzip() const { return gzip_; }

  // The number of unpacked bytes read so far.
  int64_t offset() const { return offset_; }

  // The size of the file on disk.
  int64_t file_size() const { return file_size_; }
  // How many bytes of the file on disk have been read.
  int64_t file_offset() const { return file_offset_ - (end_ - begin_); }

  // An upper bound of the file's unpacked size, in bytes.
  int64_t greatest_size() const;

 private:
  UnpackedFile(const std::string& path, absl::string_view kind)
      : path_(path), kind_(kind) {}

  absl::Status Init();
  absl::Status SystemError(int error) const;
  // Reads the next chunk once the last one is used up. The chunk is empty at
  // the end of the file.
  absl::Status Fill();
  bool AtGzipMember() const;
  absl::StatusOr<size_t> ReadPlain(uint8_t* data, size_t size);
  absl::StatusOr<size_t> ReadGzip(uint8_t* data, size_t size);
  // An error about damaged gzip data. `done` is the number of bytes that have
  // been unpacked beyond offset().
  absl::Status GzipError(size_t done, absl::string_view what) const;
  // "cannot read IDX file "..."".
  std::string Failure() const;

  const std::string path_;
  const std::string kind_;
  std::FILE* file_ = nullptr;
  int64_t file_size_ = 0;
  int64_t offset_ = 0;

  // The bytes read but not used yet are chunk_[begin_, end_).
  std::array<uint8_t, 64 << 10> chunk_;
  size_t begin_ = 0;
  size_t end_ = 0;
  // The offset of the chunk's end in the file.
  int64_t file_offset_ = 0;

  bool gzip_ = false;
  // Whether a member has ended and the next, if any, has not begun.
  bool between_members_ = false;
  z_stream inflate_ = {};
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_UNPACKED_FILE_H_
