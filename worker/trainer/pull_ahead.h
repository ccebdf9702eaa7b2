// SPDX-License-Identifier: Apache-2.0
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

// Works ahead in an asynchronous job with embedding tables. While the worker
// computes a gradient, this object takes the next ticket, prepares the ticket's
// batch, and pulls the values of the variables and of the rows that the batch
// needs, on its own thread. The pulled values lack the worker's pushes that are
// pending at the time, as they do in a job without tables whose pushes are sent
// during the computation.
//
// Each wait of this thread has a deadline from TrainingContext, so AwaitTicket
// and Take, which wait for the thread, end too.
//
// All calls must be made by one thread.
class PullAhead {
 public:
  // `context` must outlive this object. `longest_wait` is the longest wait for
  // a ticket, in steps (TrainingContext::StepDeadline).
  PullAhead(TrainingContext* context, uint64_t longest_wait);
  // Abandons the work that is under way.
  ~PullAhead();

  PullAhead(const PullAhead&) = delete;
  PullAhead& operator=(const PullAhead&) = delete;

  // Begins to take the ticket after the current one, and to work for it.
  void Start();
  // Waits for the ticket that Start has begun to take; nullopt if there are no
  // more tickets.
  // Errors: those of TicketRequest.
  absl::StatusOr<std::optional<Ticket>> AwaitTicket();
  // Waits for the values for that ticket, and moves them into `now`. Errors:
  // those of Cluster::Pull and of BatchPipeline::Prepare. An error of making
  // the batch is not returned here, but by BatchPipeline::NextTicket.
  absl::Status Take(Parameters* now);

 private:
  // Does the work for one ticket. Called on strand_.
  void Run();
  void Pull(const Ticket& ticket);
  // Calls done(until), which waits until the time `until` at most, again and
  // again until it returns true. Returns false if the work is abandoned.
  template <typename Done>
  bool WaitFor(const Done& done) const;

  TrainingContext& context_;
  const uint64_t longest_wait_;
  std::atomic<bool> given_up_ = false;

  absl::Mutex mutex_;
  // The results of the work that the last Start has begun: the ticket, and the
  // status of the pull. Absent until they are known.
  std::optional<absl::StatusOr<std::optional<Ticket>>> ticket_
      ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> pulled_ ABSL_GUARDED_BY(mutex_);

  // The pulled values. Written on strand_ until pulled_ is set.
  Parameters values_;

  Strand strand_;  // last, so that it stops first
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_PULL_AHEAD_H_
