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

// A ps's file that values are read from, and the ranges of it that are pinned
// so that a device can copy values in place.
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
  // unless they are pinned already. Takes some milliseconds the first time; a
  // ps keeps using the same few places for its versions. Nothing else is
  // pinned, because pages that have never been used would have to be allocated.
  void Pin(size_t offset, size_t size) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::unique_ptr<PeerFile> file_;
  HostMemory* const memory_;

  absl::Mutex mutex_;
  // Pinning has failed, and is not tried again.
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  // The pinned ranges: offset of the first byte to the end offset. Ranges do
  // not overlap, but may touch.
  std::map<size_t, size_t> pinned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_LENT_FILE_H_
