// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TABLE_SHARED_ROWS_H_
#define HOLDFAST_PS_SERVER_TABLE_SHARED_ROWS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/job/ids.h"
#include "common/tensor/row_bucket.h"
#include "proto/table.pb.h"
#include "ps_server/table/bucket_store.h"

namespace holdfast {

// A mutex between one thread that changes a table and others that copy from it.
// The changing thread has priority: it waits for at most one copy to end,
// however many threads want to copy.
class CopyMutex {
 public:
  // Locks for the thread that changes the table.
  class Changing {
   public:
    explicit Changing(CopyMutex* mutex) : mutex_(*mutex) {
      if (mutex_.mutex_.TryLock()) return;
      mutex_.change_waits_ = true;
      mutex_.mutex_.Lock();
      mutex_.change_waits_ = false;
    }
    ~Changing() { mutex_.mutex_.Unlock(); }
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;

   private:
    CopyMutex& mutex_;
  };

  // Locks for a thread that copies.
  class Copying {
   public:
    explicit Copying(CopyMutex* mutex) : mutex_(*mutex) {
      mutex_.mutex_.LockWhen(absl::Condition(
          +[](std::atomic<bool>* change_waits) { return !*change_waits; },
          &mutex_.change_waits_));
    }
    ~Copying() { mutex_.mutex_.Unlock(); }
    Copying(const Copying&) = delete;
    Copying& operator=(const Copying&) = delete;

   private:
    CopyMutex& mutex_;
  };

 private:
  absl::Mutex mutex_;
  // Whether the changing thread waits for the mutex. Set without holding the
  // mutex, and reset while holding it.
  std::atomic<bool> change_waits_{false};
};

// The rows of a table, which the table shares with its snapshots so that these
// may outlive it.
//
// The thread that changes the table, and its helpers, hold stripes[i] while
// they change rows or candidates of stripe i, and `holds` while they hold or
// release a version. The changing thread reads without locks. Other threads
// read only held versions, bucket by bucket, and hold both locks, `holds`
// first.
struct SharedRows {
  SharedRows(const proto::EmbeddingTable& declared, size_t floats_per_row,
             BucketRange buckets)
      : declared(declared),
        floats_per_row(floats_per_row),
        rows(floats_per_row, buckets),
        candidates(0, buckets) {}

  const proto::EmbeddingTable declared;
  // Values and slots.
  const size_t floats_per_row;
  BucketStore rows;
  BucketStore candidates;

  CopyMutex holds;
  std::array<CopyMutex, kStripes> stripes;

  // The versions that snapshots no longer need: each occurs once for each of
  // these snapshots. The table releases them at its next step.
  absl::Mutex unneeded_mutex;
  std::vector<GlobalStep> unneeded ABSL_GUARDED_BY(unneeded_mutex);
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_SHARED_ROWS_H_
