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
//   2. Takes the ticket that was requested in the round before, begins to make
//      its batch, and requests the next ticket, so that this one has arrived
//      when it is needed.
//   3. Pulls the newest version of each shard.
//   4. Computes the gradient, sends that of each variable as soon as it is
//      ready, and asks the shards to apply the push. If the gradient is not
//      finite, the push is applied with 0 examples: it changes nothing, but
//      keeps its place in the order of the worker's pushes.
//
// If pipeline_depth is 1, each pull follows a push, and its values include the
// push. Both are one exchange, unless the job has a bound on staleness: then
// the next ticket must come before the pull, because the values must include
// all pushes that were booked before the ticket was given. If pipeline_depth is
// greater, pushes are sent while the next gradient is computed. Each push then
// has a copy of its gradient in the loop's own memory, because the next
// computation overwrites the model's memory while parts of the push may still
// have to be sent.
//
// Thread-compatible.
class AsynchronousLoop {
 public:
  struct Options {
    // How many pushes of this worker may be pending at a time; at least 1.
    uint32_t pipeline_depth = 1;
    bool has_bound = false;
    // The maximum number of pushes that may be booked, by all workers together,
    // while a request for a ticket waits. The deadline of the wait follows from
    // it.
    uint64_t longest_wait = 1;
  };

  // `context` must outlive the loop.
  AsynchronousLoop(TrainingContext* context, const Options& options);

  // Trains until the job is DONE. Rows of embedding tables are pulled together
  // with the variables if the next ticket and its batch are known by then;
  // otherwise they are pulled when they are needed. Errors: those of
  // TrainingContext, Cluster, GradientComputer, BatchPipeline.
  absl::Status Run();

 private:
  // Room for a push. The slot is free if `push` is null; otherwise the push was
  // begun and is not finished.
  struct Slot {
    std::string name;  // the push's, for messages
    GradientComputer::Kept gradient;
    // Must be destroyed before `gradient`, which it sends.
    std::unique_ptr<Cluster::Push> push;
  };

  using OneTicket = absl::StatusOr<std::optional<Ticket>>;

  // Waits for the requested ticket; nullopt if there are no more tickets.
  OneTicket AwaitTicket();
  // Requests the ticket after the one that was awaited last.
  void AskForTicket();
  // If the model has tables: takes the next ticket if it has arrived, and
  // begins to make its batch.
  absl::Status LookAhead();
  // Returns the ids of the batch of the next ticket; null if they are not known
  // yet.
  const TableBags* NextBags();
  // Pulls the newest values into now_, with the rows for a batch with these
  // ids; if null, without rows.
  absl::Status Pull(const TableBags* bags);
  absl::Status TrainTicket(const Ticket& ticket, Slot* slot);
  // Waits until the push in the slot, if there is one, is applied.
  absl::Status Finish(Slot* slot);

  TrainingContext& context_;
  const Options options_;

  bool exchanges() const {
    return options_.pipeline_depth == 1 && !options_.has_bound;
  }

  // The request for the ticket after the current one, and that ticket itself if
  // LookAhead has taken it.
  std::unique_ptr<Cluster::TicketRequest> request_;
  std::optional<OneTicket> next_ticket_;

  Parameters now_;
  // Whether now_ was pulled in one exchange with the last push.
  bool pulled_ = false;
  // Present if the model has tables and pipeline_depth is above 1: does the
  // work of request_, and of the pulls of this class, on its own thread.
  std::optional<PullAhead> ahead_;
  // One slot for each push that may be pending, used in turn. So the slot for
  // the next push is free or holds the oldest push.
  std::vector<Slot> slots_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_ASYNCHRONOUS_LOOP_H_
