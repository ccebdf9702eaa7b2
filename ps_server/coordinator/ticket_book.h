// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_TICKET_BOOK_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_TICKET_BOOK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "common/job/ids.h"
#include "common/job/task_id.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/job_declaration.h"
#include "ps_server/coordinator/live_workers.h"
#include "ps_server/coordinator/ticket_pool.h"
#include "ps_server/coordinator/verdicts.h"
#include "ps_server/protocol/indexed_map.h"
#include "ps_server/protocol/parked_calls.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// Tracks which push holds which ticket, and decides which push gets the next
// one (docs/protocol/asynchronous.md, A1 and A4). Owns the pool of tickets, the
// clock of each worker, and the waiting requests.
//
// A worker's clock is the number of tickets that it has spent, plus the clock
// of the slowest worker when it joined; a staleness bound limits how far clocks
// may differ.
//
// Thread-compatible. The cost of a request does not depend on how many workers
// wait.
class TicketBook {
 public:
  using Parked = ParkedCalls<PushId, proto::TakeTicketResponse>;

  explicit TicketBook(const JobDeclaration* declared) : declared_(declared) {}

  // Called when a generation is over. Drops all tickets, and sets all clocks to
  // 0. Requests stay parked.
  void Reset();
  // Called when the job, whose examples are by ticket, resumes from `position`.
  // Makes the tickets that are left there.
  void Begin(const proto::Position& position);
  // Whether there are tickets.
  bool open() const { return pool_.has_value(); }
  // Ends the job with the tickets that have been handed out: no further ones
  // are.
  void Seal() { pool_->Seal(); }
  const TicketPool& pool() const { return *pool_; }

  // Called when a worker begins a life. Sets its clock to that of the slowest
  // live worker.
  void OnJoined(const WorkerLife& life, uint32_t replica);
  // Sets whether `worker` is live. Only live workers hold others back by the
  // staleness bound.
  void SetLive(const TaskId& worker, bool live);

  // ---- Requests. There must be tickets, unless they are parked. ----

  // Checks that `push` may hold or wait for a ticket, and that the pushes that
  // the request reports as spent had tickets. `ended` says whether no more
  // tickets are handed out.
  // Errors: those of TakeTicket.
  absl::Status CheckMayTake(const proto::TakeTicketRequest& request,
                            const PushId& push, const Verdicts& verdicts,
                            bool ended) const;
  // Gives a ticket, if any is left, to the first parked request whose push may
  // begin, and returns that request, taken out of parked().
  std::optional<Parked::Call> GrantNext(float loss_scale,
                                        absl::Time now = absl::InfinitePast());
  Parked* parked() { return &parked_; }
  // Whether the life has a parked request for a ticket.
  bool IsWaiting(const WorkerLife& life) const {
    return !parked_.Between(FirstOf(life), LastOf(life)).empty();
  }
  // Takes all parked calls of `life` out of parked().
  std::vector<Parked::Call> TakeOf(const WorkerLife& life) {
    return parked_.TakeBetween(FirstOf(life), LastOf(life));
  }

  // ---- Tickets ----

  std::optional<TicketPool::Out> Find(const PushId& push) const {
    return open() ? pool_->Find(push) : std::nullopt;
  }
  // A copy of the tickets that are out with `life`; empty if there are none.
  std::map<PushSequence, TicketPool::Out> OutWith(const WorkerLife& life) const;
  // [A4] Called when a worker reports that the push was applied. Spends its
  // ticket, and advances the worker's clock. Returns the ticket; absent if the
  // push was reported before.
  std::optional<TicketPool::Out> Book(const PushId& push);
  // Spends the ticket of a push that has been decided, if it has one.
  void Spend(const PushId& push) {
    if (open()) pool_->Spend(push);
  }
  // Returns the ticket of `push` to the pool. Returns false if the push had
  // none.
  bool Return(const PushId& push) { return open() && pool_->Return(push); }

  // Returns `sequence`, up to which a worker says that it knows its verdicts,
  // but at most the sequence before its first ticket that is out. A push whose
  // ticket is out is undecided, whatever the worker says.
  PushSequence LimitAck(const WorkerLife& from, uint64_t sequence) const;
  // Returns, for the latest life of each worker, up to which push all pushes
  // are decided: the push before the first one that holds a ticket and is not
  // in `applied`. If there is none: the last push that had a ticket.
  std::map<WorkerLife, PushSequence> Through(
      const std::set<PushId>& applied) const;

 private:
  struct Worker {
    Incarnation incarnation;
    uint32_t replica = 0;
    uint64_t clock = 0;
    bool live = true;
    // The highest sequence for which the worker has got a ticket.
    PushSequence last_ticket;
  };

  // The maximum number of tickets that the worker may hold.
  size_t MaxTickets(const Worker& worker) const;
  // Whether the push may get a ticket: the staleness bound permits the push,
  // and its sequence is not too far ahead of the oldest push for which its
  // worker still holds a ticket [P3].
  bool MayBegin(const PushId& push) const;
  // Returns the first parked request whose push may begin, or null.
  const Parked::Call* NextInBound();

  const JobDeclaration* const declared_;
  std::optional<TicketPool> pool_;
  IndexedMap<TaskId, Worker> workers_;
  LiveWorkers live_;
  Parked parked_;
  // Parked requests numbered up to out_of_bound_through_ may not begin while
  // the slowest worker's clock is at most out_of_bound_at_.
  uint64_t out_of_bound_through_ = 0;
  uint64_t out_of_bound_at_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_TICKET_BOOK_H_
