// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_TRAINER_SYNCHRONOUS_LOOP_H_
#define HOLDFAST_WORKER_TRAINER_SYNCHRONOUS_LOOP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/trace/trace.h"
#include "worker/input/batch.h"
#include "worker/trainer/training_context.h"

namespace holdfast {

// Trains step by step (docs/protocol/life_of_a_step.md). Begins at the newest
// version, which is 0 unless other workers have trained already or the job was
// rolled back. At version t, the loop:
//
//   1. For each of the worker's own seats: takes the batch of the step and the
//      seat, or that of a ticket; computes the gradients, each of which is sent
//      as soon as it is ready; and contributes the push to the step. If a
//      gradient is not finite, or the seat has no examples, the push is
//      contributed with weight 0. Rows of embedding tables are of version t,
//      too: the pull of t includes the rows for the first seat's batch, if this
//      batch was made by then; all other rows are pulled when they are needed.
//   2. Begins the pull of version t + 1, waits for the verdicts of the pushes,
//      and then for the pull. A backup worker that was late gets the verdict
//      STALE and continues with the newest version.
//
// If examples are by step and the worker has one seat, everything after the
// computation is one exchange (Push::Contribute). If it has several seats,
// these share the memory of the model's gradient, so the loop waits for each
// push before it computes the next gradient.
//
// If examples are by ticket, any request for a ticket may find that the job is
// DONE. A worker takes its tickets one by one, each when the push before it has
// been contributed: the last step closes when the pushes of all tickets that
// were given out are in it, and a ticket held for later would keep the step
// open. While a request for a ticket waits at the coordinator, the open step
// may close; the ticket is then for a later step. The tickets of pushes that
// are not ACCEPTED are returned automatically.
//
// Thread-compatible.
class SynchronousLoop {
 public:
  struct Options {
    // The worker's own seats in a step, in ascending order.
    std::vector<uint32_t> seats;
    // The number of seats in a step, of all workers.
    uint32_t seats_per_step = 1;
    bool by_ticket = false;
  };

  // `context` must outlive the loop.
  SynchronousLoop(TrainingContext* context, const Options& options);

  // Trains to the last version, or until the job is DONE.
  // Errors: those of TrainingContext, Cluster, GradientComputer, BatchPipeline.
  absl::Status Run();

 private:
  // A push whose gradient has been computed.
  struct Computed {
    std::string name;  // for messages
    std::unique_ptr<Cluster::Push> push;
    Contribution contribution;
  };
  bool exchanges() const {
    return !options_.by_ticket && options_.seats.size() == 1;
  }
  absl::Status TrainStep();
  absl::Status Exchange();
  // Makes next_, which was pulled, the values to compute on: now_.
  void Proceed();
  // Makes ticket_ present, unless the job is DONE: takes a ticket if there is
  // none. Sets done_ if the job is DONE.
  absl::Status HaveTicket();
  absl::StatusOr<Batch> NextBatch(uint32_t seat);
  // Computes the gradient of the seat's batch.
  absl::StatusOr<Computed> Compute(uint32_t seat);
  // Finishes the push and contributes it to the step. `next` is as in
  // Push::Contribute.
  absl::Status Contribute(const Computed& computed, Parameters* next);
  // Computes the gradient of the seat's batch, pushes it and contributes the
  // push. Afterwards the gradient's memory can be reused.
  absl::StatusOr<Computed> FillSeat(uint32_t seat);

  TrainingContext& context_;
  const Options options_;

  Parameters now_;
  Parameters next_;
  // Only in jobs with examples by ticket: the ticket for the seat that is
  // filled next. Absent: it has not been taken.
  std::optional<Ticket> ticket_;
  bool done_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_SYNCHRONOUS_LOOP_H_
