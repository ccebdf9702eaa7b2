#ifndef HOLDFAST_WORKER_TRAINER_PULL_AHEAD_H_
#define HOLDFAST_WORKER_TRAINER_PULL_AHEAD_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/base/strand.h"
#include "worker/trainer/training_context.h"

namespace holdfast {

// Of an asynchronous job with embedding tables: while the worker computes a
// gradient, brings the next ticket, has its batch made, and pulls the values to
// compute on, with the rows that the batch has; on a thread of its own. The
// values lack the pushes that are on their way meanwhile, as they do in a job
// without tables whose pushes travel while it computes.
//
// All that it waits for has a deadline of TrainingContext, so its own two
// waits, AwaitTicket and Take, end by these.
//
// For one thread.
class PullAhead {
 public:
  // `context` must outlive this. `longest_wait`: for a ticket, in steps
  // (TrainingContext::StepDeadline).
  PullAhead(TrainingContext* context, uint64_t longest_wait);
  // Gives up what is under way.
  ~PullAhead();

  PullAhead(const PullAhead&) = delete;
  PullAhead& operator=(const PullAhead&) = delete;

  // Begins, for the ticket behind the one in hand.
  void Start();
  // The ticket that it was begun for; nothing: there are no more.
  // Errors: those of TicketRequest.
  absl::StatusOr<std::optional<Ticket>> AwaitTicket();
  // Has `now` have the values for it. Errors: those of Pull and of
  // BatchPipeline::Prepare; what is wrong with the batch is told when that is
  // taken.
  absl::Status Take(Parameters* now);

 private:
  // On the strand.
  void Run();
  void Pull(const Ticket& ticket);
  // Waits until `done` has returned true for an `until` that is soon; false
  // when it was given up.
  template <typename Done>
  bool WaitFor(const Done& done) const;

  TrainingContext& context_;
  const uint64_t longest_wait_;
  std::atomic<bool> given_up_ = false;

  absl::Mutex mutex_;
  // Of what was begun last; absent: not yet.
  std::optional<absl::StatusOr<std::optional<Ticket>>> ticket_
      ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> pulled_ ABSL_GUARDED_BY(mutex_);

  // Written to by the strand until `pulled_` is there.
  Parameters values_;

  Strand strand_;  // last, so that it stops first
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_PULL_AHEAD_H_
