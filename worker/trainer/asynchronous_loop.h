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

// Trains ticket by ticket (docs/protocol/asynchronous.md), until there are
// none:
//
//   1. Until fewer than pipeline_depth of the worker's pushes are on their way,
//      waits for the oldest of them.
//   2. Takes the ticket that was requested a round before, has its batch read,
//      and requests the next ticket, so that it is there when it is needed.
//   3. Pulls the newest version of each shard.
//   4. Computes the gradient, of which each variable's leaves as soon as it is
//      ready, and has the push applied. What is not finite is applied with 0
//      examples: it changes nothing, but its place in the worker's order is
//      taken.
//
// With a depth of 1 the pull follows the push, and finds it applied; without a
// bound on staleness it goes with it, in one exchange. Behind a bound the
// ticket comes first: the values must hold all that was booked before it was
// given. With more depth the pushes travel while the next gradient is computed:
// their memory is then the loop's own, one gradient for each, since that of the
// model is written again in the next computation, when parts of the push may
// still have to be sent.
//
// Thread-compatible.
class AsynchronousLoop {
 public:
  struct Options {
    // At least 1.
    uint32_t pipeline_depth = 1;
    bool has_bound = false;
    // The most pushes that all workers may have booked while a request for a
    // ticket waits.
    uint64_t longest_wait = 1;
  };

  // `context` must outlive the loop.
  AsynchronousLoop(TrainingContext* context, const Options& options);

  // Trains until the job is DONE. Rows of embedding tables come with the
  // values, where the next ticket and its batch are known by then; otherwise
  // they are pulled when they are needed. Errors: those of TrainingContext,
  // Cluster, GradientComputer, BatchPipeline.
  absl::Status Run();

 private:
  // A push that was begun and not finished, or the place for one.
  struct Slot {
    std::string name;  // of the push, for messages
    GradientComputer::Kept gradient;
    // Ends before what it sends.
    std::unique_ptr<Cluster::Push> push;
  };

  using OneTicket = absl::StatusOr<std::optional<Ticket>>;

  // The ticket that was asked for; nothing: there are no more.
  OneTicket AwaitTicket();
  // Asks for the one behind it.
  void AskForTicket();
  // With tables: has the batch of the next ticket made, if that has come.
  absl::Status LookAhead();
  // The ids of that batch, where they are known.
  const TableBags* NextBags();
  // Has now_ have values for a batch with these ids.
  absl::Status Pull(const TableBags* bags);
  absl::Status TrainTicket(const Ticket& ticket, Slot* slot);
  // Waits until the push in the slot, if there is one, is applied.
  absl::Status Finish(Slot* slot);

  TrainingContext& context_;
  const Options options_;

  bool exchanges() const {
    return options_.pipeline_depth == 1 && !options_.has_bound;
  }

  // For the ticket behind the one in hand; and that, where it has come before
  // it is due.
  std::unique_ptr<Cluster::TicketRequest> request_;
  std::optional<OneTicket> next_ticket_;

  Parameters now_;
  // They have come with the last push.
  bool pulled_ = false;
  // With tables, where pushes travel while the next gradient is computed: in
  // place of request_ and of pulls here.
  std::optional<PullAhead> ahead_;
  // Used in turn: that of the next push is free, or holds the oldest.
  std::vector<Slot> slots_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_ASYNCHRONOUS_LOOP_H_
