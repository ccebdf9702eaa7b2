// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_LENT_FILE_H_
#define HOLDFAST_CLIENT_LENT_FILE_H_

#include <cstddef>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/process/host_memory.h"
#include "common/shared_memory/sealed_file.h"

namespace holdfast::client {

// A file in shared memory from which a ps lends values, and the ranges of the
// file that are pinned so that a device can copy from them.
//
// Thread-safe.
class LentFile {
 public:
  // `memory` must outlive the object. Null: nothing is pinned.
  LentFile(std::unique_ptr<PeerFile> file, HostMemory* memory);
  ~LentFile();

  LentFile(const LentFile&) = delete;
  LentFile& operator=(const LentFile&) = delete;

  const char* data() const { return file_->data(); }
  size_t size() const { return file_->size(); }

  // Pins the pages of [offset, offset + size), which must be within the file,
  // unless they are pinned already. Pinning a range takes some milliseconds,
  // but only the first time, and a ps stores all of its versions in the same
  // few ranges. The rest of the file is not pinned, because this would allocate
  // pages that have never been used.
  void Pin(size_t offset, size_t size) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::unique_ptr<PeerFile> file_;
  HostMemory* const memory_;

  absl::Mutex mutex_;
  // Whether pinning has failed once. It is not tried again.
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  // The pinned ranges: the offset of each range's first byte, mapped to the
  // offset after its last byte. Ranges do not overlap, but may touch.
  std::map<size_t, size_t> pinned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_LENT_FILE_H_
