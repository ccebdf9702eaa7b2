// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_STEP_TIMER_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_STEP_TIMER_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/job/ids.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// A histogram of durations, with fixed bounds.
//
// Thread-compatible.
class DurationCounts {
 public:
  // Upper bounds of durations, in seconds. There are few, because each becomes
  // a time series in the users' metrics store.
  static constexpr std::array<double, 11> kBounds = {
      0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};

  void Add(absl::Duration duration);
  void AddTo(proto::DurationHistogram* histogram) const;

 private:
  // Element i counts the durations up to kBounds[i] and above the bound before
  // it. The last element counts those above all bounds.
  std::array<uint64_t, kBounds.size() + 1> counts_ = {};
  double sum_seconds_ = 0;
};

// Notified when a step is opened, closed and committed, with the times.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  virtual void OnStepOpened(GlobalStep step, absl::Time now) = 0;
  // Called when `step`, which was opened at `opened` and had the offers that it
  // needs at `complete`, begins to be committed.
  virtual void OnStepClosed(GlobalStep step, absl::Time opened,
                            absl::Time complete, absl::Time now) = 0;
  virtual void OnStepCommitted(GlobalStep step, absl::Time closed,
                               absl::Time now) = 0;
};

// Measures where the time of a synchronous job's steps goes: collecting pushes,
// and committing them. One step is collected while the previous one is
// committed.
//
// Thread-compatible.
class StepTimer {
 public:
  // Sets the watch that is notified from now on; null for none.
  void SetWatch(StepWatch* watch) { watch_ = watch; }

  // Called when a step is open. If the call is repeated, the last call counts.
  void OnOpened(GlobalStep step, absl::Time now);
  // Called when the open step has the offers that it needs.
  void OnComplete(absl::Time now) {
    if (!complete_.has_value()) complete_ = now;
  }
  // Called when the open step is closed with the offers that it has, and begins
  // to be committed.
  void OnClosed(absl::Time now);
  // Called when every shard has committed the step that was closed last.
  void OnCommitted(absl::Time now);
  // Called when a generation is over. Steps in progress are not counted.
  void Reset();

  void AddTo(proto::StepTimes* times) const;

 private:
  StepWatch* watch_ = nullptr;
  GlobalStep open_;
  std::optional<absl::Time> opened_;
  std::optional<absl::Time> complete_;
  // When the step that is being committed was complete. closed_ says when it
  // was closed.
  std::optional<absl::Time> committing_since_;
  GlobalStep committing_;
  absl::Time closed_;
  DurationCounts collect_;
  DurationCounts commit_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_STEP_TIMER_H_
