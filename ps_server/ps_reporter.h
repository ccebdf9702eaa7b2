// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PS_REPORTER_H_
#define HOLDFAST_PS_SERVER_PS_REPORTER_H_

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/process/process_figures.h"
#include "proto/coordinator.pb.h"
#include "ps_server/service/neighbor_figures.h"
#include "ps_server/shard/shard_figures.h"

namespace holdfast {

// Makes a ps's reports about itself. The shard sets its figures at each tick,
// so that callers never wait for a busy shard.
//
// Thread-safe.
class PsReporter {
 public:
  void SetShard(const ShardFigures& figures) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    shard_ = figures;
  }
  ShardFigures shard() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return shard_;
  }

  // Makes the report for the coordinator. `neighbors` is nullopt if the ps
  // shares no memory.
  proto::PsReport Report(const std::optional<NeighborFigures>& neighbors) const
      ABSL_LOCKS_EXCLUDED(mutex_) {
    proto::PsReport report = ToReport(shard());
    report.mutable_memory()->set_resident(ReadProcessFigures().resident_bytes);
    if (!neighbors.has_value()) return report;
    proto::SharedMemoryUse& shared = *report.mutable_shared_memory();
    shared.set_links(neighbors->links);
    shared.set_lent_bytes(neighbors->lent_now);
    shared.set_received_bytes(neighbors->borrowed);
    shared.set_sent_bytes(neighbors->lent);
    return report;
  }

 private:
  mutable absl::Mutex mutex_;
  ShardFigures shard_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PS_REPORTER_H_
