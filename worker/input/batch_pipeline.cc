#include "worker/input/batch_pipeline.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {
namespace {

absl::Status Check(const BatchPipeline::Options& options) {
  const auto at_least_1 = [](absl::string_view name, int64_t value) {
    return value >= 1 ? absl::OkStatus()
                      : absl::InvalidArgumentError(
                            absl::StrCat("batch pipeline: ", name, " is ",
                                         value, ", but must be at least 1"));
  };
  absl::Status status = at_least_1("batch_size", options.batch_size);
  status.Update(at_least_1("seats_per_step", options.seats_per_step));
  status.Update(at_least_1("prefetch", options.prefetch));
  status.Update(at_least_1("threads", options.threads));
  if (!status.ok()) return status;
  const std::vector<int64_t>& seats = options.seats;
  if (seats.empty() || seats.front() < 0 ||
      seats.back() >= options.seats_per_step ||
      std::adjacent_find(seats.begin(), seats.end(), std::greater_equal<>()) !=
          seats.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch pipeline: seats are [", absl::StrJoin(seats, ", "),
                     "], but must be one or more, rising, of 0 to ",
                     options.seats_per_step - 1));
  }
  return absl::OkStatus();
}

// Uninitialised, and null when there is no memory.
template <typename T>
std::unique_ptr<T[]> Allocate(int64_t size) {
  return std::unique_ptr<T[]>(new (std::nothrow) T[size]);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchPipeline>> BatchPipeline::Start(
    const ExampleSource* source, Options options) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  const int threads = std::min(options.threads, options.prefetch);
  std::unique_ptr<BatchPipeline> pipeline(
      new BatchPipeline(source, std::move(options)));
  if (absl::Status status = pipeline->AllocateSlots(); !status.ok()) {
    return status;
  }
  for (int i = 0; i < threads; ++i) {
    pipeline->threads_.emplace_back(&BatchPipeline::MakeBatches,
                                    pipeline.get());
  }
  return pipeline;
}

BatchPipeline::BatchPipeline(const ExampleSource* source, Options options)
    : source_(source),
      options_(std::move(options)),
      example_size_(ExampleSize(*source)),
      order_(options_.seed, source->num_examples()) {}

BatchPipeline::~BatchPipeline() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status BatchPipeline::AllocateSlots() {
  const int64_t batches = int64_t{options_.prefetch} + 1;
  const absl::Status no_memory = absl::ResourceExhaustedError(
      absl::StrCat("no memory for ", batches, " batches of ",
                   options_.batch_size, " examples of ", example_size_,
                   " values; take a smaller batch_size or prefetch"));
  int64_t values = 0;
  if (__builtin_mul_overflow(options_.batch_size, example_size_, &values) ||
      values > std::numeric_limits<int64_t>::max() / int64_t{sizeof(float)}) {
    return no_memory;
  }
  absl::MutexLock lock(&mutex_);
  slots_.resize(batches);
  for (Slot& slot : slots_) {
    slot.inputs = Allocate<float>(values);
    slot.labels = Allocate<int32_t>(options_.batch_size);
    if (slot.inputs == nullptr || slot.labels == nullptr) return no_memory;
  }
  return absl::OkStatus();
}

