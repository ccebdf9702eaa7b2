// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/testing/faulty_file_system.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

absl::Status NotThere(absl::string_view path) {
  return absl::NotFoundError(absl::StrCat(path, ": is not there"));
}

}  // namespace

// A file open for writing or reading.
class FaultyFileSystem::File final : public WritableFile, public ReadableFile {
 public:
  File(FaultyFileSystem* system, std::string path, std::shared_ptr<Inode> inode,
       int64_t life)
      : system_(system),
        path_(std::move(path)),
        inode_(std::move(inode)),
        life_(life) {}

  absl::Status Append(absl::string_view data) override {
    absl::MutexLock lock(&system_->mutex_);
    absl::Status status = InThisLife();
    if (!status.ok()) return status;
    const bool stopped = system_->stopped_;
    status = system_->BeginWrite(path_);
    if (status.ok() && system_->space_.has_value()) {
      const uint64_t fits = std::min<uint64_t>(*system_->space_, data.size());
      *system_->space_ -= fits;
      if (fits < data.size()) {
        status = absl::ResourceExhaustedError(
            absl::StrCat(path_, ": no space is left"));
      }
      data = data.substr(0, fits);
    } else if (!status.ok()) {
      const bool stops_here = system_->stopped_ && !stopped;
      data = data.substr(0, stops_here ? data.size() / 2 : 0);
    }
    inode_->data.append(data.data(), data.size());
    return status;
  }

  absl::Status Sync() override {
    absl::MutexLock lock(&system_->mutex_);
    absl::Status status = InThisLife();
    if (status.ok()) status = system_->BeginWrite(path_);
    if (!status.ok()) return status;
    if (system_->sync_fails_) {
      return absl::UnavailableError(absl::StrCat(path_, ": cannot sync"));
    }
    inode_->synced = inode_->data.size();
    return absl::OkStatus();
  }

  absl::Status Close() override { return absl::OkStatus(); }

  uint64_t size() const override {
    absl::MutexLock lock(&system_->mutex_);
    return inode_->data.size();
  }

  absl::Status Read(uint64_t offset, uint64_t size, char* into) override {
    absl::MutexLock lock(&system_->mutex_);
    absl::Status status = InThisLife();
    if (status.ok()) status = system_->BeginRead(path_);
    if (status.ok() && !system_->unreadable_.empty() &&
        absl::StrContains(path_, system_->unreadable_)) {
      status = system_->read_error_;
    }
    if (!status.ok()) return status;
    const std::string& data = inode_->data;
    if (offset > data.size() || size > data.size() - offset) {
      return absl::OutOfRangeError(absl::StrCat(path_, ": ends before"));
    }
    std::copy_n(data.data() + offset, size, into);
    return absl::OkStatus();
  }

 private:
  absl::Status InThisLife() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(system_->mutex_) {
    if (system_->life_ == life_) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(path_, ": the machine crashed"));
  }

  FaultyFileSystem* const system_;
  const std::string path_;
  const std::shared_ptr<Inode> inode_;
  const int64_t life_;
};

class FaultyFileSystem::Lease final : public FileLock {
 public:
  Lease(FaultyFileSystem* system, std::string path, int64_t life)
      : system_(system), path_(std::move(path)), life_(life) {}
  ~Lease() override {
    absl::MutexLock lock(&system_->mutex_);
    if (system_->life_ == life_) system_->locks_.erase(path_);
  }

 private:
  FaultyFileSystem* const system_;
  const std::string path_;
  const int64_t life_;
};

int64_t FaultyFileSystem::writes() const {
  absl::MutexLock lock(&mutex_);
  return writes_;
}

void FaultyFileSystem::StopAtWrite(int64_t n) {
  absl::MutexLock lock(&mutex_);
  stop_at_ = writes_ + n;
}

bool FaultyFileSystem::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

void FaultyFileSystem::FailWrite(int64_t n, absl::Status status) {
  absl::MutexLock lock(&mutex_);
  failing_[writes_ + n] = std::move(status);
}

void FaultyFileSystem::SetSpace(std::optional<uint64_t> bytes) {
  absl::MutexLock lock(&mutex_);
  space_ = bytes;
}

void FaultyFileSystem::SetReadOnly(bool read_only) {
  absl::MutexLock lock(&mutex_);
  read_only_ = read_only;
}

void FaultyFileSystem::SetSyncFails(bool fails) {
  absl::MutexLock lock(&mutex_);
  sync_fails_ = fails;
}

