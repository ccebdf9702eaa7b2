// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_PHASE_METER_H_
#define HOLDFAST_CLIENT_PHASE_METER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/task_report.h"
#include "common/trace/trace.h"

namespace holdfast {

// Measures where a worker's training time goes: into computing, or into
// waiting, and for what (proto::PhaseSeconds).
//
// At any time the worker is in one phase. A change of phase reads the clock
// once and takes an uncontended lock, together some 50 ns. While a trace of the
// whole cluster is recorded, each phase is a span in it, within that of its
// step.
//
// Thread-safe: one thread trains, others report.
class PhaseMeter {
 public:
  enum class Phase {
    kOther,  // anything else, such as logging or starting an evaluation
    kInput,
    kVersion,
    kCompute,
    kPush,
    kVerdict,
    kTicket,
  };

  // The training thread is in `phase` during the lifetime of this object, and
  // then returns to the previous phase. Does nothing with a null meter.
  class Scope {
   public:
    Scope(PhaseMeter* meter, Phase phase) : meter_(meter) {
      if (meter_ != nullptr) before_ = meter_->Enter(phase);
    }
    ~Scope() {
      if (meter_ != nullptr) meter_->Enter(before_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseMeter* const meter_;
    Phase before_ = Phase::kOther;
  };

  // `clock` and `tracer` must outlive the meter. `tracer` must record on demand
  // and use the same clock; null: nothing is recorded.
  explicit PhaseMeter(const Clock* clock, Tracer* tracer = nullptr)
      : clock_(*clock), tracer_(tracer) {
    if (tracer == nullptr) return;
    track_ = tracer->AddTrack("training", Tracer::TrackKind::kNested);
  }

  // Time counts only between these calls, while the worker trains. Pairs of
  // calls may be repeated; training begins in kOther.
  void BeginTraining() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndTraining() ABSL_LOCKS_EXCLUDED(mutex_);

  // Changes the phase, and returns the previous one. Does nothing outside
  // training.
  Phase Enter(Phase phase) ABSL_LOCKS_EXCLUDED(mutex_);

  // The work on a step or a ticket begins, and the work on the previous one
  // ends. `what`: "step" or "ticket".
  void BeginStep(const char* what, uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  // A step, or the work on a ticket, is finished.
  void FinishStep() ABSL_LOCKS_EXCLUDED(mutex_);

  // Sets the number of rows of the training set that this worker has skipped,
  // for its reports.
  void SetSkippedRows(uint64_t rows) ABSL_LOCKS_EXCLUDED(mutex_);

  // The phases so far, including the current one; absent before training has
  // begun. The input wait is given as a share of the time since the last report
  // that was at least a second of training earlier, and as a share of all
  // training. Both shares are absent in the first second of training: they
  // would say nothing about the rest of it, because no batches have been
  // prepared ahead yet.
  TaskReport Report() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the worker's part of the report, without affecting the next Report.
  std::optional<proto::WorkerReport> Look() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr size_t kNumPhases = 7;

  // Adds a span from `since` to `now` to the trace.
  void Trace(TraceKind kind, const char* name, absl::Time since,
             absl::Time now) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void EndStep(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the time that has passed in the current phase.
  void Settle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The time spent in a phase, up to `now`.
  absl::Duration In(Phase phase, absl::Time now) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  std::optional<proto::WorkerReport> LookAt(absl::Time now) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // The step or ticket that the training thread is working on.
  struct Step {
    const char* what = "step";
    uint64_t number = 0;
    absl::Time begun;
  };

  const Clock& clock_;
  Tracer* const tracer_;
  Tracer::Track track_ = 0;
  mutable absl::Mutex mutex_;
  std::optional<Step> step_ ABSL_GUARDED_BY(mutex_);
  bool began_ ABSL_GUARDED_BY(mutex_) = false;
  bool training_ ABSL_GUARDED_BY(mutex_) = false;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kOther;
  // When `phase_` began, while the worker trains.
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  // Indexed by phase: the time spent in it, not counting the time since
  // `since_`.
  std::array<absl::Duration, kNumPhases> passed_ ABSL_GUARDED_BY(mutex_);
  uint64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t skipped_rows_ ABSL_GUARDED_BY(mutex_) = 0;
  // The time spent training, and the time spent waiting for input, when the
  // recent share of the input wait (recent_) was last computed.
  absl::Duration reported_training_ ABSL_GUARDED_BY(mutex_);
  absl::Duration reported_waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<double> recent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_PHASE_METER_H_
