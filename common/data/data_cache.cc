// SPDX-License-Identifier: Apache-2.0
#include "common/data/data_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/data/file_mapping.h"
#include "common/data/reading_progress.h"

namespace holdfast {
namespace {

constexpr absl::string_view kMagic = "HOLDFAST DATA 1\n";
constexpr size_t kHeaderBytes = 64;
// The offset of the sizes in the header.
constexpr size_t kPayloadSize = 16;
constexpr size_t kNotesSize = 24;
constexpr size_t kBufferBytes = 1 << 20;

absl::Status SystemError(int error, absl::string_view what,
                         const std::string& path) {
  return absl::ErrnoToStatus(
      error, absl::StrCat("cannot ", what, " \"", path,
                          "\" of the data cache; make room, or name another "
                          "folder in --data_cache_dir"));
}

void PutSize(uint64_t size, uint8_t* to) {
  for (int i = 0; i < 8; ++i) to[i] = size >> 8 * i & 0xff;
}

uint64_t GetSize(const uint8_t* from) {
  uint64_t size = 0;
  for (int i = 8; i-- > 0;) size = size << 8 | from[i];
  return size;
}

bool IsSameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// A file that this process has locked and is writing.
class PartFile final : public ByteSink {
 public:
  // Waits for the lock on the unfinished file. Returns null if another process
  // has, or may have, finished the file at `whole` meanwhile.
  static absl::StatusOr<std::unique_ptr<PartFile>> Lock(
      const std::string& path, const std::string& whole,
      const std::function<void(const std::string&)>& tell);

  ~PartFile() override {
    if (!renamed_) unlink(path_.c_str());
    close(fd_);
  }

  absl::Status Append(absl::Span<const uint8_t> bytes) override {
    payload_size_ += bytes.size();
    return Write(bytes);
  }

  // Completes the file and gives it its name.
  absl::Status Finish(const std::string& notes, const std::string& whole);

 private:
  PartFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {
    buffer_.reserve(kBufferBytes);
  }

  absl::Status Write(absl::Span<const uint8_t> bytes);
  absl::Status Flush();
  // Appends all bytes to the file.
  absl::Status WriteOut(absl::Span<const uint8_t> bytes);
  absl::Status Failure(absl::string_view what) const {
    return SystemError(errno, what, path_);
  }

  const int fd_;
  const std::string path_;
  std::vector<uint8_t> buffer_;
  uint64_t payload_size_ = 0;
  bool renamed_ = false;
};

absl::StatusOr<std::unique_ptr<PartFile>> PartFile::Lock(
    const std::string& path, const std::string& whole,
    const std::function<void(const std::string&)>& tell) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return SystemError(errno, "write", path);
  absl::Cleanup close_it = [fd] { close(fd); };
  int result = flock(fd, LOCK_EX | LOCK_NB);
  if (result != 0 && errno == EWOULDBLOCK) {
    tell(absl::StrCat("waiting for another process, which is writing \"", path,
                      "\""));
    do {
      result = flock(fd, LOCK_EX);
    } while (result != 0 && errno == EINTR);
  }
  if (result != 0) return SystemError(errno, "lock", path);
  // The previous holder of the lock may have renamed or removed the file.
  struct stat locked, named;
  if (fstat(fd, &locked) != 0) return SystemError(errno, "write", path);
  if (stat(path.c_str(), &named) != 0 || !IsSameFile(locked, named)) {
    return nullptr;
  }
  std::unique_ptr<PartFile> file(new PartFile(fd, path));
  std::move(close_it).Cancel();
  // Created after the file at `whole` was finished: the destructor removes it.
  if (access(whole.c_str(), F_OK) == 0) return nullptr;
  if (ftruncate(fd, 0) != 0) return file->Failure("write");
  const std::array<uint8_t, kHeaderBytes> header = {};
  HOLDFAST_RETURN_IF_ERROR(file->WriteOut(header));
  return file;
}

absl::Status PartFile::Write(absl::Span<const uint8_t> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    HOLDFAST_RETURN_IF_ERROR(Flush());
  }
  if (bytes.size() >= kBufferBytes) return WriteOut(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return absl::OkStatus();
}

absl::Status PartFile::Flush() {
  const absl::Status status = WriteOut(buffer_);
  buffer_.clear();
  return status;
}

absl::Status PartFile::WriteOut(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failure("write");
    bytes.remove_prefix(n);
  }
  return absl::OkStatus();
}

