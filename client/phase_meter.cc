#include "client/phase_meter.h"

#include <algorithm>

namespace holdfast {
namespace {

using Phase = PhaseMeter::Phase;

constexpr absl::Duration kWindow = absl::Seconds(1);

// Within what the coordinator accepts, whatever a clock does.
double Share(absl::Duration part, absl::Duration whole) {
  return std::clamp(absl::FDivDuration(part, whole), 0.0, 1.0);
}
double Seconds(absl::Duration duration) {
  return std::max(absl::ToDoubleSeconds(duration), 0.0);
}

// Empty: it waits for nobody.
const char* WaitingFor(Phase phase) {
  switch (phase) {
    case Phase::kInput:
      return "input";
    case Phase::kVersion:
      return "version";
    case Phase::kVerdict:
      return "verdict";
    case Phase::kTicket:
      return "ticket";
    case Phase::kOther:
    case Phase::kCompute:
    case Phase::kPush:
      break;
  }
  return "";
}

}  // namespace

void PhaseMeter::Settle(absl::Time now) {
  passed_[static_cast<size_t>(phase_)] += now - since_;
  since_ = now;
}

void PhaseMeter::BeginTraining() {
  absl::MutexLock lock(&mutex_);
  if (training_) return;
  began_ = true;
  training_ = true;
  phase_ = Phase::kOther;
  since_ = clock_.Now();
}

void PhaseMeter::EndTraining() {
  absl::MutexLock lock(&mutex_);
  if (!training_) return;
  Settle(clock_.Now());
  training_ = false;
  phase_ = Phase::kOther;
}

PhaseMeter::Phase PhaseMeter::Enter(Phase phase) {
  absl::MutexLock lock(&mutex_);
  const Phase before = phase_;
  if (training_ && phase != before) {
    Settle(clock_.Now());
    phase_ = phase;
  }
  return before;
}

void PhaseMeter::FinishStep() {
  absl::MutexLock lock(&mutex_);
  ++steps_;
}

absl::Duration PhaseMeter::In(Phase phase, absl::Time now) const {
  const absl::Duration passed = passed_[static_cast<size_t>(phase)];
  return training_ && phase == phase_ ? passed + (now - since_) : passed;
}

std::optional<proto::WorkerReport> PhaseMeter::LookAt(absl::Time now) const {
  if (!began_) return std::nullopt;
  proto::WorkerReport report;
  proto::PhaseSeconds& phases = *report.mutable_phases();
  phases.set_input(Seconds(In(Phase::kInput, now)));
  phases.set_version(Seconds(In(Phase::kVersion, now)));
  phases.set_compute(Seconds(In(Phase::kCompute, now)));
  phases.set_push(Seconds(In(Phase::kPush, now)));
  phases.set_verdict(Seconds(In(Phase::kVerdict, now)));
  phases.set_ticket(Seconds(In(Phase::kTicket, now)));
  report.set_steps(steps_);
  if (const char* what = training_ ? WaitingFor(phase_) : ""; *what != '\0') {
    report.set_waiting_for(what);
    report.set_waiting_seconds(Seconds(now - since_));
  }
  return report;
}

std::optional<proto::WorkerReport> PhaseMeter::Look() const {
  absl::MutexLock lock(&mutex_);
  return LookAt(clock_.Now());
}

TaskReport PhaseMeter::Report() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  TaskReport report;
  report.worker = LookAt(now);
  absl::Duration training = absl::ZeroDuration();
  for (size_t i = 0; i < kNumPhases; ++i) {
    training += In(static_cast<Phase>(i), now);
  }
  const absl::Duration waiting = In(Phase::kInput, now);
  const absl::Duration window = training - reported_training_;
  if (window >= kWindow) {
    recent_ = Share(waiting - reported_waiting_, window);
    reported_training_ = training;
    reported_waiting_ = waiting;
  }
  if (recent_.has_value()) {
    proto::InputWait& wait = report.input_wait.emplace();
    wait.set_overall(Share(waiting, training));
    wait.set_recent(*recent_);
  }
  return report;
}

}  // namespace holdfast
