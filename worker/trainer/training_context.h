#ifndef HOLDFAST_WORKER_TRAINER_TRAINING_CONTEXT_H_
#define HOLDFAST_WORKER_TRAINER_TRAINING_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "client/phase_meter.h"
#include "common/base/clock.h"
#include "common/job/ids.h"
#include "common/job/loss_watch.h"
#include "common/process/host_memory.h"
#include "common/trace/trace.h"
#include "proto/cluster.pb.h"
#include "worker/input/batch_pipeline.h"
#include "worker/trainer/batch_rows.h"
#include "worker/trainer/evaluator.h"
#include "worker/trainer/gradient.h"

namespace holdfast {

// What the training thread does or waits for, from the object's construction to
// its end: a span of the trace, and a phase of the meter.
class TracedPhase {
 public:
  // `name`, of the span, must outlive the object. A null tracer records
  // nothing.
  TracedPhase(Tracer* tracer, TraceKind kind, absl::string_view name,
              PhaseMeter* meter, PhaseMeter::Phase phase)
      : phase_(meter, phase), trace_(tracer, kind, name) {}

  // As ScopedTrace::Set.
  void Set(const char* name, int64_t value) { trace_.Set(name, value); }

 private:
  const PhaseMeter::Scope phase_;
  ScopedTrace trace_;
};

// What a training loop works with, and what all loops do alike: deadlines,
// evaluations that are due, the count of verdicts, the log.
//
// Thread-compatible.
class TrainingContext {
 public:
  // All must outlive the context.
  struct Parts {
    Cluster* cluster = nullptr;
    BatchPipeline* batches = nullptr;
    GradientComputer* gradients = nullptr;
    // Null for a worker that does not evaluate.
    Evaluator* evaluator = nullptr;
    // Told of each phase of the work, and of finished steps.
    PhaseMeter* meter = nullptr;
    const Clock* clock = nullptr;
    // Where steps and waits are recorded; null: nowhere.
    Tracer* tracer = nullptr;
    // As Trainer::Parts.
    HostMemory* host_memory = nullptr;
    // Embedding tables of the model.
    size_t num_tables = 0;
  };

  struct Options {
    // A call waits for so long in all: for a step, and, once, for a lost task
    // and the coordinator's word; see Trainer::Options.
    absl::Duration step_timeout;
    absl::Duration margin;
    GlobalStep total_steps;
    // 0: only at the end, which is not the loops' to see to.
    uint64_t evaluate_every_steps = 0;
    // As Trainer::Options::before_step.
    std::function<void(GlobalStep)> before_step;
    absl::Duration log_interval;
    // Whether to warn of a loss that explodes: one worker of a job does.
    bool warns_of_loss = false;
  };

  // What the worker's own pushes came to, those of steps that were rolled back
  // among them.
  struct Counts {
    uint64_t accepted = 0;
    uint64_t stale = 0;
    uint64_t duplicate = 0;
    // Of weight 0: loss or gradient was not a finite number.
    uint64_t not_finite = 0;
  };

  // Adds to `counts`, which must outlive the context too.
  TrainingContext(const Parts& parts, const Options& options, Counts* counts);

  Cluster& cluster() { return *parts_.cluster; }
  // For all but to take batches.
  BatchPipeline& batches() { return *parts_.batches; }
  GradientComputer& gradients() { return *parts_.gradients; }
  Tracer* tracer() const { return parts_.tracer; }
  HostMemory* host_memory() const { return parts_.host_memory; }
  PhaseMeter* meter() const { return parts_.meter; }
  // While the thread waits in `phase`; `what` names the wait in the trace.
  TracedPhase Waiting(PhaseMeter::Phase phase, absl::string_view what) const {
    return TracedPhase(parts_.tracer, TraceKind::kWait, what, parts_.meter,
                       phase);
  }
  // While the model computes a gradient.
  TracedPhase Computing() const {
    return TracedPhase(parts_.tracer, TraceKind::kModel, "gradient",
                       parts_.meter, PhaseMeter::Phase::kCompute);
  }
  GlobalStep total_steps() const { return options_.total_steps; }

  // For a call that waits until a step closes or, asynchronous, a push counts:
  // the next one, or the last of the next `count`. Later than the
  // coordinator's, which knows who is late and so speaks first.
  absl::Time StepDeadline(uint64_t count = 1) const;

  // As the pipeline's, until StepDeadline.
  absl::StatusOr<Batch> NextBatch(GlobalStep step, int64_t seat);
  absl::StatusOr<Batch> NextTicketBatch(uint64_t ticket);

  bool has_tables() const { return parts_.num_tables > 0; }
  // Has the next pull into `into` read the rows of a batch with these ids, and
  // no others; null: it is not known.
  void WantRows(const TableBags* bags, Parameters* into) const {
    rows_.Want(bags, into);
  }
  // Has `batch` have its rows, those of `at` if they are there, or else of the
  // newest version, `min_version` at least. They stay until the next call, and
  // as long as those of `at`. Errors: those of Pull.
  absl::Status BringRows(const Parameters& at, GlobalStep min_version,
                         Batch* batch);

  // To be called when a step begins, or the work on a ticket.
  void BeforeStep(GlobalStep step_or_ticket);
  // Begins to evaluate when that is due at `version`, which has been reached.
  // What lies behind the first version that it is told of has been evaluated
  // before, by this chief or one in its place.
  // Errors: those of Evaluator::Start.
  absl::Status EvaluateWhenDue(GlobalStep version);
  // To be called for each gradient. `push` says in messages whose it was:
  // "the push for step 3, seat 1".
  void OnGradient(GlobalStep version, absl::string_view push,
                  const GradientComputer::Result& gradient);
  // Errors: ABORTED when the worker was shut out, its push was dropped, or the
  // job has failed; INTERNAL for no verdict.
  absl::Status OnVerdict(proto::Verdict verdict, absl::string_view push);

 private:
  const Parts parts_;
  const Options options_;
  Counts& counts_;
  BatchRows rows_;
  // The latest version at which it was due.
  std::optional<uint64_t> last_due_;
  absl::Time last_log_;
  LossWatch loss_watch_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_TRAINING_CONTEXT_H_
