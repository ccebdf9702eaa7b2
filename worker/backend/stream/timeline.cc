// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/timeline.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace holdfast {

absl::Status Timeline::MarkHere() {
  absl::MutexLock lock(&mutex_);
  return MarkFor(last_).status();
}

absl::Status Timeline::LetWait(StreamId waiter, uint64_t item) {
  uint64_t& waited = waited_[static_cast<int>(waiter)];
  if (item <= std::max(done_.load(), waited)) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  HOLDFAST_ASSIGN_OR_RETURN(const auto mark, MarkFor(item));
  const absl::Status status = runtime_->Wait(waiter, mark.event);
  if (status.ok()) waited = mark.item;
  return status;
}

absl::StatusOr<bool> Timeline::IsDone(uint64_t item) {
  if (item <= done_) return true;
  absl::MutexLock lock(&mutex_);
  HOLDFAST_ASSIGN_OR_RETURN(const auto mark, MarkFor(item));
  const absl::StatusOr<bool> done = runtime_->Query(mark.event);
  if (done.ok() && *done) Pass(mark.item);
  return done;
}

absl::Status Timeline::Await(uint64_t item) {
  if (item <= done_) return absl::OkStatus();
  Mark mark;
  {
    absl::MutexLock lock(&mutex_);
    if (item <= done_) return absl::OkStatus();
    HOLDFAST_ASSIGN_OR_RETURN(mark, MarkFor(item));
    ++waiting_;
  }
  const absl::Status status = runtime_->Synchronize(mark.event);
  absl::MutexLock lock(&mutex_);
  --waiting_;
  if (status.ok()) Pass(mark.item);
  return status;
}

absl::StatusOr<Timeline::Mark> Timeline::MarkFor(uint64_t item) {
  const auto found = std::lower_bound(
      marks_.begin(), marks_.end(), item,
      [](const Mark& mark, uint64_t item) { return mark.item < item; });
  if (found != marks_.end()) return *found;
  // The number of marks grows only here, so this is where those of work that
  // has long been done are removed.
  while (!marks_.empty()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto done,
                              runtime_->Query(marks_.front().event));
    if (!done) break;
    Pass(marks_.front().item);
  }
  if (spare_events_.empty()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto event, runtime_->CreateEvent());
    spare_events_.push_back(event);
  }
  const Mark mark = {last_, spare_events_.back()};
  HOLDFAST_RETURN_IF_ERROR(runtime_->Record(mark.event, stream_));
  spare_events_.pop_back();
  marks_.push_back(mark);
  return mark;
}

void Timeline::Pass(uint64_t item) {
  done_ = std::max(done_.load(), item);
  while (!marks_.empty() && marks_.front().item <= item) {
    passed_events_.push_back(marks_.front().event);
    marks_.pop_front();
  }
  if (waiting_ > 0) return;
  spare_events_.insert(spare_events_.end(), passed_events_.begin(),
                       passed_events_.end());
  passed_events_.clear();
}

}  // namespace holdfast
