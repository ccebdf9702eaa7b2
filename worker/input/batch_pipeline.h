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

// Given back as its maker says.
using InputMemory = std::unique_ptr<float[], std::function<void(float*)>>;

// Makes a worker's batches ahead of their use, on threads of its own. What a
// batch is made of is fixed (batch_ranges.h); which batches will be asked for
// depends on how the job's examples are assigned:
//
//   by step:    it is foretold by a rule: from step 0 on, every step, the
//               worker's own seats in rising order. A worker that is late may
//               leave out steps: it asks for what it wants, and whatever lies
//               before that is dropped or never made. Restart() leads back.
//   by ticket:  Prepare() tells it, ticket by ticket; they are asked for in any
//               order.
//
// Next(), NextTicket(), Drop() and Restart() are for one thread at a time,
// which may be any; Prepare(), AwaitMade() and Stop() may be called from any
// thread at any time.
// Invariants: at most `prefetch` + 1 batches are in memory, the one handed out
// among them. Memory is taken once, at the start.
class BatchPipeline {
 public:
  struct Options {
    // Examples in a batch; at least 1.
    int64_t batch_size = 1;
    // Every epoch has batches of its own, of which the last may be smaller; by
    // step, seats may be left without one. False: a batch may reach into the
    // next epoch.
    bool short_last_batch = false;
    // Of the order of examples.
    uint64_t seed = 0;
    Shuffle shuffle;
    // Batches made ahead; at least 1. More bridge longer stalls of the source;
    // each costs a batch of memory.
    int prefetch = 4;
    // That make batches; at least 1. More than `prefetch` have nothing to do.
    int threads = 1;
    // Memory for so many values of inputs, as of Backend::AllocateHost, whose
    // errors are Start's. Empty: any memory.
    std::function<absl::StatusOr<InputMemory>(int64_t size)> allocate;
    // Changes the examples. Null: nothing does. Must outlive the pipeline.
    const ImageAugmenter* augmenter = nullptr;
    // By table of the model, the fields of ids whose rows it has
    // (ModelTable::fields). Empty: batches have no ids.
    std::vector<std::vector<int>> table_fields;

    // How the examples are assigned. True: by ticket, and what follows is not
    // looked at.
    bool by_ticket = false;
    // Seats of a step, of all workers; at least 1.
    int64_t seats_per_step = 1;
    // Those asked for here, rising; at least one.
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

  // By step: the batch of `seat` in `step`, empty where the epoch's examples
  // have run out; with the one after it as its next, if that is made. Its
  // memory stays until the next call of this. Errors:
  //   INVALID_ARGUMENT: `seat` is not among Options::seats.
  //   FAILED_PRECONDITION: the batch, or a later one, was handed out before;
  //     the batches are by ticket.
  //   OUT_OF_RANGE: its examples lie beyond the end of the numbers.
  //   DEADLINE_EXCEEDED: it was not made until `deadline`; it may be asked for
  //     again.
  //   CANCELLED: stopped.
  //   Any other: of the source. Asked again, it is made again.
  absl::StatusOr<Batch> Next(GlobalStep step, int64_t seat,
                             absl::Time deadline);

  // By ticket: has the batch of the ticket with this index made, unless it is
  // made or in the making already. Does not wait.
  // Errors:
  //   RESOURCE_EXHAUSTED: `prefetch` batches are prepared that were neither
  //     taken nor dropped.
  //   FAILED_PRECONDITION: the batches are by step.
  absl::Status Prepare(uint64_t ticket);

  // By ticket: the batch of the ticket with this index, whether it was prepared
  // or not. Its memory stays until the next call of this.
  // Errors:
  //   RESOURCE_EXHAUSTED: it was not prepared, and others, asked for in vain,
  //     leave it no room: ask for these again or drop them.
  //   FAILED_PRECONDITION: the batches are by step.
  //   OUT_OF_RANGE, DEADLINE_EXCEEDED, CANCELLED, any other: as Next(). What
  //     was not made until `deadline` is prepared.
  absl::StatusOr<Batch> NextTicket(uint64_t ticket, absl::Time deadline);

  // The ids of a batch that is prepared and made already: by step, of the one
  // behind the last that was handed out; by ticket, of that ticket. Null where
  // it is not. They stay until the next call of this thread.
  const TableBags* NextBags();
  const TableBags* BagsOfTicket(uint64_t ticket);
  // By ticket, from any thread: waits until the batch of a ticket that was
  // prepared, and is taken later, is made. False at `until`. Then, or else,
  // `bags` are its ids, or null where there are none; they stay until it is
  // taken or dropped.
  bool AwaitMade(uint64_t ticket, absl::Time until, const TableBags** bags);

  // By ticket: what was prepared for this ticket will not be asked for. Does
  // nothing where nothing was.
  void Drop(uint64_t ticket);

  // Begins again, at any batch: what was handed out may be asked for again, and
  // what was prepared is dropped. Nothing is made until it is asked for.
  void Restart();

  // Ends making batches; Next() and NextTicket() return CANCELLED from now on,
  // also where they are waiting.
  void Stop();

 private:
  // The memory of a batch, and what it is used for.
  struct Slot {
    // kUnwanted is in the making, and free after that.
    enum class State { kFree, kMaking, kUnwanted, kReady, kHandedOut };
    State state = State::kFree;
    // Of the batch, as in to_make_.
    uint64_t index = 0;
    // Of making it.
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
  // A thread: makes the first of to_make_ whenever a slot is free.
  void MakeBatches();
  // Fills `slot`, which is kMaking, and so this thread's alone but for its
  // state.
  absl::Status Make(uint64_t index, Slot* slot) const;

  // By step: has `index` and those that will be asked for after it made.
  void Foretell(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hands out the batch, prepared or not.
  absl::StatusOr<Batch> Take(uint64_t index, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets the prepared batches of whose index `unwanted` is true.
  template <typename Predicate>
  void DropIf(Predicate unwanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool IsPrepared(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int NumPrepared() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slot* FreeSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As NextBags.
  const TableBags* BagsOf(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a prepared batch; null where it is not begun.
  Slot* SlotOf(uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the threads, and Take(), wait for.
  bool CanMakeOrStopped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanTakeOrStopped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // By step, the index of a batch is its place among those of all steps; by
  // ticket, that of the ticket.
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
  // Batches that are prepared and not begun; the next to be made is the first.
  std::deque<uint64_t> to_make_ ABSL_GUARDED_BY(mutex_);
  // One for each batch made ahead and one for that handed out. So there is one
  // for a batch that is waited for: none is handed out then, and of the others
  // at most `prefetch` are prepared; what is unwanted leaves its slot soon.
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  // What Take() waits for.
  uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  // By step: the least index that may still be handed out, and the least that
  // was not prepared.
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t foretold_ ABSL_GUARDED_BY(mutex_) = 0;

  std::vector<std::thread> threads_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_BATCH_PIPELINE_H_
