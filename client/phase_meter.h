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

// Where a worker's training time goes: into computing, or into waiting for
// something, and for what (proto::PhaseSeconds).
//
// At any time the worker is in one phase. A change of phase reads the clock
// once and takes an uncontended lock, together some 50 ns. While a trace of the
// whole cluster is recorded, each phase is a span in it, within that of its
// step.
//
// Thread-safe: one thread trains and others report.
class PhaseMeter {
 public:
  enum class Phase {
    kOther,  // what is none of the others: logging, starting an evaluation
    kInput,
    kVersion,
    kCompute,
    kPush,
    kVerdict,
    kTicket,
  };

  // The training thread is in `phase` from the object's construction to its
  // end, then again in the phase before. With a null meter it does nothing.
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

  // Both must outlive the meter. `tracer` records on demand, by the same clock;
  // null: nothing records.
  explicit PhaseMeter(const Clock* clock, Tracer* tracer = nullptr)
      : clock_(*clock), tracer_(tracer) {
    if (tracer == nullptr) return;
    track_ = tracer->AddTrack("training", Tracer::TrackKind::kNested);
  }

  // Between them, the worker trains: time counts. A pair may follow another;
  // training begins in kOther.
  void BeginTraining() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndTraining() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the phase before. Outside training it does nothing.
  Phase Enter(Phase phase) ABSL_LOCKS_EXCLUDED(mutex_);

  // The work on a step or a ticket begins, and that on the one before is over.
  // `what`: "step" or "ticket".
  void BeginStep(const char* what, uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  // A step, or the work on a ticket, is finished.
  void FinishStep() ABSL_LOCKS_EXCLUDED(mutex_);

  // Rows of the training set that this worker has left out, for its reports.
  void SetSkippedRows(uint64_t rows) ABSL_LOCKS_EXCLUDED(mutex_);

  // The phases so far, that under way among them; absent before training began.
  // The input wait is the share since the last report that was at least a
  // second of training before, and that of all training; absent before there
  // was a second of training: its first moments, when nothing is made ahead
  // yet, say nothing about the rest.
  TaskReport Report() ABSL_LOCKS_EXCLUDED(mutex_);

  // The worker's part of it, which leaves the next Report as it is.
  std::optional<proto::WorkerReport> Look() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr size_t kNumPhases = 7;

  // Adds to the trace what has begun at `since`.
  void Trace(TraceKind kind, const char* name, absl::Time since,
             absl::Time now) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void EndStep(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds what has passed in the current phase.
  void Settle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // In a phase, up to `now`.
  absl::Duration In(Phase phase, absl::Time now) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  std::optional<proto::WorkerReport> LookAt(absl::Time now) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // What the training thread is at.
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
  // While training: since when it is in `phase_`.
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  // By phase, without what has passed since `since_`.
  std::array<absl::Duration, kNumPhases> passed_ ABSL_GUARDED_BY(mutex_);
  uint64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t skipped_rows_ ABSL_GUARDED_BY(mutex_) = 0;
  // As of the last report that counts.
  absl::Duration reported_training_ ABSL_GUARDED_BY(mutex_);
  absl::Duration reported_waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<double> recent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_PHASE_METER_H_
