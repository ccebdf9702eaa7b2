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
  // Of each ps: the values that a worker computes on, and those after them.
  static constexpr int kMaxKept = 2;
  // [H5] How long a welcome may take.
  static constexpr absl::Duration kWelcome = absl::Seconds(1);

  // `ps_names`: by ps, for the log. `directory`: links are made only to ps
  // whose sockets are there, whatever they take it for; empty: wherever.
  // `host_memory`: as of Link::Greet.
  explicit Neighbors(std::vector<std::string> ps_names,
                     std::string directory = "",
                     HostMemory* host_memory = nullptr);

  // Makes a link of what the ps has answered to Shard.Link, in place of that
  // before, or says in the log why there is none. Waits for the ps' welcome for
  // at most `timeout`; one that comes later, within kWelcome, makes the link
  // too.
  void Join(uint32_t ps, const absl::StatusOr<proto::LinkResponse>& offer,
            absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // By ps, whether there is a link.
  std::vector<bool> linked() ABSL_LOCKS_EXCLUDED(mutex_);

  // `bytes` of the regions (at least 1), which can be lent to each neighbor.
  // Errors: those of SharedArena.
  absl::StatusOr<std::shared_ptr<char>> Take(size_t bytes) {
    return regions_.Take(bytes);
  }

  // Leave to keep what one pull reads of a ps where it lies, for as long as the
  // result or a copy of it is there. Null: kMaxKept pulls' values are kept, so
  // those of this one have to be copied, and given back at once: a ps lends but
  // so many versions, and more pulls may be under way.
  std::shared_ptr<const void> Keep(uint32_t ps);

  // For calls that begin. Null: there never was a link; otherwise it may not be
  // usable any more.
  std::shared_ptr<Link> link(uint32_t ps) ABSL_LOCKS_EXCLUDED(mutex_);

  // To be called, without locks, each time that a call needs a link to a ps
  // that has none any more, and none is being made. Null: nothing is. When this
  // has returned, the former is not running. It must not call anything of this
  // class.
  void set_on_lost(std::function<void(uint32_t ps)> on_lost)
      ABSL_LOCKS_EXCLUDED(lost_mutex_);
  void Lose(uint32_t ps) ABSL_LOCKS_EXCLUDED(mutex_, lost_mutex_);

 private:
  struct Ps {
    std::shared_ptr<Link> link;
    // One whose welcome has not come, and until when it may.
    std::shared_ptr<Link> arriving;
    absl::Time arriving_until;
    // Why there is no link, as the log said last.
    std::string refusal;
  };

  // [H3] Connects to where the ps listens, as seen from here, and greets it.
  // Errors: why there is no link.
  absl::StatusOr<std::shared_ptr<Link>> Greet(
      const absl::StatusOr<proto::LinkResponse>& offer);
  // Takes the link that is being made, if it is there, or will not be.
  void LookForArrival(uint32_t ps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `made`, or why there is none.
  void Settle(uint32_t ps, const absl::StatusOr<std::shared_ptr<Link>>& made)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets go of gradients that neighbors have given back.
  void Sweep() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<std::string> ps_names_;
  const std::string directory_;
  HostMemory* const host_memory_;
  SharedArena regions_;
  // By ps, how many pulls' values are kept. They may be kept when this object
  // has gone.
  std::vector<std::shared_ptr<std::atomic<int>>> kept_;

  absl::Mutex mutex_;
  std::vector<Ps> ps_ ABSL_GUARDED_BY(mutex_);
  // Links that were replaced while the ps held gradients.
  std::vector<std::shared_ptr<Link>> former_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex lost_mutex_;
  std::function<void(uint32_t)> on_lost_ ABSL_GUARDED_BY(lost_mutex_);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_NEIGHBORS_H_
