// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_TICKET_POOL_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_TICKET_POOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/job/ids.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// The tickets of a job (docs/protocol/asynchronous.md): indices 0 to total - 1,
// each of which is left, out with a push, or spent. Returned tickets are handed
// out again first.
//
// Thread-compatible.
// Invariant: left() + num_out() + spent() is the total.
class TicketPool {
 public:
  explicit TicketPool(uint64_t total) : total_(total) {}
  // A pool as it was saved: indices below `next` are spent, except for those in
  // `returned`.
  TicketPool(uint64_t total, uint64_t next, std::set<uint64_t> returned)
      : total_(total),
        next_(next),
        returned_(std::move(returned)),
        spent_(next - returned_.size()) {}

  uint64_t left() const { return total_ - next_ + returned_.size(); }
  uint64_t spent() const { return spent_; }
  bool all_spent() const { return spent_ == total_; }
  // The lowest index that was never handed out, and the lower ones that are
  // left.
  uint64_t next() const { return next_; }
  const std::set<uint64_t>& returned() const { return returned_; }
  // A ticket that is out.
  struct Out {
    uint64_t index = 0;
    // The loss scale with which its gradient is computed; 0 if the job has
    // none.
    float loss_scale = 0;
    // When it was handed out.
    absl::Time granted = absl::InfinitePast();
  };
  // Keyed by push.
  std::map<PushId, Out> out() const;
  size_t num_out() const { return num_out_; }

  // The ticket that is out with `push`, if any.
  std::optional<Out> Find(const PushId& push) const;
  // The tickets that are out with pushes of one life, keyed by sequence.
  const std::map<PushSequence, Out>& OutWith(const WorkerLife& life) const;

  // Only returned tickets are handed out from now on: the total becomes next().
  void Seal() { total_ = next_; }

  // Hands out a ticket. There must be one left, and none out with `push`.
  uint64_t Take(const PushId& push, float loss_scale = 0,
                absl::Time now = absl::InfinitePast());
  // Spends or puts back the ticket of `push`. Returns nothing or false if no
  // ticket is out with it.
  std::optional<Out> Spend(const PushId& push);
  bool Return(const PushId& push);

 private:
  // Removes the ticket from `out_`.
  std::optional<Out> Remove(const PushId& push);

  uint64_t total_;
  // The lowest index that was never handed out.
  uint64_t next_ = 0;
  std::set<uint64_t> returned_;
  // Keyed by life; lives without tickets have no entry. Never iterated over in
  // an order that matters.
  absl::flat_hash_map<WorkerLife, std::map<PushSequence, Out>> out_;
  size_t num_out_ = 0;
  uint64_t spent_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_TICKET_POOL_H_
