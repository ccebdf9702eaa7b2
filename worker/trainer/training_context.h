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

// Records the time from the object's construction to its destruction, in which
// the training thread does or waits for something, as a span of the trace and
// as a phase of the meter.
class TracedPhase {
 public:
  // `name` is the name of the span, and must outlive the object. If `tracer` is
  // null, no span is recorded.
  TracedPhase(Tracer* tracer, TraceKind kind, absl::string_view name,
              PhaseMeter* meter, PhaseMeter::Phase phase)
      : phase_(meter, phase), trace_(tracer, kind, name) {}

  // Like ScopedTrace::Set.
  void Set(const char* name, int64_t value) { trace_.Set(name, value); }

 private:
  const PhaseMeter::Scope phase_;
  ScopedTrace trace_;
};

// What a training loop works with, and all that the loops have in common:
// deadlines, evaluations that are due, counts of verdicts, the log.
//
// Thread-compatible.
class TrainingContext {
 public:
  // All of it must outlive the context.
  struct Parts {
    Cluster* cluster = nullptr;
    BatchPipeline* batches = nullptr;
    GradientComputer* gradients = nullptr;
    // Null for a worker that does not evaluate.
    Evaluator* evaluator = nullptr;
    // Measures the phases of the work, and counts finished steps.
    PhaseMeter* meter = nullptr;
    const Clock* clock = nullptr;
    // Where steps and waits are recorded. Null: they are not recorded.
    Tracer* tracer = nullptr;
    // As in Trainer::Parts.
    HostMemory* host_memory = nullptr;
    // The number of the model's embedding tables.
    size_t num_tables = 0;
  };

  struct Options {
    // How long a call waits for each step (step_timeout) and, only once, for a
    // lost task to come back and for the coordinator's report (margin). See
    // Trainer::Options.
    absl::Duration step_timeout;
    absl::Duration margin;
    GlobalStep total_steps;
    // An evaluation is due each time that so many steps are done. 0: the loops
    // begin no evaluation.
    uint64_t evaluate_every_steps = 0;
    // As in Trainer::Options.
    std::function<void(GlobalStep)> before_step;
    absl::Duration log_interval;
    // Whether to warn of an exploding loss, which one worker of a job does.
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

  // The context adds to `counts`, which must also outlive it.
  TrainingContext(const Parts& parts, const Options& options, Counts* counts);

  Cluster& cluster() { return *parts_.cluster; }
  // The pipeline, for all calls except Next and NextTicket (NextBatch,
  // NextTicketBatch).
  BatchPipeline& batches() { return *parts_.batches; }
  GradientComputer& gradients() { return *parts_.gradients; }
  Tracer* tracer() const { return parts_.tracer; }
  HostMemory* host_memory() const { return parts_.host_memory; }
  PhaseMeter* meter() const { return parts_.meter; }
  // Returns an object that the caller keeps while the thread waits in `phase`.
  // `what` is the name of the wait in the trace.
  TracedPhase Waiting(PhaseMeter::Phase phase, absl::string_view what) const {
    return TracedPhase(parts_.tracer, TraceKind::kWait, what, parts_.meter,
                       phase);
  }
  // Returns an object that the caller keeps while the model computes a
  // gradient.
  TracedPhase Computing() const {
    return TracedPhase(parts_.tracer, TraceKind::kModel, "gradient",
                       parts_.meter, PhaseMeter::Phase::kCompute);
  }
  GlobalStep total_steps() const { return options_.total_steps; }

  // Returns the deadline of a call that waits until the next `count` steps have
  // closed or, in asynchronous jobs, until the next `count` pushes are applied.
  // It is later than the coordinator's deadline, so that the coordinator, which
  // knows which worker is late, reports first.
  absl::Time StepDeadline(uint64_t count = 1) const;

  // NextBatch is BatchPipeline::Next, and NextTicketBatch is
  // BatchPipeline::NextTicket, with StepDeadline() as the deadline.
  absl::StatusOr<Batch> NextBatch(GlobalStep step, int64_t seat);
  absl::StatusOr<Batch> NextTicketBatch(uint64_t ticket);

  bool has_tables() const { return parts_.num_tables > 0; }
  // Makes the next pull into `into` read the rows of a batch with these ids,
  // and no other rows. If `bags` is null, because the batch is not known, the
  // pull reads no rows.
  void WantRows(const TableBags* bags, Parameters* into) const {
    rows_.Want(bags, into);
  }
  // Sets Batch::rows: to the rows in `at`, if all that the batch needs are
  // there, otherwise to those of the newest version, which must be at least
  // `min_version` and is pulled. The rows stay valid until the next call, or
  // until those in `at` change. Errors: those of Cluster::Pull.
  absl::Status BringRows(const Parameters& at, GlobalStep min_version,
                         Batch* batch);

  // Must be called when a step, or the work on a ticket, begins.
  void BeforeStep(GlobalStep step_or_ticket);
  // Whether EvaluateWhenDue would begin an evaluation.
  bool IsEvaluationDue(GlobalStep version) const;
  // Begins an evaluation if one is due now that `version` has been reached.
  // Assumes that evaluations which were due before the first version that was
  // passed here have been made already, by this chief or by its predecessor.
  // Errors: those of Evaluator::Start.
  absl::Status EvaluateWhenDue(GlobalStep version);
  // Must be called with the result of each gradient. `push` names the
  // gradient's push in messages: "the push for step 3, seat 1".
  void OnGradient(GlobalStep version, absl::string_view push,
                  const GradientComputer::Result& gradient);
  // Must be called with the verdict of each push, which `push` names in
  // messages. Errors: ABORTED when the worker was fenced, its push was dropped,
  // or the job has failed; INTERNAL when `verdict` is not a verdict.
  absl::Status OnVerdict(proto::Verdict verdict, absl::string_view push);

 private:
  const Parts parts_;
  const Options options_;
  Counts& counts_;
  BatchRows rows_;
  // The latest version that was passed to EvaluateWhenDue.
  std::optional<uint64_t> last_seen_;
  absl::Time last_log_;
  LossWatch loss_watch_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_TRAINING_CONTEXT_H_
