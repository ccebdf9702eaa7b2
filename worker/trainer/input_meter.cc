#include "worker/trainer/input_meter.h"

#include <algorithm>

namespace holdfast {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(1);

// Within what the coordinator accepts, whatever a clock does.
double Share(absl::Duration part, absl::Duration whole) {
  return std::clamp(absl::FDivDuration(part, whole), 0.0, 1.0);
}

}  // namespace

void InputMeter::BeginTraining() {
  absl::MutexLock lock(&mutex_);
  training_.Start(clock_.Now());
}

void InputMeter::EndTraining() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  waiting_.Stop(now);
  training_.Stop(now);
}

void InputMeter::BeginWait() {
  absl::MutexLock lock(&mutex_);
  waiting_.Start(clock_.Now());
}

void InputMeter::EndWait() {
  absl::MutexLock lock(&mutex_);
  waiting_.Stop(clock_.Now());
}

std::optional<proto::InputWait> InputMeter::Report() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  const absl::Duration training = training_.At(now);
  const absl::Duration waiting = waiting_.At(now);
  const absl::Duration window = training - reported_training_;
  if (window >= kWindow) {
    recent_ = Share(waiting - reported_waiting_, window);
    reported_training_ = training;
    reported_waiting_ = waiting;
  }
  if (!recent_.has_value()) return std::nullopt;
  proto::InputWait report;
  report.set_overall(Share(waiting, training));
  report.set_recent(*recent_);
  return report;
}

}  // namespace holdfast
