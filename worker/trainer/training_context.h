// SPDX-License-Identifier: Apache-2.0
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

// Records what the training thread does or waits for, from the object's
// construction to its destruction, as a span of the trace and a phase of the
// meter.
class TracedPhase {
 public:
  // `name` is the span's, and must outlive the object. A null tracer records
  // nothing.
  TracedPhase(Tracer* tracer, TraceKind kind, absl::string_view name,
              PhaseMeter* meter, PhaseMeter::Phase phase)
      : phase_(meter, phase), trace_(tracer, kind, name) {}

  // Like ScopedTrace::Set.
  void Set(const char* name, int64_t value) { trace_.Set(name, value); }

 private:
  const PhaseMeter::Scope phase_;
  ScopedTrace trace_;
};

// What a training loop works with, and what all loops have in common:
// deadlines, evaluations that are due, counts of verdicts, the log.
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
    // Measures the phases of the work, and counts finished steps.
    PhaseMeter* meter = nullptr;
    const Clock* clock = nullptr;
    // Where steps and waits are recorded; null: nowhere.
    Tracer* tracer = nullptr;
    // As in Trainer::Parts.
    HostMemory* host_memory = nullptr;
    // The number of the model's embedding tables.
    size_t num_tables = 0;
  };

  struct Options {
    // How long a call waits for a step and, once, for a lost task and the
    // coordinator's report; see Trainer::Options.
    absl::Duration step_timeout;
    absl::Duration margin;
    GlobalStep total_steps;
    // 0: only at the end, which the loops do not handle.
    uint64_t evaluate_every_steps = 0;
    // Like Trainer::Options::before_step.
    std::function<void(GlobalStep)> before_step;
    absl::Duration log_interval;
    // Whether to warn of an exploding loss: one worker of a job does.
    bool warns_of_loss = false;
  };

  // The verdicts of the worker's own pushes, including those of steps that were
  // rolled back.
  struct Counts {
    uint64_t accepted = 0;
    uint64_t stale = 0;
    uint64_t duplicate = 0;
    // Pushes of weight 0: the loss or a gradient was not finite.
    uint64_t not_finite = 0;
  };

  // Adds to `counts`, which must also outlive the context.
  TrainingContext(const Parts& parts, const Options& options, Counts* counts);

  Cluster& cluster() { return *parts_.cluster; }
  // For everything except taking batches.
  BatchPipeline& batches() { return *parts_.batches; }
  GradientComputer& gradients() { return *parts_.gradients; }
  Tracer* tracer() const { return parts_.tracer; }
  HostMemory* host_memory() const { return parts_.host_memory; }
  PhaseMeter* meter() const { return parts_.meter; }
  // Held while the thread waits in `phase`; `what` names the wait in the trace.
  TracedPhase Waiting(PhaseMeter::Phase phase, absl::string_view what) const {
    return TracedPhase(parts_.tracer, TraceKind::kWait, what, parts_.meter,
                       phase);
  }
  // Held while the model computes a gradient.
  TracedPhase Computing() const {
    return TracedPhase(parts_.tracer, TraceKind::kModel, "gradient",
                       parts_.meter, PhaseMeter::Phase::kCompute);
  }
  GlobalStep total_steps() const { return options_.total_steps; }

  // The deadline of a call that waits until a step closes or, in asynchronous
  // jobs, a push is applied: the next one, or the last of the next `count`. It
  // is later than the coordinator's, so that the coordinator, which knows who
  // is late, reports first.
  absl::Time StepDeadline(uint64_t count = 1) const;

  // Like the pipeline's functions, with StepDeadline as the deadline.
  absl::StatusOr<Batch> NextBatch(GlobalStep step, int64_t seat);
  absl::StatusOr<Batch> NextTicketBatch(uint64_t ticket);

  bool has_tables() const { return parts_.num_tables > 0; }
  // Makes the next pull into `into` read the rows of a batch with these ids,
  // and no others; null if the batch is not known.
  void WantRows(const TableBags* bags, Parameters* into) const {
    rows_.Want(bags, into);
  }
  // Gives `batch` its rows: those in `at` if they are there, otherwise those of
  // the newest version, which is at least `min_version`. They stay valid until
  // the next call, and as long as those in `at`. Errors: those of Pull.
  absl::Status BringRows(const Parameters& at, GlobalStep min_version,
                         Batch* batch);

  // Must be called when a step, or the work on a ticket, begins.
  void BeforeStep(GlobalStep step_or_ticket);
  // Begins an evaluation if one is due at `version`, which has been reached.
  // Evaluations due before the first version of these calls have been made
  // before, by this chief or its predecessor.
  // Errors: those of Evaluator::Start.
  absl::Status EvaluateWhenDue(GlobalStep version);
  // Must be called for each gradient. `push` names it in messages: "the push
  // for step 3, seat 1".
  void OnGradient(GlobalStep version, absl::string_view push,
                  const GradientComputer::Result& gradient);
  // Errors: ABORTED when the worker was fenced, its push was dropped, or the
  // job has failed; INTERNAL when `verdict` is not a verdict.
  absl::Status OnVerdict(proto::Verdict verdict, absl::string_view push);

 private:
  const Parts parts_;
  const Options options_;
  Counts& counts_;
  BatchRows rows_;
  // The latest version at which an evaluation was due.
  std::optional<uint64_t> last_due_;
  absl::Time last_log_;
  LossWatch loss_watch_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_TRAINING_CONTEXT_H_
