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

// Who holds which ticket, and who may have the next one
// (docs/protocol/asynchronous.md, A1 and A4): the pool, the clock of each
// worker, and the requests that wait.
//
// A worker's clock is the number of tickets that it has spent, counted from
// where it joined; a staleness bound holds requests back by it.
//
// Thread-compatible. Requests cost the same however many workers wait.
class TicketBook {
 public:
  using Parked = ParkedCalls<PushId, proto::TakeTicketResponse>;

  explicit TicketBook(const JobDeclaration* declared) : declared_(declared) {}

  // A generation is over: there are no tickets, and all clocks stand at 0.
  // Requests stay parked.
  void Reset();
  // The job goes on from `position`. Its examples are by ticket.
  void Begin(const proto::Position& position);
  // There are tickets.
  bool open() const { return pool_.has_value(); }
  // The job ends with the tickets that were handed out.
  void Seal() { pool_->Seal(); }
  const TicketPool& pool() const { return *pool_; }

  // A worker begins a life, at the clock of the slowest that is live.
  void OnJoined(const WorkerLife& life, uint32_t replica);
  // Only those that are live hold others back.
  void SetLive(const TaskId& worker, bool live);

  // ---- Requests. There must be tickets, unless they are parked. ----

  // That `push` may hold or wait for a ticket, and what is told as spent had
  // one. `ended`: nobody gets one any more.
  // Errors: those of TakeTicket.
  absl::Status CheckMayTake(const proto::TakeTicketRequest& request,
                            const PushId& push, const Verdicts& verdicts,
                            bool ended) const;
  // Gives a ticket, if there is any, to the first request that may begin, and
  // takes that out.
  std::optional<Parked::Call> GrantNext(float loss_scale,
                                        absl::Time now = absl::InfinitePast());
  Parked* parked() { return &parked_; }
  // Whether the life asks for a ticket that it does not get yet.
  bool IsWaiting(const WorkerLife& life) const {
    return !parked_.Between(FirstOf(life), LastOf(life)).empty();
  }
  // All of one life.
  std::vector<Parked::Call> TakeOf(const WorkerLife& life) {
    return parked_.TakeBetween(FirstOf(life), LastOf(life));
  }

  // ---- Tickets ----

  std::optional<TicketPool::Out> Find(const PushId& push) const {
    return open() ? pool_->Find(push) : std::nullopt;
  }
  // A copy. Empty where there are no tickets.
  std::map<PushSequence, TicketPool::Out> OutWith(const WorkerLife& life) const;
  // [A4] Its worker tells that the push was applied: its clock moves. Nothing
  // when it was told before.
  std::optional<TicketPool::Out> Book(const PushId& push);
  // The push counts, or does not.
  void Spend(const PushId& push) {
    if (open()) pool_->Spend(push);
  }
  // True when it had a ticket.
  bool Return(const PushId& push) { return open() && pool_->Return(push); }

  // A worker knows what became of its pushes up to `sequence`: as far as
  // nothing of it is out, which is not decided, whatever the worker says.
  PushSequence LimitAck(const WorkerLife& from, uint64_t sequence) const;
  // By worker life, the last push that had a ticket or, where some are out, the
  // one before the first that is out and not in `applied`.
  std::map<WorkerLife, PushSequence> Through(
      const std::set<PushId>& applied) const;

 private:
  struct Worker {
    Incarnation incarnation;
    uint32_t replica = 0;
    uint64_t clock = 0;
    bool live = true;
    // The last sequence that it had a ticket for.
    PushSequence last_ticket;
  };

  // Tickets that one worker may hold.
  size_t MaxTickets(const Worker& worker) const;
  // Whether the push may begin: its worker holds no ticket that is further
  // behind than it may be [P3], and the staleness bound lets it.
  bool MayBegin(const PushId& push) const;
  // The first parked request that may begin, or null.
  const Parked::Call* NextInBound();

  const JobDeclaration* const declared_;
  std::optional<TicketPool> pool_;
  IndexedMap<TaskId, Worker> workers_;
  LiveWorkers live_;
  Parked parked_;
  // Parked requests with numbers up to this may not begin while the slowest
  // worker's clock is at most out_of_bound_at_.
  uint64_t out_of_bound_through_ = 0;
  uint64_t out_of_bound_at_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_TICKET_BOOK_H_
