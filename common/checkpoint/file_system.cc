// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// A larger window keeps the disk busier; a smaller one shows earlier that the
// disk has stalled.
constexpr uint64_t kWriteBackBytes = uint64_t{16} << 20;

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EEXIST:
    case ENOTEMPTY:
      return absl::StatusCode::kAlreadyExists;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

// The status for errno after a failed attempt to `act` on `path`.
absl::Status Failed(absl::string_view act, absl::string_view path) {
  const int error = errno;
  return absl::Status(CodeOf(error),
                      absl::StrCat(path, ": cannot ", act, ": ",
                                   std::generic_category().message(error)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  // The descriptor is closed afterwards, whatever close(2) returns.
  int Close() { return close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

int OpenRetrying(const std::string& path, int flags) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd)
      : path_(std::move(path)), file_(fd) {}

  absl::Status Append(absl::string_view data) override {
    while (!data.empty()) {
      const ssize_t written = write(file_.get(), data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Failed("write", path_);
      data.remove_prefix(written);
      size_ += written;
    }
    return WriteBack();
  }

  absl::Status Sync() override {
    if (fsync(file_.get()) != 0) return Failed("sync", path_);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    // Linux closes the descriptor even if interrupted.
    if (file_.Close() != 0 && errno != EINTR) return Failed("close", path_);
    return absl::OkStatus();
  }

 private:
  // Makes the disk write appended data, so that Append stays at most two
  // windows ahead of it: appending then shows real progress, and little is left
  // for Sync.
  absl::Status WriteBack() {
    while (size_ - written_back_ >= 2 * kWriteBackBytes) {
      if (sync_file_range(file_.get(), written_back_, kWriteBackBytes,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER) != 0 &&
          errno != ENOSYS && errno != EINVAL && errno != ESPIPE) {
        return Failed("write", path_);
      }
      written_back_ += kWriteBackBytes;
      if (sync_file_range(file_.get(), written_back_, kWriteBackBytes,
                          SYNC_FILE_RANGE_WRITE) != 0 &&
          errno != ENOSYS && errno != EINVAL && errno != ESPIPE) {
        return Failed("write", path_);
      }
    }
    return absl::OkStatus();
  }

  const std::string path_;
  Descriptor file_;
  // The number of bytes appended, and of bytes at the beginning that the disk
  // has written.
  uint64_t size_ = 0;
  uint64_t written_back_ = 0;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(std::string path, int fd, uint64_t size)
      : path_(std::move(path)), file_(fd), size_(size) {}

  uint64_t size() const override { return size_; }

  absl::Status Read(uint64_t offset, uint64_t size, char* into) override {
    while (size > 0) {
      const ssize_t count = pread(file_.get(), into, size, offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed("read", path_);
      if (count == 0) {
        return absl::OutOfRangeError(
            absl::StrCat(path_, ": ends at byte ", offset, ", ", size,
                         " bytes before the end of the range to be read"));
      }
      offset += count;
      size -= count;
      into += count;
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const Descriptor file_;
  const uint64_t size_;
};

// flock(2) belongs to the open file: closing it releases the lock, as does the
// end of the process.
class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(int fd) : file_(fd) {}
  int fd() const { return file_.get(); }

 private:
  const Descriptor file_;
};

// The owner's text in a lock file; empty if it cannot be read.
std::string ReadOwner(int fd) {
  char text[1024];
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  return std::string(text, std::max<ssize_t>(size, 0));
}

class Posix final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    const int fd = OpenRetrying(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) return Failed("create", path);
    return std::make_unique<PosixWritableFile>(path, fd);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    const int fd = OpenRetrying(path, O_RDONLY);
    if (fd < 0) return Failed("open", path);
    struct stat about;
    if (fstat(fd, &about) != 0) {
      const absl::Status failed = Failed("look at", path);
      close(fd);
      return failed;
    }
    return std::make_unique<PosixReadableFile>(path, fd, about.st_size);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) {
      return Failed(absl::StrCat("rename to ", to), from);
    }
    return absl::OkStatus();
  }

  absl::Status Link(const std::string& from, const std::string& to) override {
    if (link(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    const int error = errno;
    struct stat a, b;
    if (error == EEXIST && stat(from.c_str(), &a) == 0 &&
        stat(to.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino) {
      return absl::OkStatus();
    }
    errno = error;
    return Failed(absl::StrCat("link to ", to), from);
  }

  absl::Status Remove(const std::string& path) override {
    if (remove(path.c_str()) != 0) return Failed("remove", path);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(
      const std::string& folder) override {
    DIR* const entries = opendir(folder.c_str());
    if (entries == nullptr) return Failed("list", folder);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(entries)) {
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const absl::Status status =
        errno == 0 ? absl::OkStatus() : Failed("list", folder);
    closedir(entries);
    if (!status.ok()) return status;
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status MakeFolder(const std::string& path) override {
    if (mkdir(path.c_str(), 0777) == 0) return SyncFolder(ParentOf(path));
    if (errno == EEXIST) {
      struct stat about;
      if (stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode)) {
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is a file, not a folder"));
    }
    const std::string parent = ParentOf(path);
    if (errno != ENOENT || parent == path) return Failed("make folder", path);
    HOLDFAST_RETURN_IF_ERROR(MakeFolder(parent));
    // Another process may create the folder first.
    if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
      return Failed("make folder", path);
    }
    return SyncFolder(parent);
  }

  absl::Status SyncFolder(const std::string& path) override {
    const Descriptor folder(OpenRetrying(path, O_RDONLY | O_DIRECTORY));
    if (folder.get() < 0) return Failed("open", path);
    if (fsync(folder.get()) != 0) return Failed("sync", path);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path, absl::string_view owner) override {
    const int fd = OpenRetrying(path, O_RDWR | O_CREAT);
    if (fd < 0) return Failed("open", path);
    auto lock = std::make_unique<PosixFileLock>(fd);
    int locked;
    do {
      locked = flock(fd, LOCK_EX | LOCK_NB);
    } while (locked != 0 && errno == EINTR);
    if (locked != 0 && errno == EWOULDBLOCK) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, ": held by ", ReadOwner(fd)));
    }
    if (locked != 0) return Failed("lock", path);
    // The owner's text is only for messages: the lock is held even if writing
    // it fails.
    if (ftruncate(fd, 0) == 0) {
      const ssize_t ignored = pwrite(fd, owner.data(), owner.size(), 0);
      static_cast<void>(ignored);
    }
    return lock;
  }

 private:
  static std::string ParentOf(const std::string& path) {
    std::filesystem::path parent(path);
    // Otherwise the parent of "a/b/" would be "a/b".
    if (!parent.has_filename()) parent = parent.parent_path();
    parent = parent.parent_path();
    return parent.empty() ? "." : parent.string();
  }
};

}  // namespace

FileSystem* PosixFileSystem() {
  static Posix* const posix = new Posix;
  return posix;
}

}  // namespace holdfast
