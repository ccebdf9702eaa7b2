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

// Which push holds which ticket, and which may have the next one
// (docs/protocol/asynchronous.md, A1 and A4): the pool, the clock of each
// worker, and the waiting requests.
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

  // A generation is over: there are no tickets, and all clocks are 0. Requests
  // stay parked.
  void Reset();
  // The job, whose examples are by ticket, resumes from `position`.
  void Begin(const proto::Position& position);
  // Whether there are tickets.
  bool open() const { return pool_.has_value(); }
  // No further tickets are handed out: the job ends with those that have been.
  void Seal() { pool_->Seal(); }
  const TicketPool& pool() const { return *pool_; }

  // A worker begins a life, at the clock of the slowest live worker.
  void OnJoined(const WorkerLife& life, uint32_t replica);
  // Only live workers hold others back.
  void SetLive(const TaskId& worker, bool live);

  // ---- Requests. There must be tickets, unless they are parked. ----

  // Checks that `push` may hold or wait for a ticket, and that the pushes
  // reported as spent had one. `ended`: no more tickets are handed out.
  // Errors: those of TakeTicket.
  absl::Status CheckMayTake(const proto::TakeTicketRequest& request,
                            const PushId& push, const Verdicts& verdicts,
                            bool ended) const;
  // Gives a ticket, if any is left, to the first request that may begin, and
  // takes that request out.
  std::optional<Parked::Call> GrantNext(float loss_scale,
                                        absl::Time now = absl::InfinitePast());
  Parked* parked() { return &parked_; }
  // Whether the life has a parked request for a ticket.
  bool IsWaiting(const WorkerLife& life) const {
    return !parked_.Between(FirstOf(life), LastOf(life)).empty();
  }
  // Takes out all parked calls of one life.
  std::vector<Parked::Call> TakeOf(const WorkerLife& life) {
    return parked_.TakeBetween(FirstOf(life), LastOf(life));
  }

  // ---- Tickets ----

  std::optional<TicketPool::Out> Find(const PushId& push) const {
    return open() ? pool_->Find(push) : std::nullopt;
  }
  // A copy of the tickets that are out with `life`; empty if there are none.
  std::map<PushSequence, TicketPool::Out> OutWith(const WorkerLife& life) const;
  // [A4] The worker reports that the push was applied, and so its clock
  // advances. Returns the ticket, or nothing if the push was reported before.
  std::optional<TicketPool::Out> Book(const PushId& push);
  // The push has been decided: its ticket is spent.
  void Spend(const PushId& push) {
    if (open()) pool_->Spend(push);
  }
  // Puts back the ticket of `push`. Returns false if it had none.
  bool Return(const PushId& push) { return open() && pool_->Return(push); }

  // Limits `sequence`, up to which a worker says that it knows its verdicts, to
  // below its first ticket that is out: such a push is undecided, whatever the
  // worker says.
  PushSequence LimitAck(const WorkerLife& from, uint64_t sequence) const;
  // For each worker life, the last push that had a ticket or, if some tickets
  // are out, the push before the first that is out and not in `applied`.
  std::map<WorkerLife, PushSequence> Through(
      const std::set<PushId>& applied) const;

 private:
  struct Worker {
    Incarnation incarnation;
    uint32_t replica = 0;
    uint64_t clock = 0;
    bool live = true;
    // The last sequence for which the worker had a ticket.
    PushSequence last_ticket;
  };

  // The number of tickets that the worker may hold.
  size_t MaxTickets(const Worker& worker) const;
  // Whether the push may begin: its worker holds no ticket that is too many
  // sequences behind [P3], and the staleness bound permits it.
  bool MayBegin(const PushId& push) const;
  // The first parked request that may begin, or null.
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
