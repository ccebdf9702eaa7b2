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
// version, which is 0, or where others are or a roll-back led to; at version t:
//
//   1. For each of the worker's own seats: takes the batch of (t, seat), or of
//      a ticket; computes the gradients, of which each leaves as soon as it is
//      ready; and offers the push to the step. What is not finite, and a seat
//      without examples, is offered with weight 0. Rows of embedding tables are
//      those of t, too: the pull has brought those of the first seat's batch,
//      if that was made by then; others are pulled before they are needed.
//   2. Begins the pull of t + 1, waits for the verdicts, and then for the pull.
//      A late backup worker learns that it is STALE and goes on with the newest
//      version.
//
// By step with one seat, all after the computation is one exchange
// (Push::Contribute). Several seats share the memory of the model's gradient,
// so each push is waited for before the next is computed.
//
// By ticket the job may be DONE at any request for one. A worker takes its
// tickets one after the other, each when the push before it is offered: the
// last step closes when all tickets that are out are in it, and one that is
// held for later would keep it open. While a request is parked its step may
// close; the ticket is then for a later one. Tickets of pushes that are not
// ACCEPTED go back by themselves.
//
// Thread-compatible.
class SynchronousLoop {
 public:
  struct Options {
    // The worker's own, rising.
    std::vector<uint32_t> seats;
    // Of a step, of all workers.
    uint32_t seats_per_step = 1;
    bool by_ticket = false;
  };

  // `context` must outlive the loop.
  SynchronousLoop(TrainingContext* context, const Options& options);

  // Trains to the last version, or until the job is DONE.
  // Errors: those of TrainingContext, Cluster, GradientComputer, BatchPipeline.
  absl::Status Run();

 private:
  // A push whose gradient was handed in.
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
  // The values that were pulled are those to compute on.
  void Proceed();
  // Takes a ticket where none is at hand and the job is not DONE.
  absl::Status HaveTicket();
  absl::StatusOr<Batch> NextBatch(uint32_t seat);
  // Computes what belongs to the seat.
  absl::StatusOr<Computed> Compute(uint32_t seat);
  // Hands over what is left of the push. `next`: as of Push::Contribute.
  absl::Status Contribute(const Computed& computed, Parameters* next);
  // Computes it, pushes and contributes; the gradient's memory is free then.
  absl::StatusOr<Computed> FillSeat(uint32_t seat);

  TrainingContext& context_;
  const Options options_;

  Parameters now_;
  Parameters next_;
  // By ticket: the one for the seat that is filled next.
  std::optional<Ticket> ticket_;
  bool done_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_SYNCHRONOUS_LOOP_H_
