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

// Memory for a batch's inputs, which is freed by the function that its
// allocator has given.
using InputMemory = std::unique_ptr<float[], std::function<void(float*)>>;

// Makes a worker's batches ahead of their use, on threads of its own. The
// examples of each batch are fixed (batch_ranges.h); which batches will be
// asked for depends on how the job assigns examples:
//
//   by step:    the worker's own seats are predicted, in ascending order, for
//               every step from step 0 on. A worker that is late may skip
//               steps: it asks for the batch that it wants, and earlier batches
//               are dropped or never made. Restart() makes earlier batches
//               available again.
//   by ticket:  Prepare() announces the batch of each ticket; batches are asked
//               for in any order.
//
// Next(), NextTicket(), Drop() and Restart() may be called from any thread, but
// only by one thread at a time. Prepare(), AwaitMade() and Stop() may be called
// from any thread at any time.
// At most `prefetch` + 1 batches are in memory at any time, including the one
// that is handed out. All memory is allocated at the start.
class BatchPipeline {
 public:
  struct Options {
    // Examples in a batch; at least 1.
    int64_t batch_size = 1;
    // True: no batch extends into the next epoch, so an epoch's last batch may
    // be smaller, and in jobs with examples by step some seats may get an empty
    // batch. False: a batch may extend into the next epoch.
    bool short_last_batch = false;
    // Seeds the order of examples.
    uint64_t seed = 0;
    Shuffle shuffle;
    // The number of batches that are made ahead; at least 1. A higher number
    // bridges longer stalls of the source; each batch takes memory.
    int prefetch = 4;
    // The number of threads that make batches; at least 1. More threads than
    // `prefetch` are useless.
    int threads = 1;
    // Allocates memory for `size` values of inputs, as Backend::AllocateHost
    // does. Start returns its errors. Empty: ordinary memory is used.
    std::function<absl::StatusOr<InputMemory>(int64_t size)> allocate;
    // Changes the images of the examples. Null: they are not changed. Must
    // outlive the pipeline.
    const ImageAugmenter* augmenter = nullptr;
    // Indexed by the model's table: the fields whose ids have rows in the table
    // (ModelTable::fields). Empty: batches have no ids.
    std::vector<std::vector<int>> table_fields;

    // How the job assigns examples. True: by ticket; the options below are then
    // ignored. False: by step.
    bool by_ticket = false;
    // The number of seats in a step, of all workers; at least 1.
    int64_t seats_per_step = 1;
    // The seats of this worker in a step, in ascending order; at least one.
    std::vector<int64_t> seats = {0};
  };

  // Begins to make batches of `source`, which must outlive the pipeline.
  // Errors: INVALID_ARGUMENT when an option is out of its range;
  // RESOURCE_EXHAUSTED when there is no memory for the batches.
  static absl::StatusOr<std::unique_ptr<BatchPipeline>> Start(
      const ExampleSource* source, Options options);

  // Stops the pipeline, and waits for reads that are under way.
  ~BatchPipeline();

  BatchPipeline(const BatchPipeline&) = delete;
  BatchPipeline& operator=(const BatchPipeline&) = delete;

  // Only in jobs with examples by step. Returns the batch of `seat` in `step`,
  // which is empty if the epoch's examples have run out. If the batch after it
  // has been made already, it is the returned batch's next
  // (Batch::next_inputs). The batch's memory stays valid until the next call of
  // Next(). Errors:
  //   INVALID_ARGUMENT: `seat` is not in Options::seats.
  //   FAILED_PRECONDITION: the batch, or a later one, was handed out before; or
  //     examples are by ticket.
  //   OUT_OF_RANGE: the positions of the batch's examples overflow.
  //   DEADLINE_EXCEEDED: the batch was not made by `deadline`; it may be asked
  //     for again.
  //   CANCELLED: the pipeline was stopped.
  //   Any other: the source's. If the batch is asked for again, it is made
  //     again.
  absl::StatusOr<Batch> Next(GlobalStep step, int64_t seat,
                             absl::Time deadline);

  // Only in jobs with examples by ticket. Prepares the batch of the ticket with
  // this index: lets the threads make it, unless it is made or being made
  // already. Does not wait.
  // Errors:
  //   RESOURCE_EXHAUSTED: `prefetch` batches are prepared already, and have
  //     been neither handed out nor dropped.
  //   FAILED_PRECONDITION: examples are by step.
  absl::Status Prepare(uint64_t ticket);