void FaultyFileSystem::SetReadFails(std::string text, absl::Status status) {
  absl::MutexLock lock(&mutex_);
  unreadable_ = std::move(text);
  read_error_ = std::move(status);
}

void FaultyFileSystem::Crash(Unsynced unsynced, uint64_t seed) {
  absl::MutexLock lock(&mutex_);
  std::mt19937_64 random(seed);
  for (const Change& change : changes_) {
    if (unsynced == Unsynced::kKept ||
        (unsynced == Unsynced::kPartly && random() % 2 == 0)) {
      Apply(change, &durable_);
    }
  }
  changes_.clear();
  files_ = durable_;
  for (const auto& [path, inode] : files_) {
    const size_t size = inode->data.size();
    size_t kept = size;
    if (unsynced == Unsynced::kLost) kept = inode->synced;
    if (unsynced == Unsynced::kPartly) {
      kept = inode->synced + random() % (size - inode->synced + 1);
    }
    inode->data.resize(kept);
    if (unsynced == Unsynced::kPartly && random() % 2 == 0) {
      inode->data.resize(size, '\0');
    }
    inode->synced = inode->data.size();
    folders_.insert(FolderOf(path));
  }
  locks_.clear();
  ++life_;
  stop_at_.reset();
  stopped_ = false;
  failing_.clear();
  space_.reset();
  read_only_ = false;
  sync_fails_ = false;
  unreadable_.clear();
}

std::vector<std::string> FaultyFileSystem::Files() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> paths;
  for (const auto& [path, inode] : files_) paths.push_back(path);
  return paths;
}

std::string FaultyFileSystem::Contents(const std::string& path) const {
  absl::MutexLock lock(&mutex_);
  return files_.at(path)->data;
}

void FaultyFileSystem::SetContents(const std::string& path,
                                   std::string contents) {
  absl::MutexLock lock(&mutex_);
  Inode& inode = *files_.at(path);
  inode.data = std::move(contents);
  inode.synced = inode.data.size();
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyFileSystem::Create(
    const std::string& path) {
  absl::MutexLock lock(&mutex_);
  HOLDFAST_RETURN_IF_ERROR(BeginWrite(path));
  if (folders_.count(FolderOf(path)) == 0) return NotThere(FolderOf(path));
  auto inode = std::make_shared<Inode>();
  Make({path, inode});
  return std::make_unique<File>(this, path, inode, life_);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> FaultyFileSystem::Open(
    const std::string& path) {
  absl::MutexLock lock(&mutex_);
  HOLDFAST_RETURN_IF_ERROR(BeginRead(path));
  const auto found = files_.find(path);
  if (found == files_.end()) return NotThere(path);
  return std::make_unique<File>(this, path, found->second, life_);
}

absl::Status FaultyFileSystem::Rename(const std::string& from,
                                      const std::string& to) {
  absl::MutexLock lock(&mutex_);
  HOLDFAST_RETURN_IF_ERROR(BeginWrite(from));
  const auto found = files_.find(from);
  if (found != files_.end()) {
    Make({to, found->second, from});
    return absl::OkStatus();
  }
  if (folders_.count(from) == 0) return NotThere(from);
  if (folders_.count(to) > 0) {
    return absl::AlreadyExistsError(absl::StrCat(to, ": is there"));
  }
  // The folder's files are renamed at the same moment and durably, so that a
  // crash does not undo it.
  const std::string inside = absl::StrCat(from, "/");
  for (Inodes* files : {&files_, &durable_}) {
    Inodes renamed;
    for (const auto& [path, inode] : *files) {
      const bool moves = absl::StartsWith(path, inside);
      renamed[moves ? absl::StrCat(to, "/", path.substr(inside.size()))
                    : path] = inode;
    }
    *files = std::move(renamed);
  }
  for (Change& change : changes_) {
    for (std::string* path : {&change.path, &change.renamed_from}) {
      if (!absl::StartsWith(*path, inside)) continue;
      *path = absl::StrCat(to, "/", path->substr(inside.size()));
    }
  }
  folders_.erase(from);
  folders_.insert(to);
  return absl::OkStatus();
}

absl::Status FaultyFileSystem::Link(const std::string& from,
                                    const std::string& to) {
  absl::MutexLock lock(&mutex_);
  HOLDFAST_RETURN_IF_ERROR(BeginWrite(to));
  const auto found = files_.find(from);
  if (found == files_.end()) return NotThere(from);
  const auto there = files_.find(to);
  if (there != files_.end()) {
    if (there->second == found->second) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat(to, ": is there"));
  }
  Make({to, found->second});
  return absl::OkStatus();
}

absl::Status FaultyFileSystem::Remove(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  HOLDFAST_RETURN_IF_ERROR(BeginWrite(path));
  if (files_.count(path) > 0) {
    Make({path, nullptr});
    return absl::OkStatus();
  }
  if (folders_.count(path) == 0) return NotThere(path);
  const auto inside = files_.lower_bound(absl::StrCat(path, "/"));
  if (inside != files_.end() &&
      absl::StartsWith(inside->first, absl::StrCat(path, "/"))) {
    return absl::AlreadyExistsError(absl::StrCat(path, ": is not empty"));
  }
  folders_.erase(path);
  Make({path, nullptr});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FaultyFileSystem::List(
    const std::string& folder) {
  absl::MutexLock lock(&mutex_);
  HOLDFAST_RETURN_IF_ERROR(BeginRead(folder));
  if (folders_.count(folder) == 0) return NotThere(folder);
  std::set<std::string> names;
  const auto take = [&](const std::string& path) {
    if (path != folder && FolderOf(path) == folder) {
      names.insert(path.substr(path.rfind('/') + 1));
    }
  };
  for (const auto& [path, inode] : files_) take(path);
  for (const std::string& path : folders_) take(path);
  return std::vector<std::string>(names.begin(), names.end());
}

absl::Status FaultyFileSystem::MakeFolder(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  if (folders_.count(path) > 0) return BeginRead(path);
  HOLDFAST_RETURN_IF_ERROR(BeginWrite(path));
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    folders_.insert(path.substr(0, slash));
  }
  folders_.insert(path);
  SyncEntries(FolderOf(path));
  return absl::OkStatus();
}

absl::Status FaultyFileSystem::SyncFolder(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  HOLDFAST_RETURN_IF_ERROR(BeginWrite(path));
  if (folders_.count(path) == 0) return NotThere(path);
  if (sync_fails_) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot sync"));
  }
  SyncEntries(path);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileLock>> FaultyFileSystem::Lock(
    const std::string& path, absl::string_view owner) {
  absl::MutexLock lock(&mutex_);
  absl::Status status = BeginRead(path);
  if (status.ok() && read_only_) {
    status = absl::PermissionDeniedError(absl::StrCat(path, ": read-only"));
  }
  if (!status.ok()) return status;
  if (folders_.count(FolderOf(path)) == 0) return NotThere(FolderOf(path));
  const auto [held, taken] = locks_.try_emplace(path, owner);
  if (!taken) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, ": held by ", held->second));
  }
  return std::make_unique<Lease>(this, path, life_);
}

