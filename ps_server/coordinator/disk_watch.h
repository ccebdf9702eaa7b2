// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_DISK_WATCH_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_DISK_WATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// Tracks how far the shards have written or restored their shares of one
// checkpoint, and since when the one that has stalled for longest has made no
// progress.
//
// A shard makes progress only when it exceeds the most bytes that it has ever
// reported: one that starts over again and again makes none.
//
// Thread-compatible.
class DiskWatch {
 public:
  // Begins to track all shards, from 0 bytes.
  void Begin(uint32_t num_ps, absl::Time now);
  void End() { shards_.clear(); }
  bool active() const { return !shards_.empty(); }

  void OnProgress(uint32_t ps, const proto::DiskProgress& progress,
                  absl::Time now);
  void OnDone(uint32_t ps, absl::Time now);

  // If some shards are not done: since when the one of them that has stalled
  // for longest has made no progress. If all are done: when the last one
  // finished.
  absl::Time standing_since() const;

  bool all_done() const;

  // The shard's progress, like "3 of 10 GiB"; empty if it has not reported any
  // yet.
  std::string Describe(uint32_t ps) const;
  // Fills in the progress of each ps. Does nothing if no checkpoint is tracked.
  void AddTo(proto::GetStatusResponse* status) const;

 private:
  struct Shard {
    bool done = false;
    proto::DiskProgress progress;
    uint64_t most_bytes = 0;
    absl::Time moved_at;
  };
  // Indexed by ps.
  std::vector<Shard> shards_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_DISK_WATCH_H_
