// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_INPUT_BATCH_PIPELINE_H_
#define HOLDFAST_WORKER_INPUT_BATCH_PIPELINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/data/example_source.h"
#include "common/job/batch_ranges.h"
#include "common/job/example_order.h"
#include "common/job/ids.h"
#include "worker/input/answers.h"
#include "worker/input/batch.h"
#include "worker/input/id_bags.h"
#include "worker/input/image_augmenter.h"

namespace holdfast {

// Freed as its allocator requires.
using InputMemory = std::unique_ptr<float[], std::function<void(float*)>>;

// Makes a worker's batches ahead of their use, on threads of its own. The
// examples of each batch are fixed (batch_ranges.h); which batches will be
// asked for depends on how the job assigns examples:
//
//   by step:    a rule predicts it: from step 0 on, the worker's own seats of
//               every step in ascending order. A worker that is late may skip
//               steps: it asks for the batch that it wants, and earlier ones
//               are dropped or never made. Restart() makes earlier batches
//               available again.
//   by ticket:  Prepare() announces it, ticket by ticket; batches are asked for
//               in any order.
//
// Next(), NextTicket(), Drop() and Restart() may be called from any thread, but
// by one at a time; Prepare(), AwaitMade() and Stop() from any thread at any
// time.
// Invariants: at most `prefetch` + 1 batches are in memory, including the one
// handed out. Memory is allocated once, at the start.
class BatchPipeline {
 public:
  struct Options {
    // Examples in a batch; at least 1.
    int64_t batch_size = 1;
    // Every epoch has its own batches, the last of which may be smaller; by
    // step, some seats may get no batch. False: a batch may extend into the
    // next epoch.
    bool short_last_batch = false;
    // Seeds the order of examples.
    uint64_t seed = 0;
    Shuffle shuffle;
    // The number of batches made ahead; at least 1. More bridge longer stalls
    // of the source; each takes memory for a batch.
    int prefetch = 4;
    // The number of threads that make batches; at least 1. More than `prefetch`
    // are useless.
    int threads = 1;
    // Allocates memory for the inputs, `size` values, as Backend::AllocateHost
    // does. Start returns its errors. Empty: any memory.
    std::function<absl::StatusOr<InputMemory>(int64_t size)> allocate;
    // Changes the examples. Null: they are not changed. Must outlive the
    // pipeline.
    const ImageAugmenter* augmenter = nullptr;
    // Indexed by the model's table: the fields whose ids have rows in the table
    // (ModelTable::fields). Empty: batches have no ids.
    std::vector<std::vector<int>> table_fields;

    // How the examples are assigned. True: by ticket, and the options below are
    // ignored.
    bool by_ticket = false;
    // The number of seats in a step, of all workers; at least 1.
    int64_t seats_per_step = 1;
    // The seats of this worker, ascending; at least one.
    std::vector<int64_t> seats = {0};
  };

  // Begins to make batches of `source`, which must outlive the pipeline.
  // Errors: INVALID_ARGUMENT when an option is out of its range;
  // RESOURCE_EXHAUSTED when there is no memory for the batches.
  static absl::StatusOr<std::unique_ptr<BatchPipeline>> Start(
      const ExampleSource* source, Options options);

  // Stops, and waits for reads that are under way.
  ~BatchPipeline();

  BatchPipeline(const BatchPipeline&) = delete;
  BatchPipeline& operator=(const BatchPipeline&) = delete;

  // By step: the batch of `seat` in `step`, empty if the epoch's examples have
  // run out; with the batch after it as its next, if that has been made. Its
  // memory stays valid until the next call of Next(). Errors:
  //   INVALID_ARGUMENT: `seat` is not in Options::seats.
  //   FAILED_PRECONDITION: the batch, or a later one, was handed out before;
  //     the batches are by ticket.
  //   OUT_OF_RANGE: the positions of its examples overflow.
  //   DEADLINE_EXCEEDED: it was not made by `deadline`; it may be asked for
  //     again.
  //   CANCELLED: the pipeline was stopped.
  //   Any other: the source's. If the batch is asked for again, it is made
  //     again.
  absl::StatusOr<Batch> Next(GlobalStep step, int64_t seat,
                             absl::Time deadline);

  // By ticket: begins to make the batch of the ticket with this index, unless
  // it is made or being made already. Does not wait.
  // Errors:
  //   RESOURCE_EXHAUSTED: `prefetch` batches are prepared already that have
  //     been neither taken nor dropped.
  //   FAILED_PRECONDITION: the batches are by step.
  absl::Status Prepare(uint64_t ticket);