void FaultyFileSystem::Apply(const Change& change, Inodes* files) {
  if (change.inode == nullptr) {
    files->erase(change.path);
    // If it was a folder, remove its entries too: their own changes need not be
    // synced.
    const auto begin = files->lower_bound(absl::StrCat(change.path, "/"));
    auto end = begin;
    while (end != files->end() &&
           absl::StartsWith(end->first, absl::StrCat(change.path, "/"))) {
      ++end;
    }
    files->erase(begin, end);
  } else {
    (*files)[change.path] = change.inode;
  }
  if (!change.renamed_from.empty()) files->erase(change.renamed_from);
}

void FaultyFileSystem::SyncEntries(const std::string& path) {
  const auto done = std::stable_partition(
      changes_.begin(), changes_.end(),
      [&](const Change& change) { return FolderOf(change.path) != path; });
  for (auto change = done; change != changes_.end(); ++change) {
    Apply(*change, &durable_);
  }
  changes_.erase(done, changes_.end());
}

absl::Status FaultyFileSystem::BeginRead(const std::string& path) const {
  if (!stopped_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": the machine stopped"));
}

absl::Status FaultyFileSystem::BeginWrite(const std::string& path) {
  ++writes_;
  if (stop_at_ == writes_) stopped_ = true;
  absl::Status status = BeginRead(path);
  if (status.ok() && read_only_) {
    status = absl::PermissionDeniedError(absl::StrCat(path, ": read-only"));
  }
  const auto failing = failing_.find(writes_);
  if (status.ok() && failing != failing_.end()) status = failing->second;
  return status;
}

void FaultyFileSystem::Make(Change change) {
  Apply(change, &files_);
  changes_.push_back(std::move(change));
}

}  // namespace holdfast