  // Only in jobs with examples by ticket. Returns the batch of the ticket with
  // this index, whether it was prepared or not. The batch's memory stays valid
  // until the next call of NextTicket().
  // Errors:
  //   RESOURCE_EXHAUSTED: the batch was not prepared, and there is no room for
  //     it, because calls for other batches have failed and left these
  //     prepared: ask for those batches again, or drop them.
  //   FAILED_PRECONDITION: examples are by step.
  //   OUT_OF_RANGE, DEADLINE_EXCEEDED, CANCELLED, any other: as in Next(). A
  //     batch that was not made by `deadline` stays prepared.
  absl::StatusOr<Batch> NextTicket(uint64_t ticket, absl::Time deadline);

  // These return the ids of a batch that has not been handed out yet; null if
  // the batch is not made yet. NextBags: of the batch after the one that was
  // handed out last, in jobs with examples by step. BagsOfTicket: of the batch
  // of `ticket`, in jobs with examples by ticket. The ids stay valid until this
  // thread's next call.
  const TableBags* NextBags();
  const TableBags* BagsOfTicket(uint64_t ticket);
  // Only in jobs with examples by ticket. Waits until the batch of `ticket`,
  // which must have been prepared, is made. Returns false if it is not made by
  // `until`. Sets `*bags` to the batch's ids, or to null if it has none, is not
  // made or could not be made. The ids stay valid until the batch is handed out
  // or dropped.
  bool AwaitMade(uint64_t ticket, absl::Time until, const TableBags** bags);

  // Only in jobs with examples by ticket. Drops the batch that was prepared for
  // `ticket`, if there is one. The caller must not ask for this batch
  // afterwards.
  void Drop(uint64_t ticket);

  // Drops all prepared batches, and lets batches that were handed out be asked
  // for again. No batch is made until one is asked for.
  void Restart();

  // Stops making batches. From then on Next() and NextTicket() return
  // CANCELLED; so do calls of them that are waiting.
  void Stop();

 private:
  // Memory for a batch, and the batch that it is used for.
  struct Slot {
    // kUnwanted: a batch that was dropped while it is being made. The slot
    // becomes free once that is done.
    enum class State { kFree, kMaking, kUnwanted, kReady, kHandedOut };
    State state = State::kFree;
    // The batch's index, as in to_make_.
    uint64_t index = 0;
    // OK if the batch could be made; otherwise the error.
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
  // The loop of each thread: makes the first batch in to_make_ whenever a slot
  // is free.
  void MakeBatches();
  // Makes a batch in `slot`, whose state is kMaking. Except for the state, only
  // this thread uses the slot meanwhile.
  absl::Status Make(uint64_t index, Slot* slot) const;

  // In jobs with examples by step: prepares the batch `index` and those that
  // are predicted after it.
  void Foretell(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hands out the batch `index`, whether it was prepared or not.
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
  // Returns the slot of a prepared batch; null if no thread has begun to make
  // the batch.
  Slot* SlotOf(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The conditions for which the threads wait, and Take() waits.
  bool CanMakeOrStopped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanTakeOrStopped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The index of a batch. In jobs with examples by step it is the batch's
  // number among those of all seats of all steps; in jobs with examples by
  // ticket it is the ticket's index.
  absl::StatusOr<uint64_t> IndexOf(GlobalStep step, int64_t seat) const;
  GlobalStep StepOf(uint64_t index) const;
  int64_t SeatOf(uint64_t index) const;
  absl::StatusOr<PositionRange> RangeOf(uint64_t index) const;
  // For messages: "of seat 1 in step 7", or "of ticket 7".
  std::string NameOf(uint64_t index) const;

  const ExampleSource* const source_;
  const Options options_;
  const int64_t example_size_;
  const ExampleOrder order_;
  const BatchRanges ranges_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // The indices of the batches that are prepared but not begun; the first is
  // made next.
  std::deque<uint64_t> to_make_ ABSL_GUARDED_BY(mutex_);
  // One slot for each of the `prefetch` batches that are made ahead, and one
  // for the batch that is handed out. So there is always a slot for a batch for
  // which Take() waits: no batch is handed out then, and at most `prefetch`
  // others are prepared. An unwanted batch frees its slot soon.
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  // The index of the batch for which Take() waits.
  uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  // Only in jobs with examples by step. next_: the lowest index that may still
  // be handed out. foretold_: the lowest index that has not been prepared.
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t foretold_ ABSL_GUARDED_BY(mutex_) = 0;

  std::vector<std::thread> threads_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_BATCH_PIPELINE_H_