  // By ticket: the batch of the ticket with this index, whether it was prepared
  // or not. Its memory stays valid until the next call of NextTicket().
  // Errors:
  //   RESOURCE_EXHAUSTED: it was not prepared, and there is no room for it,
  //     because calls for other batches have failed: ask for those again or
  //     drop them.
  //   FAILED_PRECONDITION: the batches are by step.
  //   OUT_OF_RANGE, DEADLINE_EXCEEDED, CANCELLED, any other: as in Next(). A
  //     batch that was not made by `deadline` stays prepared.
  absl::StatusOr<Batch> NextTicket(uint64_t ticket, absl::Time deadline);

  // The ids of a batch that is prepared and made already: by step, of the batch
  // after the last that was handed out; by ticket, of that ticket's. Null if it
  // is not made. They stay valid until this thread's next call.
  const TableBags* NextBags();
  const TableBags* BagsOfTicket(uint64_t ticket);
  // By ticket, from any thread: waits until the batch of a ticket is made,
  // which must have been prepared and is taken later. Returns false if it is
  // not made by `until`. In either case `bags` is set to its ids, or to null if
  // there are none; they stay valid until the batch is taken or dropped.
  bool AwaitMade(uint64_t ticket, absl::Time until, const TableBags** bags);

  // By ticket: drops the batch that was prepared for this ticket; it will not
  // be asked for. Does nothing if there is none.
  void Drop(uint64_t ticket);

  // Starts over at any batch: batches that were handed out may be asked for
  // again, and prepared ones are dropped. No batch is made until one is asked
  // for.
  void Restart();

  // Stops making batches. Next() and NextTicket() return CANCELLED from then
  // on, including calls that are waiting.
  void Stop();

 private:
  // The memory of a batch, and what it is used for.
  struct Slot {
    // kUnwanted is still being made, and becomes free after that.
    enum class State { kFree, kMaking, kUnwanted, kReady, kHandedOut };
    State state = State::kFree;
    // The batch's index, as in to_make_.
    uint64_t index = 0;
    // The result of making the batch.
    absl::Status status;
    int64_t size = 0;
    InputMemory inputs;
    Answers answers;
    TableBags bags;
    std::unique_ptr<int64_t[]> positions;

    absl::Span<const float> Inputs(int64_t example_size) const {
      return {inputs.get(), static_cast<size_t>(size * example_size)};
    }
    absl::Span<const int64_t> Positions() const {
      return {positions.get(), static_cast<size_t>(size)};
    }
    bool IsPrepared() const {
      return state == State::kMaking || state == State::kReady;
    }
  };

  BatchPipeline(const ExampleSource* source, Options options);

  absl::Status AllocateSlots();
  // Run by each thread: makes the first batch in to_make_ whenever a slot is
  // free.
  void MakeBatches();
  // Fills `slot`, which is kMaking: except for its state, only this thread uses
  // it.
  absl::Status Make(uint64_t index, Slot* slot) const;

  // By step: prepares `index` and the batches that will be asked for after it.
  void Foretell(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hands out the batch, prepared or not.
  absl::StatusOr<Batch> Take(uint64_t index, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops the prepared batches for whose index `unwanted` returns true.
  template <typename Predicate>
  void DropIf(Predicate unwanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool IsPrepared(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int NumPrepared() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slot* FreeSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Like NextBags.
  const TableBags* BagsOf(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The slot of a prepared batch; null if it has not been begun.
  Slot* SlotOf(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the threads, and Take(), wait for.
  bool CanMakeOrStopped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanTakeOrStopped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // By step, the index of a batch is its number among the batches of all steps;
  // by ticket, it is the ticket's index.
  absl::StatusOr<uint64_t> IndexOf(GlobalStep step, int64_t seat) const;
  GlobalStep StepOf(uint64_t index) const;
  int64_t SeatOf(uint64_t index) const;
  absl::StatusOr<PositionRange> RangeOf(uint64_t index) const;
  // "of seat 1 in step 7", "of ticket 7".
  std::string NameOf(uint64_t index) const;

  const ExampleSource* const source_;
  const Options options_;
  const int64_t example_size_;
  const ExampleOrder order_;
  const BatchRanges ranges_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // Batches that are prepared but not begun; the first is made next.
  std::deque<uint64_t> to_make_ ABSL_GUARDED_BY(mutex_);
  // One for each batch made ahead and one for the batch handed out. So there is
  // always a slot for a batch that is waited for: none is handed out then, and
  // at most `prefetch` others are prepared; an unwanted batch frees its slot
  // soon.
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  // The index that Take() waits for.
  uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  // By step: the lowest index that may still be handed out, and the lowest that
  // has not been prepared.
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t foretold_ ABSL_GUARDED_BY(mutex_) = 0;

  std::vector<std::thread> threads_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_BATCH_PIPELINE_H_
