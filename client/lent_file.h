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

// A file of a ps's that values are read from, and what of it is pinned, so that
// a device can copy them from where they lie.
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

  // Pins the pages of [offset, offset + size), which lie in the file, as far as
  // they are not pinned yet. Takes some milliseconds the first time; a ps uses
  // the same few places for its versions again and again. No more than that is
  // pinned: pages that hold nothing yet would have to be made.
  void Pin(size_t offset, size_t size) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::unique_ptr<PeerFile> file_;
  HostMemory* const memory_;

  absl::Mutex mutex_;
  // It could not be pinned once, and is not tried again.
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  // What is pinned: by the first byte, the one behind the last. Ranges do not
  // overlap, but may touch.
  std::map<size_t, size_t> pinned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_LENT_FILE_H_
