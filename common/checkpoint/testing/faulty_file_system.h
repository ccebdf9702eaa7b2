// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_CHECKPOINT_TESTING_FAULTY_FILE_SYSTEM_H_
#define HOLDFAST_COMMON_CHECKPOINT_TESTING_FAULTY_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/file_system.h"

namespace holdfast {

// An in-memory file system for tests that knows what is synced and what is not.
//
// Each Create, Append, Sync, Rename, Link, Remove, MakeFolder and SyncFolder is
// a *write*; writes are counted, and can be made to fail. Crash() discards what
// was not synced: the end of a file without Sync, and an entry of a folder
// without SyncFolder.
//
// Thread-safe. Must outlive its files and locks.
class FaultyFileSystem final : public FileSystem {
 public:
  // What a crash does to unsynced data.
  enum class Unsynced {
    kLost,
    kKept,
    // The seed decides for each entry of a folder whether it is kept, and how
    // many bytes of each file are; the bytes after them are lost, or read as
    // zeros.
    kPartly,
  };

  // The number of writes so far.
  int64_t writes() const;

  // Makes the machine stop within the n-th write from now (1 is the next one):
  // half of an Append is done, but nothing of any other write. From then on,
  // all calls fail until Crash().
  void StopAtWrite(int64_t n);
  bool stopped() const;
  // Makes only the n-th write from now (1 is the next one) fail with `status`,
  // and do nothing.
  void FailWrite(int64_t n, absl::Status status);
  // The number of bytes that can still be appended; an Append beyond it writes
  // what fits and returns RESOURCE_EXHAUSTED. Nullopt means unlimited.
  void SetSpace(std::optional<uint64_t> bytes);
  // Makes writes fail with PERMISSION_DENIED.
  void SetReadOnly(bool read_only);
  // Makes reads of files whose path contains `text` fail. No read fails if it
  // is empty.
  void SetReadFails(std::string text, absl::Status status);
  // Makes each Sync fail with UNAVAILABLE and sync nothing.
  void SetSyncFails(bool fails);

  // Crashes the machine: open files, locks and all of the above settings are
  // lost.
  void Crash(Unsynced unsynced, uint64_t seed = 0);

  // Every file's path, sorted.
  std::vector<std::string> Files() const;
  // Reads or changes an existing file directly, bypassing the calls below.
  std::string Contents(const std::string& path) const;
  void SetContents(const std::string& path, std::string contents);

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& folder) override;
  absl::Status MakeFolder(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path, absl::string_view owner) override;

 private:
  class File;
  class Lease;

  struct Inode {
    std::string data;
    size_t synced = 0;
  };
  using Inodes = std::map<std::string, std::shared_ptr<Inode>>;

  // An unsynced change of a folder: an entry that was set or, without an inode,
  // removed; and, for a rename, the entry that it removed.
  struct Change {
    std::string path;
    std::shared_ptr<Inode> inode;
    std::string renamed_from;
  };

  static void Apply(const Change& change, Inodes* files);

  absl::Status BeginRead(const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginWrite(const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the changes of the folder `path` durable.
  void SyncEntries(const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Make(Change change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  // The files as readers see them; and as a crash would leave them, without the
  // unsynced changes.
  Inodes files_ ABSL_GUARDED_BY(mutex_);
  Inodes durable_ ABSL_GUARDED_BY(mutex_);
  std::vector<Change> changes_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> folders_ ABSL_GUARDED_BY(mutex_);
  // The owners of locks, by path.
  std::map<std::string, std::string> locks_ ABSL_GUARDED_BY(mutex_);
  // The number of crashes; a file of an earlier life is closed.
  int64_t life_ ABSL_GUARDED_BY(mutex_) = 0;

  int64_t writes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<int64_t> stop_at_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int64_t, absl::Status> failing_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> space_ ABSL_GUARDED_BY(mutex_);
  bool read_only_ ABSL_GUARDED_BY(mutex_) = false;
  bool sync_fails_ ABSL_GUARDED_BY(mutex_) = false;
  std::string unreadable_ ABSL_GUARDED_BY(mutex_);
  absl::Status read_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_TESTING_FAULTY_FILE_SYSTEM_H_
