// SPDX-License-Identifier: Apache-2.0
#include "worker/input/batch_pipeline.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

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
  status.Update(at_least_1("prefetch", options.prefetch));
  status.Update(at_least_1("threads", options.threads));
  if (options.by_ticket) return status;
  status.Update(at_least_1("seats_per_step", options.seats_per_step));
  if (!status.ok()) return status;
  const std::vector<int64_t>& seats = options.seats;
  if (seats.empty() || seats.front() < 0 ||
      seats.back() >= options.seats_per_step ||
      std::adjacent_find(seats.begin(), seats.end(), std::greater_equal<>()) !=
          seats.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch pipeline: seats are [", absl::StrJoin(seats, ", "),
                     "], but must be one or more, ascending, from 0 to ",
                     options.seats_per_step - 1));
  }
  return absl::OkStatus();
}

absl::Status WrongAssignment(absl::string_view asked_for,
                             absl::string_view made) {
  return absl::FailedPreconditionError(
      absl::StrCat("a batch by ", asked_for,
                   " was asked for; this pipeline makes batches by ", made));
}

// Allocates uninitialised memory. Returns null if there is none.
template <typename T>
std::unique_ptr<T[]> Allocate(int64_t size) {
  return std::unique_ptr<T[]>(new (std::nothrow) T[size]);
}

InputMemory AllocateInputs(int64_t size) {
  return InputMemory(Allocate<float>(size).release(),
                     [](float* memory) { delete[] memory; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchPipeline>> BatchPipeline::Start(
    const ExampleSource* source, Options options) {
  HOLDFAST_RETURN_IF_ERROR(Check(options));
  const int threads = std::min(options.threads, options.prefetch);
  std::unique_ptr<BatchPipeline> pipeline(
      new BatchPipeline(source, std::move(options)));
  HOLDFAST_RETURN_IF_ERROR(pipeline->AllocateSlots());
  if (!pipeline->options_.by_ticket) {
    absl::MutexLock lock(&pipeline->mutex_);
    pipeline->Foretell(0);
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
      example_size_(source->spec().input_size()),
      order_(options_.seed, source->num_examples(), options_.shuffle),
      ranges_({.num_examples = source->num_examples(),
               .batch_size = options_.batch_size,
               .seats_per_step = options_.seats_per_step,
               .short_last_batch = options_.short_last_batch}) {}

BatchPipeline::~BatchPipeline() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status BatchPipeline::AllocateSlots() {
  const int64_t batches = int64_t{options_.prefetch} + 1;
  const absl::Status no_memory = absl::ResourceExhaustedError(
      absl::StrCat("no memory for ", batches, " batches of ",
                   options_.batch_size, " examples of ", example_size_,
                   " values; use a smaller batch_size or prefetch"));
  int64_t values = 0;
  if (__builtin_mul_overflow(options_.batch_size, example_size_, &values) ||
      values > std::numeric_limits<int64_t>::max() / int64_t{sizeof(float)}) {
    return no_memory;
  }
  absl::MutexLock lock(&mutex_);
  slots_.resize(batches);
  for (Slot& slot : slots_) {
    if (options_.allocate) {
      absl::StatusOr<InputMemory> memory = options_.allocate(values);
      if (!memory.ok()) {
        return absl::Status(
            memory.status().code(),
            absl::StrCat(no_memory.message(), ": ", memory.status().message()));
      }
      slot.inputs = *std::move(memory);
    } else {
      slot.inputs = AllocateInputs(values);
    }
    slot.answers = Answers(source_->spec(), options_.batch_size);
    slot.bags = TableBags(source_->spec().id_fields, options_.table_fields);
    slot.positions = Allocate<int64_t>(options_.batch_size);
    if (slot.inputs == nullptr || !slot.answers.ok() ||
        slot.positions == nullptr) {
      return no_memory;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Batch> BatchPipeline::Next(GlobalStep step, int64_t seat,
                                          absl::Time deadline) {
  if (options_.by_ticket) return WrongAssignment("step", "ticket");
  absl::StatusOr<uint64_t> index = IndexOf(step, seat);
  if (!index.ok()) return index.status();

  absl::MutexLock lock(&mutex_);
  if (*index < next_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the batch ", NameOf(*index),
        " was asked for; batches are handed out once and in order, the next is "
        "that ",
        NameOf(next_), " or a later one"));
  }
  next_ = *index;
  DropIf([index = *index](uint64_t left_out) { return left_out < index; });
  Foretell(*index);
  absl::StatusOr<Batch> batch = Take(*index, deadline);
  if (batch.ok()) next_ = *index + 1;
  return batch;
}

absl::Status BatchPipeline::Prepare(uint64_t ticket) {
  if (!options_.by_ticket) return WrongAssignment("ticket", "step");
  absl::MutexLock lock(&mutex_);
  if (IsPrepared(ticket)) return absl::OkStatus();
  if (NumPrepared() >= options_.prefetch) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot prepare the batch ", NameOf(ticket), ": ",
                     NumPrepared(), " are prepared already"));
  }
  to_make_.push_back(ticket);
  return absl::OkStatus();
}

absl::StatusOr<Batch> BatchPipeline::NextTicket(uint64_t ticket,
                                                absl::Time deadline) {
  if (!options_.by_ticket) return WrongAssignment("ticket", "step");
  absl::MutexLock lock(&mutex_);
  if (!IsPrepared(ticket) && NumPrepared() > options_.prefetch) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no room for the batch ", NameOf(ticket), ": ", NumPrepared(),
        " are prepared already, and must be taken or dropped first"));
  }
  return Take(ticket, deadline);
}