absl::Status PartFile::Finish(const std::string& notes,
                              const std::string& whole) {
  absl::Status status =
      Write({reinterpret_cast<const uint8_t*>(notes.data()), notes.size()});
  if (status.ok()) status = Flush();
  if (!status.ok()) return status;
  std::array<uint8_t, kHeaderBytes> header = {};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  PutSize(payload_size_, header.data() + kPayloadSize);
  PutSize(notes.size(), header.data() + kNotesSize);
  if (pwrite(fd_, header.data(), header.size(), /*offset=*/0) !=
      static_cast<ssize_t>(header.size())) {
    return Failure("write");
  }
  // Synced before it is renamed, so that a file with its final name is complete
  // even after a crash of the machine.
  if (fdatasync(fd_) != 0) return Failure("write");
  if (std::rename(path_.c_str(), whole.c_str()) != 0) return Failure("rename");
  renamed_ = true;
  return absl::OkStatus();
}

}  // namespace

DataCache::Key::Key(absl::string_view kind) : kind_(kind) { Add(kMagic); }

void DataCache::Key::Add(absl::string_view text) {
  absl::StrAppend(&text_, text.size(), "\n", text);
}

absl::Status DataCache::Key::AddFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot read \"", path, "\""));
  }
  Add(std::filesystem::absolute(path).lexically_normal().string());
  Add(absl::StrCat(info.st_size, " ", info.st_mtim.tv_sec, " ",
                   info.st_mtim.tv_nsec));
  return absl::OkStatus();
}

std::string DataCache::Key::FileName() const {
  return absl::StrCat(kind_, "-", Sha256::Hex(text_).substr(0, 32), ".data");
}

absl::StatusOr<std::unique_ptr<DataCache>> DataCache::Open(
    const std::string& folder, std::function<void(const std::string&)> tell) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no folder \"", folder, "\"; create it"));
  }
  return std::unique_ptr<DataCache>(new DataCache(folder, std::move(tell)));
}

absl::StatusOr<DataCache::Entry> DataCache::Map(const std::string& path) const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(path));
  const absl::Span<const uint8_t> file = mapping->bytes();
  const bool has_header =
      file.size() >= kHeaderBytes &&
      std::equal(kMagic.begin(), kMagic.end(),
                 reinterpret_cast<const char*>(file.data()));
  const uint64_t payload = has_header ? GetSize(file.data() + kPayloadSize) : 0;
  const uint64_t notes = has_header ? GetSize(file.data() + kNotesSize) : 0;
  const uint64_t rest = file.size() - (has_header ? kHeaderBytes : 0);
  if (!has_header || payload > rest || notes != rest - payload) {
    return absl::DataLossError(
        absl::StrCat("\"", path,
                     "\" of the data cache is incomplete; remove it, and it "
                     "will be made again"));
  }
  Entry entry;
  entry.bytes = file.subspan(kHeaderBytes, payload);
  const absl::Span<const uint8_t> text = file.subspan(kHeaderBytes + payload);
  entry.notes.assign(text.begin(), text.end());
  entry.owner = mapping;
  return entry;
}

absl::StatusOr<DataCache::Entry> DataCache::Get(const Key& key,
                                                Make make) const {
  const std::string path =
      (std::filesystem::path(folder_) / key.FileName()).string();
  while (true) {
    absl::StatusOr<Entry> entry = Map(path);
    if (entry.ok()) {
      tell_(absl::StrCat("using \"", path, "\" of the data cache, ",
                         SizeText(entry->bytes.size())));
    }
    if (!absl::IsNotFound(entry.status())) return entry;
    HOLDFAST_ASSIGN_OR_RETURN(const auto part,
                              PartFile::Lock(path + ".part", path, tell_));
    if (part == nullptr) continue;
    tell_(absl::StrCat("writing \"", path, "\" of the data cache"));
    std::string notes;
    absl::Status status = make(part.get(), &notes);
    if (status.ok()) status = part->Finish(notes, path);
    if (!status.ok()) return status;
    return Map(path);
  }
}

}  // namespace holdfast