absl::StatusOr<Batch> BatchPipeline::Next(GlobalStep step, int64_t seat,
                                          absl::Time deadline) {
  absl::StatusOr<uint64_t> index = IndexOf(step, seat);
  if (!index.ok()) return index.status();

  absl::MutexLock lock(&mutex_);
  if (*index < wanted_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the batch ", NameOf(*index),
        " was asked for; batches are handed out in order and once, the next is "
        "that ",
        NameOf(wanted_), " or a later one"));
  }
  // What was handed out is given back, and what was left out is dropped; a
  // batch in the making that is not wanted is dropped by its thread.
  wanted_ = *index;
  next_to_make_ = std::max(next_to_make_, *index);
  for (Slot& slot : slots_) {
    if (slot.state == Slot::State::kHandedOut ||
        (slot.state == Slot::State::kReady && slot.index < wanted_)) {
      slot.state = Slot::State::kFree;
    }
  }
  // It is made, in the making, or next to be made, and there is or will be a
  // slot for it: none is kept for an earlier one, and later ones are begun
  // after it.
  const bool in_time = mutex_.AwaitWithDeadline(
      absl::Condition(this, &BatchPipeline::CanTakeOrStopped), deadline);
  if (stopped_) {
    return absl::CancelledError(
        absl::StrCat("the batch pipeline was stopped before the batch ",
                     NameOf(*index), " was taken"));
  }
  if (!in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("waited in vain for the batch ", NameOf(*index),
                     " to be read by the input threads"));
  }
  Slot* slot = WantedSlot();
  if (!slot->status.ok()) {
    return absl::Status(slot->status.code(),
                        absl::StrCat("cannot make the batch ", NameOf(*index),
                                     ": ", slot->status.message()));
  }
  slot->state = Slot::State::kHandedOut;
  wanted_ = *index + 1;
  return Batch{absl::MakeConstSpan(slot->inputs.get(),
                                   options_.batch_size * example_size_),
               absl::MakeConstSpan(slot->labels.get(), options_.batch_size)};
}

void BatchPipeline::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

void BatchPipeline::MakeBatches() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &BatchPipeline::CanMakeOrStopped));
    if (stopped_) return;
    Slot* slot = FreeSlot();
    const uint64_t index = next_to_make_++;
    slot->state = Slot::State::kMaking;
    slot->index = index;
    mutex_.Unlock();
    absl::Status status = Make(index, slot);
    mutex_.Lock();
    slot->status = std::move(status);
    slot->state = index < wanted_ ? Slot::State::kFree : Slot::State::kReady;
  }
}

absl::Status BatchPipeline::Make(uint64_t index, Slot* slot) const {
  const absl::StatusOr<int64_t> first =
      FirstPosition(StepOf(index).value(), options_.seats_per_step,
                    SeatOf(index), options_.batch_size);
  if (!first.ok()) return first.status();
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    const absl::Status status = source_->Read(
        order_.At(*first + i),
        absl::MakeSpan(slot->inputs.get() + i * example_size_, example_size_),
        &slot->labels[i]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> BatchPipeline::IndexOf(GlobalStep step,
                                                int64_t seat) const {
  const auto found =
      std::lower_bound(options_.seats.begin(), options_.seats.end(), seat);
  if (found == options_.seats.end() || *found != seat) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of seat ", seat, " was asked for; seats of this worker are ",
        absl::StrJoin(options_.seats, ", ")));
  }
  if (step < options_.first_step) {
    return absl::FailedPreconditionError(
        absl::StrCat("a batch of step ", step.value(),
                     " was asked for; the first step here is ",
                     options_.first_step.value()));
  }
  uint64_t index = 0;
  if (__builtin_mul_overflow(step.value() - options_.first_step.value(),
                             uint64_t{options_.seats.size()}, &index) ||
      __builtin_add_overflow(index, found - options_.seats.begin(), &index)) {
    return absl::OutOfRangeError(absl::StrCat(
        "a batch of step ", step.value(), " was asked for, which is too far"));
  }
  return index;
}

GlobalStep BatchPipeline::StepOf(uint64_t index) const {
  return GlobalStep(options_.first_step.value() +
                    index / options_.seats.size());
}

int64_t BatchPipeline::SeatOf(uint64_t index) const {
  return options_.seats[index % options_.seats.size()];
}

std::string BatchPipeline::NameOf(uint64_t index) const {
  return absl::StrCat("of seat ", SeatOf(index), " in step ",
                      StepOf(index).value());
}

BatchPipeline::Slot* BatchPipeline::FreeSlot() {
  for (Slot& slot : slots_) {
    if (slot.state == Slot::State::kFree) return &slot;
  }
  return nullptr;
}

BatchPipeline::Slot* BatchPipeline::WantedSlot() {
  for (Slot& slot : slots_) {
    if (slot.state == Slot::State::kReady && slot.index == wanted_) {
      return &slot;
    }
  }
  return nullptr;
}

}  // namespace holdfast
