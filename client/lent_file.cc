// SPDX-License-Identifier: Apache-2.0
#include "client/lent_file.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace holdfast::client {

LentFile::LentFile(std::unique_ptr<PeerFile> file, HostMemory* memory)
    : file_(std::move(file)), memory_(memory) {}

LentFile::~LentFile() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [begin, end] : pinned_) {
    memory_->Unregister(file_->data() + begin);
  }
}

void LentFile::Pin(size_t offset, size_t size) {
  if (memory_ == nullptr || size == 0) return;
  static const size_t page = sysconf(_SC_PAGESIZE);
  // A file has whole pages.
  const size_t end = std::min((offset + size + page - 1) / page * page,
                              file_->size() / page * page);
  size_t begin = offset / page * page;
  absl::MutexLock lock(&mutex_);
  while (!refused_ && begin < end) {
    const auto next = pinned_.upper_bound(begin);
    if (next != pinned_.begin() && std::prev(next)->second > begin) {
      begin = std::prev(next)->second;
      continue;
    }
    const size_t gap_end =
        next == pinned_.end() ? end : std::min(end, next->first);
    refused_ = !memory_->Register(file_->data() + begin, gap_end - begin);
    if (!refused_) pinned_[begin] = gap_end;
  }
}

}  // namespace holdfast::client
