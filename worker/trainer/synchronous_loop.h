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
// If the model awaits its parameters (Model::AwaitsParameters), the loop does
// not wait for the whole pull: when the verdicts and the first variable of
// version t + 1 are there, it begins at 1, and the forward pass of the first
// seat waits for one variable after another. The backward pass, and with it the
// push, begins when all have arrived. If the pull cannot bring the rest of that
// version, because other workers have made a newer one meanwhile, the loop
// drops what it has computed, and begins again at 1 with the newer version.
// This does not apply to jobs with examples by ticket or with embedding tables,
// nor to a version at which an evaluation is due.
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
  class Arrival;

  bool exchanges() const {
    return !options_.by_ticket && options_.seats.size() == 1;
  }
  bool is_over() const { return done_ || version_ >= context_.total_steps(); }
  // Whether a step may begin while values are still arriving.
  bool begins_early() const {
    return !options_.by_ticket && !context_.has_tables() &&
           context_.gradients().awaits_parameters();
  }
  absl::Status TrainStep();
  absl::Status Exchange();
  // Makes next_ the values to compute on: now_. If not all of them are there,
  // `rest` is the pull that brings them, and Proceed waits for the first
  // variable.
  absl::Status Proceed(std::unique_ptr<Cluster::Pull> rest);
  // Waits until all of now_ is there, possibly at a newer version. Afterwards
  // rest_ is null.
  absl::Status AwaitRest();
  // Makes ticket_ present, unless the job is DONE: takes a ticket if there is
  // none. Sets done_ if the job is DONE.
  absl::Status HaveTicket();
  absl::StatusOr<Batch> NextBatch(uint32_t seat);
  // Computes the gradient of the seat's batch. Afterwards all of now_ is there.
  // Returns nullopt if the gradient is of no use, because now_ was superseded
  // during the computation; the step must be begun again.
  absl::StatusOr<std::optional<Computed>> Compute(uint32_t seat);
  // Finishes the push and contributes it to the step. `next` is as in
  // Push::Contribute.
  absl::Status Contribute(const Computed& computed, Parameters* next);
  // Computes the gradient of the seat's batch, pushes it and contributes the
  // push. Afterwards the gradient's memory can be reused. Returns nullopt as
  // Compute does.
  absl::StatusOr<std::optional<Computed>> FillSeat(uint32_t seat);

  TrainingContext& context_;
  const Options options_;

  // A step's batch whose gradient was dropped. It is used again if the step is
  // begun again, because a batch is handed out once.
  struct Dropped {
    GlobalStep step;
    Batch batch;
  };

  Parameters values_[2];
  Parameters* now_ = &values_[0];
  Parameters* next_ = &values_[1];
  // The version and loss scale of *now_, which does not contain them while its
  // values are arriving.
  GlobalStep version_;
  float loss_scale_ = 1;
  // The pull that brings the values of *now_ which are still on their way.
  // Null: all are there.
  std::unique_ptr<Cluster::Pull> rest_;
  // Of the first seat.
  std::optional<Dropped> dropped_;
  // Only in jobs with examples by ticket: the ticket for the seat that is
  // filled next. Absent: it has not been taken.
  std::optional<Ticket> ticket_;
  bool done_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_SYNCHRONOUS_LOOP_H_
