// SPDX-License-Identifier: Apache-2.0
#include "client/phase_meter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

using Phase = PhaseMeter::Phase;

constexpr absl::Duration kWindow = absl::Seconds(1);

// Clamped to what the coordinator accepts, whatever the clock does.
double Share(absl::Duration part, absl::Duration whole) {
  return std::clamp(absl::FDivDuration(part, whole), 0.0, 1.0);
}
double Seconds(absl::Duration duration) {
  return std::max(absl::ToDoubleSeconds(duration), 0.0);
}

// Returns what the worker waits for in a phase; empty if it does not wait.
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

// The name of the phase's spans.
const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kInput:
      return "input";
    case Phase::kVersion:
      return "version";
    case Phase::kCompute:
      return "compute";
    case Phase::kPush:
      return "push";
    case Phase::kVerdict:
      return "verdict";
    case Phase::kTicket:
      return "ticket";
    case Phase::kOther:
      break;
  }
  return "";
}

TraceKind KindOf(Phase phase) {
  return phase == Phase::kCompute ? TraceKind::kModel : TraceKind::kWait;
}

}  // namespace

void PhaseMeter::Trace(TraceKind kind, const char* name, absl::Time since,
                       absl::Time now) const {
  if (tracer_ == nullptr || !tracer_->recording()) return;
  TraceSpan span;
  span.kind = kind;
  span.name = name;
  span.begin = since;
  span.end = now;
  if (step_.has_value()) {
    if (kind == TraceKind::kStep) {
      span.name = absl::StrCat(name, " ", step_->number);
    }
    span.args.emplace_back(step_->what, step_->number);
  }
  tracer_->Add(track_, std::move(span));
}

void PhaseMeter::EndStep(absl::Time now) {
  if (!step_.has_value()) return;
  Trace(TraceKind::kStep, step_->what, step_->begun, now);
  step_.reset();
}

void PhaseMeter::BeginStep(const char* what, uint64_t number) {
  if (tracer_ == nullptr) return;
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  if (training_) Settle(now);
  EndStep(now);
  step_ = {what, number, now};
}

void PhaseMeter::Settle(absl::Time now) {
  if (phase_ != Phase::kOther)
    Trace(KindOf(phase_), NameOf(phase_), since_, now);
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
  const absl::Time now = clock_.Now();
  Settle(now);
  EndStep(now);
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

void PhaseMeter::SetSkippedRows(uint64_t rows) {
  absl::MutexLock lock(&mutex_);
  skipped_rows_ = rows;
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
  report.set_skipped_rows(skipped_rows_);
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
