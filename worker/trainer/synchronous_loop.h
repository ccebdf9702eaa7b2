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

// Trains by steps (docs/protocol/life_of_a_step.md). Begins at the newest
// version, which is 0 unless other workers have trained already or the job was
// rolled back. At version t:
//
//   1. For each of the worker's own seats: takes the batch of (t, seat), or of
//      a ticket; computes the gradients, each of which is sent as soon as it is
//      ready; and contributes the push to the step. A gradient that is not
//      finite, or of a seat without examples, is contributed with weight 0.
//      Rows of embedding tables are those of t, too: the pull includes the rows
//      of the first seat's batch, if that was made by then; others are pulled
//      before they are needed.
//   2. Begins the pull of t + 1, waits for the verdicts, and then for the pull.
//      A late backup worker gets the verdict STALE and continues with the
//      newest version.
//
// By step with one seat, everything after the computation is one exchange
// (Push::Contribute). Several seats share the memory of the model's gradient,
// so each push is waited for before the next gradient is computed.
//
// By ticket, the job may be DONE at any request for a ticket. A worker takes
// its tickets one by one, each when the push before it has been contributed:
// the last step closes when all tickets given out are in it, and a ticket held
// for later would keep it open. While a request is parked its step may close;
// the ticket is then for a later step. Tickets of pushes that are not ACCEPTED
// are returned automatically.
//
// Thread-compatible.
class SynchronousLoop {
 public:
  struct Options {
    // The worker's own seats, ascending.
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
  // A push that has been given its gradient.
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
  // Makes the values that were pulled the ones to compute on.
  void Proceed();
  // Takes a ticket, unless there is one already or the job is DONE.
  absl::Status HaveTicket();
  absl::StatusOr<Batch> NextBatch(uint32_t seat);
  // Computes the gradient of the seat's batch.
  absl::StatusOr<Computed> Compute(uint32_t seat);
  // Finishes the push and contributes it. `next`: as in Push::Contribute.
  absl::Status Contribute(const Computed& computed, Parameters* next);
  // Computes the gradient, pushes and contributes it; the gradient's memory is
  // free afterwards.
  absl::StatusOr<Computed> FillSeat(uint32_t seat);

  TrainingContext& context_;
  const Options options_;

  Parameters now_;
  Parameters next_;
  // By ticket: the ticket for the seat that is filled next.
  std::optional<Ticket> ticket_;
  bool done_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_SYNCHRONOUS_LOOP_H_
