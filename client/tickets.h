// SPDX-License-Identifier: Apache-2.0
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

// A worker's dealings with the coordinator about tickets: takes tickets
// (docs/protocol/asynchronous.md, A1), and reports those that are spent (A4).
//
// Only one ticket is requested at a time, however many are wanted, and under
// the same sequence until it arrives. So tickets arrive in the order of their
// sequences, without gaps: shards apply pushes in that order, and would wait
// forever for a sequence that got no ticket, or that gets it only when a later
// one is spent. If a request is destroyed, its ticket goes to the next request.
//
// A spent ticket is reported in each request until one that reported it has
// been answered; then the ticket is booked, and its sequence settled. The usual
// loop requests its next ticket as soon as it has spent one, and that request
// reports it. But a request in progress may be parked until the spent ticket is
// reported, or the caller may request no more tickets: then a separate call
// reports it, at once or after Timing::tell_spent.
//
// Belongs to one generation. Thread-safe.
class Tickets {
 public:
  // `sequences`, which is guarded by the context's mutex, must outlive this
  // object. `sender`: the sender of all calls.
  Tickets(std::shared_ptr<Context> context, Sequences* sequences,
          std::shared_ptr<const proto::Sender> sender);
  ~Tickets();

  // Starts to take a ticket. `ready`: the Tickets of the generation, or why no
  // ticket can be taken.
  static std::unique_ptr<Cluster::TicketRequest> StartTake(
      absl::StatusOr<std::shared_ptr<Tickets>> ready);

  // Notes a spent ticket: every shard has applied its push.
  void Spend(const proto::SpentTicket& spent) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Request;

  void Add(Request* request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Requests a ticket, if one is wanted and no request is in progress.
  void Ask() ABSL_LOCKS_EXCLUDED(mutex_);
  Next OnAnswer(PushSequence sequence, const std::vector<PushSequence>& told,
                const absl::StatusOr<proto::TakeTicketResponse>& response)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports the spent tickets in a separate call.
  void Tell() ABSL_LOCKS_EXCLUDED(mutex_);

  // Adds the spent tickets to the request, and returns the pushes that it
  // reports.
  std::vector<PushSequence> TellIn(proto::TakeTicketRequest* request) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Handles an answer to a request that reported `told`.
  void OnTold(const std::vector<PushSequence>& told,
              const proto::TakeTicketResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hands tickets to waiting requests.
  void Deal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers all waiting requests: there will be no more tickets.
  void AnswerAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Context> context_;
  absl::Mutex& mutex_;
  Sequences* const sequences_ ABSL_PT_GUARDED_BY(mutex_);
  CallGroup calls_;

  // Requests that wait for a ticket, in order of arrival.
  std::deque<Request*> waiting_ ABSL_GUARDED_BY(mutex_);
  // Tickets that no request has taken yet.
  std::map<PushSequence, Ticket> here_ ABSL_GUARDED_BY(mutex_);
  // The sequence for which a ticket was requested that has not arrived.
  std::optional<PushSequence> asked_for_ ABSL_GUARDED_BY(mutex_);
  // Whether a request for that ticket is in progress.
  bool asking_ ABSL_GUARDED_BY(mutex_) = false;
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
  // Whether there are no more tickets, because the job is DONE, or because of
  // error_.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);

  // Tickets that are spent and, as far as is known here, not booked.
  std::vector<proto::SpentTicket> spent_ ABSL_GUARDED_BY(mutex_);
  bool tell_is_due_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TICKETS_H_