const TableBags* BatchPipeline::NextBags() {
  absl::MutexLock lock(&mutex_);
  return options_.by_ticket ? nullptr : BagsOf(next_);
}

const TableBags* BatchPipeline::BagsOfTicket(uint64_t ticket) {
  absl::MutexLock lock(&mutex_);
  return BagsOf(ticket);
}

bool BatchPipeline::AwaitMade(uint64_t ticket, absl::Time until,
                              const TableBags** bags) {
  absl::MutexLock lock(&mutex_);
  const auto is_made = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Slot* const slot = SlotOf(ticket);
    return stopped_ || !IsPrepared(ticket) ||
           (slot != nullptr && slot->state == Slot::State::kReady);
  };
  const bool in_time =
      mutex_.AwaitWithTimeout(absl::Condition(&is_made), until - SteadyNow());
  *bags = BagsOf(ticket);
  return in_time;
}

const TableBags* BatchPipeline::BagsOf(uint64_t index) {
  const Slot* const slot = SlotOf(index);
  const bool is_made = slot != nullptr && slot->state == Slot::State::kReady &&
                       slot->status.ok();
  return is_made && !slot->bags.empty() ? &slot->bags : nullptr;
}

void BatchPipeline::Drop(uint64_t ticket) {
  absl::MutexLock lock(&mutex_);
  DropIf([ticket](uint64_t index) { return index == ticket; });
}

void BatchPipeline::Restart() {
  absl::MutexLock lock(&mutex_);
  DropIf([](uint64_t) { return true; });
  next_ = 0;
  foretold_ = 0;
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
    const uint64_t index = to_make_.front();
    to_make_.pop_front();
    slot->state = Slot::State::kMaking;
    slot->index = index;
    mutex_.Unlock();
    absl::Status status = Make(index, slot);
    mutex_.Lock();
    slot->status = std::move(status);
    slot->state = slot->state == Slot::State::kUnwanted ? Slot::State::kFree
                                                        : Slot::State::kReady;
  }
}

absl::Status BatchPipeline::Make(uint64_t index, Slot* slot) const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto range, RangeOf(index));
  slot->size = range.count;
  const ImageAugmenter* const augmenter = options_.augmenter;
  // The example as read, if the augmenter changes it.
  std::vector<float> as_read(augmenter != nullptr ? example_size_ : 0);
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t position = range.begin + i;
    slot->positions[i] = position;
    const auto input =
        absl::MakeSpan(slot->inputs.get() + i * example_size_, example_size_);
    HOLDFAST_RETURN_IF_ERROR(source_->Read(
        order_.At(position),
        slot->answers.At(
            i, augmenter != nullptr ? absl::MakeSpan(as_read) : input)));
    if (augmenter != nullptr) {
      augmenter->Apply(augmenter->ChangeAt(position), as_read, input);
    }
  }
  slot->bags.Assign(range.count, slot->answers.ids());
  return absl::OkStatus();
}

void BatchPipeline::Foretell(uint64_t index) {
  foretold_ = std::max(foretold_, index);
  const uint64_t window = options_.prefetch;
  while (foretold_ - index <= window) to_make_.push_back(foretold_++);
}

