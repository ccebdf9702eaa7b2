#ifndef HOLDFAST_WORKER_INPUT_BATCH_PIPELINE_H_
#define HOLDFAST_WORKER_INPUT_BATCH_PIPELINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "worker/input/batch.h"
#include "worker/input/example_order.h"
#include "worker/input/example_source.h"

namespace holdfast {

// Makes the batches of a worker's seats ahead of their use, on threads of its
// own. The batch of a seat in a step is fixed (example_order.h); which batches
// will be asked for is foretold by a rule: from the first step on, every step,
// the worker's own seats in rising order.
//
// A worker that is late may leave out steps: it asks for what it wants, and
// whatever lies before that is dropped or never made.
//
// Next() is for one thread at a time, which may be any; Stop() may be called
// from any thread at any time. Invariants: at most `prefetch` + 1 batches are
// in memory, the one handed out among them. Memory is taken once, at the start.
class BatchPipeline {
 public:
  struct Options {
    // Examples in a batch; at least 1.
    int64_t batch_size = 1;
    // Of the order of examples.
    uint64_t seed = 0;
    // The first step that may be asked for.
    GlobalStep first_step;
    // Seats of a step, of all workers; at least 1.
    int64_t seats_per_step = 1;
    // Those asked for here, rising; at least one.
    std::vector<int64_t> seats = {0};
    // Batches made ahead; at least 1. More bridge longer stalls of the source;
    // each costs a batch of memory.
    int prefetch = 4;
    // That make batches; at least 1. More than `prefetch` have nothing to do.
    int threads = 1;
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

  // The batch of `seat` in `step`. Its memory stays until the next call.
  // Errors:
  //   INVALID_ARGUMENT: `seat` is not among Options::seats.
  //   FAILED_PRECONDITION: the batch, or a later one, was handed out before, or
  //     `step` is before the first.
  //   OUT_OF_RANGE: its examples lie beyond the end of the numbers.
  //   DEADLINE_EXCEEDED: it was not made until `deadline`; it may be asked for
  //     again.
  //   CANCELLED: stopped.
  //   Any other: of the source. Asked again, the answer is the same.
  absl::StatusOr<Batch> Next(GlobalStep step, int64_t seat,
                             absl::Time deadline);

  // Ends making batches; Next() returns CANCELLED from now on, also where it is
  // waiting.
  void Stop();

 private:
  // The memory of a batch, and what it is used for.
  struct Slot {
    enum class State { kFree, kMaking, kReady, kHandedOut };
    State state = State::kFree;
    // Place of the batch in the foretold sequence.
    uint64_t index = 0;
    // Of making it.
    absl::Status status;
    std::unique_ptr<float[]> inputs;
    std::unique_ptr<int32_t[]> labels;
  };

  BatchPipeline(const ExampleSource* source, Options options);

  absl::Status AllocateSlots();
  // A thread: makes the next batch whenever a slot is free.
  void MakeBatches();
  // Fills `slot`, which is kMaking, and so this thread's alone but for its
  // state.
  absl::Status Make(uint64_t index, Slot* slot) const;

  absl::StatusOr<uint64_t> IndexOf(GlobalStep step, int64_t seat) const;
  GlobalStep StepOf(uint64_t index) const;
  int64_t SeatOf(uint64_t index) const;
  // "of seat 1 in step 7".
  std::string NameOf(uint64_t index) const;

  Slot* FreeSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slot* WantedSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the threads, and Next(), wait for.
  bool CanMakeOrStopped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ || FreeSlot() != nullptr;
  }
  bool CanTakeOrStopped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ || WantedSlot() != nullptr;
  }

  const ExampleSource* const source_;
  const Options options_;
  const int64_t example_size_;
  const ExampleOrder order_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // Least index that is not begun.
  uint64_t next_to_make_ ABSL_GUARDED_BY(mutex_) = 0;
  // Least index that may still be handed out.
  uint64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  // One for each batch made ahead and one for that handed out.
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::thread> threads_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_BATCH_PIPELINE_H_
