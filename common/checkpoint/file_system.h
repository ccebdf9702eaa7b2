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

// What checkpoints need of a file system, so that a test can put a faulty one
// in its place. Errors name the path and what the system said: NOT_FOUND,
// PERMISSION_DENIED, RESOURCE_EXHAUSTED for a full disk, ALREADY_EXISTS,
// otherwise UNAVAILABLE.
//
// Thread-safe; files are thread-compatible.
class WritableFile {
 public:
  // Closes; what was not synced may be lost.
  virtual ~WritableFile() = default;
  virtual absl::Status Append(absl::string_view data) = 0;
  // What was appended outlives a crash of the machine.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size() const = 0;
  // Fills `into` with the `size` bytes at `offset`.
  // Errors: OUT_OF_RANGE when the file ends before.
  virtual absl::Status Read(uint64_t offset, uint64_t size, char* into) = 0;
};

class FileLock {
 public:
  // Lets go.
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // An empty file, in place of one that is there.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) = 0;
  // Atomically, a file in place of one that is there, or a folder.
  // ALREADY_EXISTS for a folder in place of one that is not empty.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  // The file `from` has the name `to`, too. OK when that is so already.
  // ALREADY_EXISTS when there is another.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  // A file, or an empty folder.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Names in a folder, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& folder) = 0;
  // With its parents; OK when it is there. What it makes outlives a crash.
  // INVALID_ARGUMENT when it is a file.
  virtual absl::Status MakeFolder(const std::string& path) = 0;
  // Its entries outlive a crash of the machine.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // ALREADY_EXISTS, with what `owner` its holder gave, when it is held.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path, absl::string_view owner) = 0;
};

// The machine's. Lives for ever.
FileSystem* PosixFileSystem();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_FILE_SYSTEM_H_
