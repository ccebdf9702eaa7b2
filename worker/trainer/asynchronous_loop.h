// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_TRAINER_ASYNCHRONOUS_LOOP_H_
#define HOLDFAST_WORKER_TRAINER_ASYNCHRONOUS_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "worker/trainer/gradient.h"
#include "worker/trainer/pull_ahead.h"
#include "worker/trainer/training_context.h"

namespace holdfast {

// Trains ticket by ticket (docs/protocol/asynchronous.md), until there are no
// more tickets:
//
//   1. Waits for the worker's oldest pending push until fewer than
//      pipeline_depth pushes are pending.
//   2. Takes the ticket that was requested in the round before, begins to read
//      its batch, and requests the next ticket, so that it has arrived when it
//      is needed.
//   3. Pulls the newest version of each shard.
//   4. Computes the gradient, each variable's part of which is sent as soon as
//      it is ready, and has the push applied. A gradient that is not finite is
//      applied with 0 examples: it changes nothing, but takes its place in the
//      order of the worker's pushes.
//
// With a depth of 1 the pull follows the push, and sees it applied; without a
// bound on staleness both are one exchange. With a bound the ticket must come
// first: the values must include all that was booked before the ticket was
// given. With a greater depth, pushes are sent while the next gradient is
// computed. Their gradients are then copied to the loop's own memory, one for
// each push, because the next computation overwrites the model's while parts of
// the push may still have to be sent.
//
// Thread-compatible.
class AsynchronousLoop {
 public:
  struct Options {
    // At least 1.
    uint32_t pipeline_depth = 1;
    bool has_bound = false;
    // The maximum number of pushes that all workers together may have booked
    // while a request for a ticket waits.
    uint64_t longest_wait = 1;
  };

  // `context` must outlive the loop.
  AsynchronousLoop(TrainingContext* context, const Options& options);

  // Trains until the job is DONE. Rows of embedding tables are pulled with the
  // values if the next ticket and its batch are known by then; otherwise when
  // they are needed. Errors: those of TrainingContext, Cluster,
  // GradientComputer, BatchPipeline.
  absl::Status Run();

 private:
  // A push that was begun and not finished, or a free slot for one.
  struct Slot {
    std::string name;  // the push's, for messages
    GradientComputer::Kept gradient;
    // Must be destroyed before `gradient`, which it sends.
    std::unique_ptr<Cluster::Push> push;
  };

  using OneTicket = absl::StatusOr<std::optional<Ticket>>;

  // Waits for the requested ticket; nullopt if there are no more.
  OneTicket AwaitTicket();
  // Requests the ticket after it.
  void AskForTicket();
  // With tables: begins to make the batch of the next ticket, if that has
  // arrived.
  absl::Status LookAhead();
  // The ids of that batch; null if they are not known.
  const TableBags* NextBags();
  // Makes now_ have the values for a batch with these ids.
  absl::Status Pull(const TableBags* bags);
  absl::Status TrainTicket(const Ticket& ticket, Slot* slot);
  // Waits until the push in the slot, if there is one, is applied.
  absl::Status Finish(Slot* slot);

  TrainingContext& context_;
  const Options options_;

  bool exchanges() const {
    return options_.pipeline_depth == 1 && !options_.has_bound;
  }

  // The request for the ticket after the current one; and that ticket, if it
  // arrived before it was needed.
  std::unique_ptr<Cluster::TicketRequest> request_;
  std::optional<OneTicket> next_ticket_;

  Parameters now_;
  // Whether now_ was pulled with the last push.
  bool pulled_ = false;
  // With tables, if pushes are sent while the next gradient is computed:
  // replaces request_ and the pulls of this class.
  std::optional<PullAhead> ahead_;
  // Used in turn: the slot of the next push is free, or holds the oldest push.
  std::vector<Slot> slots_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_ASYNCHRONOUS_LOOP_H_
