// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_NEIGHBORS_H_
#define HOLDFAST_CLIENT_NEIGHBORS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/link.h"
#include "common/process/host_memory.h"
#include "common/shared_memory/arena.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// The ps tasks of this host, with which tensors pass through shared memory
// (docs/protocol/same_host.md): the links to them, and the regions for
// gradients.
//
// Thread-safe.
class Neighbors {
 public:
  // The maximum number of pulls from one ps whose values are kept in place at a
  // time: the values that a worker computes on, and the next ones.
  static constexpr int kMaxKept = 2;
  // [H5] The time limit for a welcome.
  static constexpr absl::Duration kWelcome = absl::Seconds(1);

  // `ps_names`: indexed by ps, for the log. `directory`: links are made only to
  // ps whose sockets are in this directory, under whatever path the ps know it;
  // empty: in any directory. `host_memory`: see Link::Greet.
  explicit Neighbors(std::vector<std::string> ps_names,
                     std::string directory = "",
                     HostMemory* host_memory = nullptr);

  // Makes a link from the ps's answer to Shard.Link, replacing the previous
  // link, or logs why there is none. Waits for the ps's welcome for at most
  // `timeout`; a welcome that arrives later, within kWelcome, also makes the
  // link.
  void Join(uint32_t ps, const absl::StatusOr<proto::LinkResponse>& offer,
            absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether there is a link, indexed by ps.
  std::vector<bool> linked() ABSL_LOCKS_EXCLUDED(mutex_);

  // Allocates `bytes` (at least 1) from the regions, which can be lent to every
  // neighbor.
  // Errors: those of SharedArena.
  absl::StatusOr<std::shared_ptr<char>> Take(size_t bytes) {
    return regions_.Take(bytes);
  }
  // The same for sizes that differ from call to call
  // (SharedArena::TakeAtLeast).
  absl::StatusOr<std::shared_ptr<char>> TakeAtLeast(size_t bytes) {
    return regions_.TakeAtLeast(bytes);
  }

  // Returns permission to keep in place the values that one pull reads from a
  // ps, for as long as the result or a copy of it exists. Returns null if the
  // values of kMaxKept pulls are kept already: then this pull's values have to
  // be copied, and their loans returned at once. A ps lends only a limited
  // number of versions, and more pulls may be in progress.
  std::shared_ptr<const void> Keep(uint32_t ps);

  // The link for new calls, which may no longer be usable; null if there has
  // never been one.
  std::shared_ptr<Link> link(uint32_t ps) ABSL_LOCKS_EXCLUDED(mutex_);

  // Sets a function that is called, without locks, each time a call needs a
  // link to a ps that has lost its link, and none is being made. Null: nothing
  // is called. Once this has returned, the previous function is not running.
  // The function must not call this class.
  void set_on_lost(std::function<void(uint32_t ps)> on_lost)
      ABSL_LOCKS_EXCLUDED(lost_mutex_);
  void Lose(uint32_t ps) ABSL_LOCKS_EXCLUDED(mutex_, lost_mutex_);

 private:
  struct Ps {
    std::shared_ptr<Link> link;
    // A link whose welcome has not arrived, and the time by which the welcome
    // must arrive.
    std::shared_ptr<Link> arriving;
    absl::Time arriving_until;
    // Why there is no link, as last logged.
    std::string refusal;
  };

  // [H3] Connects to the ps's socket, by the path seen from here, and greets
  // it.
  // Errors: why there is no link.
  absl::StatusOr<std::shared_ptr<Link>> Greet(
      const absl::StatusOr<proto::LinkResponse>& offer);
  // Settles the link that is being made, if it has become ready or has failed.
  void LookForArrival(uint32_t ps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes over the link `made`, or notes why there is none.
  void Settle(uint32_t ps, const absl::StatusOr<std::shared_ptr<Link>>& made)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Releases gradients that neighbors have returned.
  void Sweep() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<std::string> ps_names_;
  const std::string directory_;
  HostMemory* const host_memory_;
  SharedArena regions_;
  // Indexed by ps: the number of pulls whose values are kept. Values may
  // outlive this object.
  std::vector<std::shared_ptr<std::atomic<int>>> kept_;

  absl::Mutex mutex_;
  std::vector<Ps> ps_ ABSL_GUARDED_BY(mutex_);
  // Replaced links whose ps still held gradients.
  std::vector<std::shared_ptr<Link>> former_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex lost_mutex_;
  std::function<void(uint32_t)> on_lost_ ABSL_GUARDED_BY(lost_mutex_);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_NEIGHBORS_H_
