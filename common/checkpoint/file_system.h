// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_CHECKPOINT_FILE_SYSTEM_H_
#define HOLDFAST_COMMON_CHECKPOINT_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// The operations that checkpoints need of a file system, as an interface, so
// that a test can substitute a faulty one. Errors contain the path and the
// system's message: NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED for a full
// disk, ALREADY_EXISTS, otherwise UNAVAILABLE.
//
// Thread-safe; files are thread-compatible.
class WritableFile {
 public:
  // Closes the file; unsynced data may be lost.
  virtual ~WritableFile() = default;
  virtual absl::Status Append(absl::string_view data) = 0;
  // Makes appended data survive a crash of the machine.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size() const = 0;
  // Fills `into` with the `size` bytes at `offset`.
  // Errors: OUT_OF_RANGE when the file ends earlier.
  virtual absl::Status Read(uint64_t offset, uint64_t size, char* into) = 0;
};

class FileLock {
 public:
  // Releases the lock.
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates an empty file, replacing an existing one.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) = 0;
  // Renames a file, atomically replacing an existing one, or a folder.
  // ALREADY_EXISTS when a folder would replace one that is not empty.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  // Makes a hard link `to` to the file `from`. Returns OK if `to` is already a
  // link to that file, and ALREADY_EXISTS if `to` is another file.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  // Removes a file or an empty folder.
  virtual absl::Status Remove(const std::string& path) = 0;
  // The names in a folder, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& folder) = 0;
  // Creates a folder and its parents, and makes them survive a crash. Returns
  // OK if the folder exists. INVALID_ARGUMENT when `path` is a file.
  virtual absl::Status MakeFolder(const std::string& path) = 0;
  // Makes the folder's entries survive a crash of the machine.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // Returns ALREADY_EXISTS, with the `owner` that the holder gave, if the lock
  // is held.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path, absl::string_view owner) = 0;
};

// The machine's file system. Never destroyed.
FileSystem* PosixFileSystem();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_FILE_SYSTEM_H_
