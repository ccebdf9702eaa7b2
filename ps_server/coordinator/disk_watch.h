#ifndef HOLDFAST_PS_SERVER_COORDINATOR_DISK_WATCH_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_DISK_WATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// How far the shards have come with their shares of one checkpoint, which they
// write or restore, and since when the slowest of them stands still.
//
// Only more bytes than a shard ever told of count as progress: one that begins
// again and again does not get anywhere.
//
// Thread-compatible.
class DiskWatch {
 public:
  // All shards begin, from nothing.
  void Begin(uint32_t num_ps, absl::Time now);
  void End() { shards_.clear(); }
  bool active() const { return !shards_.empty(); }

  void OnProgress(uint32_t ps, const proto::DiskProgress& progress,
                  absl::Time now);
  void OnDone(uint32_t ps, absl::Time now);

  // Of the shards that are not done, the one that has stood still for longest;
  // when all are done, since the last of them was.
  absl::Time standing_since() const;

  bool all_done() const;

  // As "3 of 10 GiB"; empty when the shard has told of nothing yet.
  std::string Describe(uint32_t ps) const;
  // By ps. Nothing when it is not active.
  void AddTo(proto::GetStatusResponse* status) const;

 private:
  struct Shard {
    bool done = false;
    proto::DiskProgress progress;
    uint64_t most_bytes = 0;
    absl::Time moved_at;
  };
  // By ps.
  std::vector<Shard> shards_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_DISK_WATCH_H_
