// SPDX-License-Identifier: Apache-2.0

// Shared by the tests of the disk's threads: a wait for replies, and a file
// system that can be made to wait.
#ifndef HOLDFAST_PS_SERVER_DISK_TESTING_DISK_TESTING_H_
#define HOLDFAST_PS_SERVER_DISK_TESTING_DISK_TESTING_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/checkpoint/file_system.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// Calls `ask` with a Reply, and returns the answer that it is given, once it
// has come.
template <typename Response>
absl::StatusOr<Response> Await(
    const std::function<void(Reply<Response>)>& ask) {
  absl::Notification came;
  absl::StatusOr<Response> answer;
  ask([&](absl::StatusOr<Response> response) {
    answer = std::move(response);
    came.Notify();
  });
  came.WaitForNotification();
  return answer;
}

// Wraps a file system. Opening and creating files whose path contains a given
// text waits for the test.
class GatedFileSystem final : public FileSystem {
 public:
  explicit GatedFileSystem(FileSystem* base) : base_(base) {}

  // From now on, opening or creating a file whose path contains `text` waits
  // until Open().
  void Close(const std::string& text) {
    absl::MutexLock lock(&mutex_);
    text_ = text;
    waiting_ = false;
  }
  // Waits until a thread waits to open or create a file.
  void AwaitSomebody() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&waiting_));
  }
  void Open() {
    absl::MutexLock lock(&mutex_);
    text_.clear();
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    Pass(path);
    return base_->Create(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    Pass(path);
    return base_->Open(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return base_->Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return base_->Link(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    return base_->Remove(path);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& folder) override {
    return base_->List(folder);
  }
  absl::Status MakeFolder(const std::string& path) override {
    return base_->MakeFolder(path);
  }
  absl::Status SyncFolder(const std::string& path) override {
    return base_->SyncFolder(path);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path, absl::string_view owner) override {
    return base_->Lock(path, owner);
  }

 private:
  void Pass(const std::string& path) {
    const auto may_pass = [&] {
      return text_.empty() || !absl::StrContains(path, text_);
    };
    absl::MutexLock lock(&mutex_);
    if (!may_pass()) waiting_ = true;
    mutex_.Await(absl::Condition(&may_pass));
  }

  FileSystem* const base_;
  absl::Mutex mutex_;
  // Files whose path contains this text wait. If it is empty, no file waits.
  std::string text_;
  bool waiting_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_TESTING_DISK_TESTING_H_