absl::StatusOr<Batch> BatchPipeline::Take(uint64_t index, absl::Time deadline) {
  for (Slot& slot : slots_) {
    if (slot.state == Slot::State::kHandedOut) slot.state = Slot::State::kFree;
  }
  if (SlotOf(index) == nullptr) {
    // A batch that is waited for is made before others.
    to_make_.erase(std::remove(to_make_.begin(), to_make_.end(), index),
                   to_make_.end());
    to_make_.push_front(index);
  }
  asked_ = index;
  const bool in_time = mutex_.AwaitWithTimeout(
      absl::Condition(this, &BatchPipeline::CanTakeOrStopped),
      deadline - SteadyNow());
  if (stopped_) {
    return absl::CancelledError(
        absl::StrCat("the batch pipeline was stopped before the batch ",
                     NameOf(index), " was taken"));
  }
  if (!in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("timed out waiting for the batch ", NameOf(index),
                     " to be read by the input threads"));
  }
  Slot* slot = SlotOf(index);
  if (!slot->status.ok()) {
    slot->state = Slot::State::kFree;
    return absl::Status(slot->status.code(),
                        absl::StrCat("cannot make the batch ", NameOf(index),
                                     ": ", slot->status.message()));
  }
  slot->state = Slot::State::kHandedOut;
  Batch batch;
  batch.inputs = slot->Inputs(example_size_);
  slot->answers.Show(slot->size, &batch);
  if (!slot->bags.empty()) batch.bags = &slot->bags;
  batch.positions = slot->Positions();
  // The next batch does not change until a call of this thread takes or drops
  // it. In jobs with examples by ticket, it is not known which batch is next.
  const Slot* const next = options_.by_ticket ? nullptr : SlotOf(index + 1);
  if (next != nullptr && next->state == Slot::State::kReady &&
      next->status.ok()) {
    batch.next_inputs = next->Inputs(example_size_);
    batch.next_positions = next->Positions();
  }
  return batch;
}

template <typename Predicate>
void BatchPipeline::DropIf(Predicate unwanted) {
  to_make_.erase(std::remove_if(to_make_.begin(), to_make_.end(), unwanted),
                 to_make_.end());
  for (Slot& slot : slots_) {
    if (!slot.IsPrepared() || !unwanted(slot.index)) continue;
    slot.state = slot.state == Slot::State::kMaking ? Slot::State::kUnwanted
                                                    : Slot::State::kFree;
  }
}

bool BatchPipeline::IsPrepared(uint64_t index) {
  return SlotOf(index) != nullptr ||
         std::find(to_make_.begin(), to_make_.end(), index) != to_make_.end();
}

int BatchPipeline::NumPrepared() const {
  const auto in_slots =
      std::count_if(slots_.begin(), slots_.end(),
                    [](const Slot& slot) { return slot.IsPrepared(); });
  return static_cast<int>(to_make_.size() + in_slots);
}

BatchPipeline::Slot* BatchPipeline::FreeSlot() {
  for (Slot& slot : slots_) {
    if (slot.state == Slot::State::kFree) return &slot;
  }
  return nullptr;
}

BatchPipeline::Slot* BatchPipeline::SlotOf(uint64_t index) {
  for (Slot& slot : slots_) {
    if (slot.IsPrepared() && slot.index == index) return &slot;
  }
  return nullptr;
}

bool BatchPipeline::CanMakeOrStopped() {
  return stopped_ || (!to_make_.empty() && FreeSlot() != nullptr);
}

bool BatchPipeline::CanTakeOrStopped() {
  const Slot* const slot = SlotOf(asked_);
  return stopped_ || (slot != nullptr && slot->state == Slot::State::kReady);
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
  uint64_t index = 0;
  if (__builtin_mul_overflow(step.value(), uint64_t{options_.seats.size()},
                             &index) ||
      __builtin_add_overflow(index, found - options_.seats.begin(), &index)) {
    return absl::OutOfRangeError(
        absl::StrCat("a batch of step ", step.value(),
                     " was asked for, which is out of range"));
  }
  return index;
}

GlobalStep BatchPipeline::StepOf(uint64_t index) const {
  return GlobalStep(index / options_.seats.size());
}

int64_t BatchPipeline::SeatOf(uint64_t index) const {
  return options_.seats[index % options_.seats.size()];
}

absl::StatusOr<PositionRange> BatchPipeline::RangeOf(uint64_t index) const {
  if (options_.by_ticket) return ranges_.OfTicket(index);
  return ranges_.OfSeat(StepOf(index).value(), SeatOf(index));
}

std::string BatchPipeline::NameOf(uint64_t index) const {
  if (options_.by_ticket) return absl::StrCat("of ticket ", index);
  return absl::StrCat("of seat ", SeatOf(index), " in step ",
                      StepOf(index).value());
}

}  // namespace holdfast
