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

// For an asynchronous job with embedding tables: while the worker computes a
// gradient, gets the next ticket, has its batch made, and pulls the values to
// compute on, with the rows that the batch needs; on its own thread. The values
// lack the pushes that are pending meanwhile, as in a job without tables whose
// pushes are sent during the computation.
//
// Everything that it waits for has a deadline from TrainingContext, so
// AwaitTicket and Take end by these deadlines too.
//
// Must be used by one thread.
class PullAhead {
 public:
  // `context` must outlive this. `longest_wait` is the longest wait for a
  // ticket, in steps (TrainingContext::StepDeadline).
  PullAhead(TrainingContext* context, uint64_t longest_wait);
  // Abandons what is under way.
  ~PullAhead();

  PullAhead(const PullAhead&) = delete;
  PullAhead& operator=(const PullAhead&) = delete;

  // Begins to work for the ticket after the current one.
  void Start();
  // Waits for the ticket that Start has begun to get; nullopt if there are no
  // more.
  // Errors: those of TicketRequest.
  absl::StatusOr<std::optional<Ticket>> AwaitTicket();
  // Makes `now` have the values for that ticket. Errors: those of Pull and of
  // BatchPipeline::Prepare; an error of making the batch is returned when the
  // batch is taken.
  absl::Status Take(Parameters* now);

 private:
  // Runs on the strand.
  void Run();
  void Pull(const Ticket& ticket);
  // Calls `done` with an `until` that is soon, again and again, until it
  // returns true. Returns false if abandoned.
  template <typename Done>
  bool WaitFor(const Done& done) const;

  TrainingContext& context_;
  const uint64_t longest_wait_;
  std::atomic<bool> given_up_ = false;

  absl::Mutex mutex_;
  // The results of the last Start; absent until they are known.
  std::optional<absl::StatusOr<std::optional<Ticket>>> ticket_
      ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> pulled_ ABSL_GUARDED_BY(mutex_);

  // Written by the strand until `pulled_` is set.
  Parameters values_;

  Strand strand_;  // last, so that it stops first
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_PULL_AHEAD_H_
