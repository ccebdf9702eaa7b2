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

// The tickets of a job (docs/protocol/asynchronous.md): indices 0 to total - 1.
// Each ticket is left to hand out, out (held by a push), or spent. Returned
// tickets are handed out again first.
//
// Thread-compatible.
// Invariant: left() + num_out() + spent() is the total.
class TicketPool {
 public:
  explicit TicketPool(uint64_t total) : total_(total) {}
  // Restores a saved pool: the tickets below `next` are spent, except for those
  // in `returned`.
  TicketPool(uint64_t total, uint64_t next, std::set<uint64_t> returned)
      : total_(total),
        next_(next),
        returned_(std::move(returned)),
        spent_(next - returned_.size()) {}

  uint64_t left() const { return total_ - next_ + returned_.size(); }
  uint64_t spent() const { return spent_; }
  bool all_spent() const { return spent_ == total_; }
  // The lowest index that was never handed out. returned(): the indices below
  // it that are left.
  uint64_t next() const { return next_; }
  const std::set<uint64_t>& returned() const { return returned_; }
  // A ticket that a push holds.
  struct Out {
    uint64_t index = 0;
    // The loss scale with which its gradient is computed; 0 if the job has
    // none.
    float loss_scale = 0;
    // When it was handed out.
    absl::Time granted = absl::InfinitePast();
  };
  // The tickets that are out, keyed by the push that holds each.
  std::map<PushId, Out> out() const;
  size_t num_out() const { return num_out_; }

  // The ticket that `push` holds, if any.
  std::optional<Out> Find(const PushId& push) const;
  // The tickets that pushes of `life` hold, keyed by sequence.
  const std::map<PushSequence, Out>& OutWith(const WorkerLife& life) const;

  // Reduces the total to next(), so that only returned tickets are handed out
  // from now on.
  void Seal() { total_ = next_; }

  // Hands out a ticket to `push`, and returns its index. There must be a ticket
  // left, and `push` must not hold one. `now` is recorded as the time.
  uint64_t Take(const PushId& push, float loss_scale = 0,
                absl::Time now = absl::InfinitePast());
  // Spend: spends the ticket of `push`, and returns it; absent if the push
  // holds none. Return: puts the ticket of `push` back, to be handed out again;
  // returns false if the push holds none.
  std::optional<Out> Spend(const PushId& push);
  bool Return(const PushId& push);

 private:
  // Removes the ticket from `out_`.
  std::optional<Out> Remove(const PushId& push);

  uint64_t total_;
  // The lowest index that was never handed out.
  uint64_t next_ = 0;
  std::set<uint64_t> returned_;
  // The tickets that are out, keyed by life. Lives without tickets have no
  // entry. No result depends on the order of iteration.
  absl::flat_hash_map<WorkerLife, std::map<PushSequence, Out>> out_;
  size_t num_out_ = 0;
  uint64_t spent_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_TICKET_POOL_H_
