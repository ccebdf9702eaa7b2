#ifndef HOLDFAST_CLIENT_TICKETS_H_
#define HOLDFAST_CLIENT_TICKETS_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/call_group.h"
#include "client/cluster.h"
#include "client/context.h"
#include "client/sequences.h"
#include "common/job/ids.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast::client {

// What a worker has to do with the coordinator about tickets: takes them
// (docs/protocol/asynchronous.md, A1), and tells which are spent (A4).
//
// One is asked for at a time, however many are wanted, and under the same
// sequence until it is there. So tickets come in the order of their sequences,
// without a gap: shards apply pushes in that order, and would wait for ever for
// one that got no ticket, or gets it only when a later one is spent. A ticket
// whose request was let go of is the next one's.
//
// A spent ticket is told of in each request until one that told of it has been
// answered; then it is booked, and its sequence settled. The usual loop asks
// for its next ticket as soon as it has spent one: that request tells. One that
// is under way may be parked until just this is told, and a caller may ask no
// more: then a call of its own tells, at once or after Timing::tell_spent.
//
// Of one generation. Thread-safe.
class Tickets {
 public:
  // `sequences`, which is guarded by the context's mutex, must outlive this
  // object. `sender`: of all calls.
  Tickets(std::shared_ptr<Context> context, Sequences* sequences,
          std::shared_ptr<const proto::Sender> sender);
  ~Tickets();

  // `ready`: the tickets, or why none can be taken.
  static std::unique_ptr<Cluster::TicketRequest> StartTake(
      absl::StatusOr<std::shared_ptr<Tickets>> ready);

  // Every shard has applied the push.
  void Spend(const proto::SpentTicket& spent) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Request;

  void Add(Request* request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks for a ticket, if one is wanted and none is being asked for.
  void Ask() ABSL_LOCKS_EXCLUDED(mutex_);
  Next OnAnswer(PushSequence sequence, const std::vector<PushSequence>& told,
                const absl::StatusOr<proto::TakeTicketResponse>& response)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells of the spent, in a call of its own.
  void Tell() ABSL_LOCKS_EXCLUDED(mutex_);

  // Adds all that the coordinator is to know, and says of which pushes it
  // tells.
  std::vector<PushSequence> TellIn(proto::TakeTicketRequest* request) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Takes note of an answer to a request that told of these.
  void OnTold(const std::vector<PushSequence>& told,
              const proto::TakeTicketResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives tickets to those that wait for one.
  void Deal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers all that wait, and those to come, when there will be no more
  // tickets.
  void AnswerAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Context> context_;
  absl::Mutex& mutex_;
  Sequences* const sequences_ ABSL_PT_GUARDED_BY(mutex_);
  CallGroup calls_;

  // Want a ticket, the first come first.
  std::deque<Request*> waiting_ ABSL_GUARDED_BY(mutex_);
  // Nobody's yet.
  std::map<PushSequence, Ticket> here_ ABSL_GUARDED_BY(mutex_);
  // That a ticket has been asked for, and has not come.
  std::optional<PushSequence> asked_for_ ABSL_GUARDED_BY(mutex_);
  // A request for it is under way.
  bool asking_ ABSL_GUARDED_BY(mutex_) = false;
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
  // There are no more tickets, because the job is DONE, or for this reason.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);

  // Spent and, for all that is known here, not booked.
  std::vector<proto::SpentTicket> spent_ ABSL_GUARDED_BY(mutex_);
  bool tell_is_due_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TICKETS_H_
