// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/trainer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/failure.h"
#include "common/base/status_macros.h"
#include "common/job/job_phase.h"
#include "common/tensor/digest.h"
#include "glog/logging.h"
#include "worker/trainer/asynchronous_loop.h"
#include "worker/trainer/gradient.h"
#include "worker/trainer/result.h"
#include "worker/trainer/synchronous_loop.h"

namespace holdfast {
namespace {

// The seats of one of `workers` workers, out of `seats_per_step` in a step.
std::vector<uint32_t> SeatsOf(uint32_t replica, uint32_t seats_per_step,
                              uint32_t workers) {
  std::vector<uint32_t> seats;
  for (uint32_t seat = replica; seat < seats_per_step; seat += workers) {
    seats.push_back(seat);
  }
  return seats;
}

AsynchronousLoop::Options AsynchronousOptions(
    const proto::Declaration& declared) {
  const auto& asynchronous = declared.consistency().asynchronous();
  AsynchronousLoop::Options options;
  options.pipeline_depth = std::max(1u, asynchronous.pipeline_depth());
  options.has_bound = asynchronous.has_staleness_bound();
  // A request waits for workers that are too far behind or, when no ticket is
  // left, for the tickets given out. Meanwhile each worker can book as many
  // pushes as the bound lets it be ahead, and those for which it holds tickets.
  options.longest_wait =
      std::max(1u, declared.num_workers()) *
      (uint64_t{asynchronous.staleness_bound()} + options.pipeline_depth + 2);
  return options;
}

}  // namespace

Trainer::Trainer(const Parts& parts, const Options& options)
    : parts_(parts), options_(options) {
  if (options_.is_chief && parts_.test_set != nullptr) {
    Evaluator::Options evaluation;
    evaluation.config = options_.evaluation;
    evaluation.call_timeout =
        options_.step_timeout + options_.recovery_timeout + options_.margin;
    evaluation.hold = options_.pin_hold;
    evaluation.host_memory = parts_.host_memory;
    evaluator_ =
        std::make_unique<Evaluator>(parts_.cluster, parts_.evaluation_model,
                                    parts_.test_set, parts_.clock, evaluation);
  }
}

absl::Status Trainer::Run() {
  Cluster& cluster = *parts_.cluster;
  const auto done = [&] { return IsOrderlyEnd(cluster.state().phase()); };
  absl::Status status = RunGeneration();
  while (!status.ok() && cluster.rolled_back() && !done()) {
    LOG(INFO) << "the job is rolled back: " << status.message();
    if (evaluator_ != nullptr) evaluator_->Drop();
    parts_.batches->Restart();
    status = RunGeneration();
  }
  if (cluster.state().phase() == proto::STOPPED) {
    evaluator_.reset();
    Leave(absl::OkStatus());
    return absl::OkStatus();
  }
  if (!status.ok() && done()) {
    // This worker is a straggler: the job has ended without it, and the shards
    // may have ended before they responded to it.
    LOG(INFO) << "the job is done; this worker was late: " << status;
    status = absl::OkStatus();
  }
  if (status.ok() && !prepared_) {
    LOG(INFO) << "the job has already finished, and no longer has variables; "
                 "its last checkpoint holds them (holdfast checkpoint inspect)";
  } else if (status.ok() && IsReporter()) {
    status = Conclude();
  }
  evaluator_.reset();
  Leave(status);
  return status;
}

absl::Status Trainer::RunGeneration() {
  absl::Status status = Prepare();
  if (status.ok()) status = Train();
  if (!status.ok() && !parts_.cluster->rolled_back() &&
      parts_.cluster->state().phase() == proto::STOPPING) {
    // What the worker waited for may never come, but the end of the job will.
    LOG(INFO) << "the job is stopping; dropped: " << status.message();
    status = absl::OkStatus();
  }
  // Waits for the last checkpoint, too.
  if (status.ok()) {
    status = parts_.cluster->AwaitDone(absl::InfiniteFuture());
  }
  return status;
}

absl::Status Trainer::Prepare() {
  prepared_ = false;
  if (options_.is_chief) {
    // Declared in each generation: a roll-back may have lost the declaration.
    HOLDFAST_RETURN_IF_ERROR(
        parts_.cluster->Declare(options_.declaration, StartDeadline()));
  }
  // A restore may take any time while it makes progress: the coordinator judges
  // it, and the wait also ends if the coordinator does not respond.
  absl::Status status = parts_.cluster->AwaitVariables(absl::InfiniteFuture());
  prepared_ = status.ok();
  return status;
}

absl::Status Trainer::Train() {
  const proto::Declaration& declared = parts_.cluster->declaration();
  LOG(INFO) << "the variables exist; training to step "
            << declared.total_steps();
  GradientComputer::Options gradient_options;
  gradient_options.micro_batches = options_.micro_batches;
  if (declared.clipping().has_global_norm()) {
    gradient_options.max_global_norm = declared.clipping().global_norm();
  }
  GradientComputer gradients(parts_.model, gradient_options);

  TrainingContext::Parts parts;
  parts.cluster = parts_.cluster;
  parts.batches = parts_.batches;
  parts.gradients = &gradients;
  parts.evaluator = evaluator_.get();
  parts.meter = parts_.meter;
  parts.clock = parts_.clock;
  parts.tracer = parts_.tracer;
  parts.host_memory = parts_.host_memory;
  parts.num_tables = parts_.model->Tables().size();
  TrainingContext::Options options;
  options.step_timeout = options_.step_timeout;
  options.margin = options_.recovery_timeout + options_.margin;
  options.total_steps = GlobalStep(declared.total_steps());
  options.evaluate_every_steps = options_.evaluation.every_steps();
  options.before_step = options_.before_step;
  options.log_interval = options_.log_interval;
  options.warns_of_loss = options_.is_chief;
  TrainingContext context(parts, options, &counts_);
  parts_.meter->BeginTraining();
  absl::Status status = RunLoop(&context);
  parts_.meter->EndTraining();
  return status;
}

absl::Status Trainer::RunLoop(TrainingContext* context) {
  const proto::Declaration& declared = parts_.cluster->declaration();
  if (declared.consistency().has_asynchronous()) {
    return AsynchronousLoop(context, AsynchronousOptions(declared)).Run();
  }
  const auto& synchronous = declared.consistency().synchronous();
  SynchronousLoop::Options options;
  options.seats_per_step = std::max(synchronous.replicas_to_aggregate(),
                                    synchronous.total_num_replicas());
  options.seats = SeatsOf(options_.replica, options.seats_per_step,
                          synchronous.total_num_replicas());
  options.by_ticket = declared.examples() == proto::BY_TICKET;
  return SynchronousLoop(context, options).Run();
}

bool Trainer::IsReporter() const {
  const proto::JobState state = parts_.cluster->state();
  if (!state.has_reporter()) return options_.is_chief;
  return state.reporter().job() == options_.task.job &&
         state.reporter().index() == options_.task.index;
}

const ExampleSource* Trainer::TestSet() const {
  if (options_.is_chief || !parts_.read_test_set) return parts_.test_set;
  const auto test_set = parts_.read_test_set();
  if (test_set.ok()) return *test_set;
  LOG(WARNING) << "the result has no scores on the test set: "
               << test_set.status().message();
  return nullptr;
}

absl::Status Trainer::Conclude() {
  LOG_IF(INFO, !options_.is_chief)
      << "the chief is lost: this worker writes the result";
  const absl::StatusOr<End> end = ReadEnd();
  if (!end.ok() && EndIsOnDisk()) {
    LOG(WARNING) << "the job is done, and its last checkpoint holds the "
                    "variables (holdfast checkpoint inspect), but it has no "
                    "result: "
                 << end.status().message();
    return absl::OkStatus();
  }
  const absl::Status status = end.ok() ? WriteResult(*end) : end.status();
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("the job is done, but has no result: ", status.message()));
}

absl::Status Trainer::WriteResult(const End& end) {
  const proto::Declaration& declared = parts_.cluster->declaration();
  proto::TrainingResult result = options_.result;
  if (const ExampleSource* const test_set = TestSet(); test_set != nullptr) {
    const RowSource read_rows = [&](Parameters* rows) {
      return end.pin->StartRead(rows)->Await(StepDeadline());
    };
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto scores,
        EvaluateOn(*test_set, options_.evaluation, end.values, read_rows,
                   parts_.model, /*cancelled=*/nullptr));
    HOLDFAST_RETURN_IF_ERROR(
        parts_.cluster->ReportEvaluation(scores.result, StepDeadline()));
    AddEvaluation(scores, &result);
    LOG(INFO) << DescribeEvaluation(scores.result);
  }
  const std::vector<proto::Variable> variables(declared.variables().begin(),
                                               declared.variables().end());
  result.set_digest(DigestOfVariables(variables, end.values.All()));
  LOG(INFO) << "digest of the variables: " << result.digest();

  HOLDFAST_ASSIGN_OR_RETURN(const auto cluster_status,
                            parts_.cluster->GetStatus(StepDeadline()));
  AddDeclaration(declared, &result);
  AddStatus(cluster_status, &result);
  HOLDFAST_ASSIGN_OR_RETURN(const auto json, ResultToJson(result));
  if (options_.result_file.empty()) {
    LOG(INFO) << "the result (not written to a file, without --result_file): "
              << json;
    return absl::OkStatus();
  }
  return WriteFileAtomically(options_.result_file, json);
}

bool Trainer::EndIsOnDisk() const {
  const proto::Declaration& declared = parts_.cluster->declaration();
  // A job that ends early becomes DONE only when its last checkpoint is on
  // disk.
  if (MayEndEarly() && declared.has_checkpoints()) return true;
  const GlobalStep end(declared.total_steps());
  if (parts_.cluster->durable_step() >= end) return true;
  // The response that reported the end may not have reported the last durable
  // step.
  const auto status =
      parts_.cluster->GetStatus(parts_.clock->Now() + options_.margin);
  return status.ok() && GlobalStep(status->durable_step()) >= end;
}

bool Trainer::MayEndEarly() const {
  return parts_.cluster->declaration().evaluation().has_early_stopping();
}

absl::StatusOr<Trainer::End> Trainer::ReadEnd() {
  if (evaluator_ != nullptr) {
    HOLDFAST_RETURN_IF_ERROR(evaluator_->Finish(StepDeadline()));
  }
  // If a ps is lost now, no roll-back restores its values; but if they are on
  // disk, nothing is lost. Reading many of them takes a while.
  const bool on_disk = EndIsOnDisk();
  HOLDFAST_ASSIGN_OR_RETURN(
      auto pin,
      parts_.cluster->PinVersion(
          options_.pin_hold,
          on_disk ? parts_.clock->Now() + options_.margin : StepDeadline()));
  End end;
  end.pin = std::move(pin);
  absl::Status status =
      end.pin->StartRead(&end.values)
          ->Await(on_disk ? parts_.clock->Now() + options_.recovery_timeout +
                                options_.margin
                          : StepDeadline());
  if (!status.ok()) return status;
  // A shard's version is the number of committed steps or spent tickets.
  GlobalStep total(parts_.cluster->declaration().total_steps());
  if (MayEndEarly()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto cluster_status,
                              parts_.cluster->GetStatus(StepDeadline()));
    total = GlobalStep(cluster_status.global_step());
  }
  if (end.values.AllAt(total)) return end;
  return absl::InternalError(
      absl::StrCat("the job is done, but the newest version is ",
                   end.values.version.value(), " of ", total.value()));
}

void Trainer::Leave(const absl::Status& status) {
  LOG(INFO) << "leaves: " << counts_.accepted << " accepted, " << counts_.stale
            << " stale, " << counts_.duplicate << " duplicate, "
            << counts_.not_finite << " not finite";
  const bool ends_the_job =
      !status.ok() && !IsWorkersOwn(status, parts_.cluster->state());
  const absl::Status left =
      parts_.cluster->Leave(ends_the_job ? std::string(status.message()) : "",
                            parts_.clock->Now() + options_.leave_timeout);
  // The job's outcome does not depend on this call: the lease expires by
  // itself.
  if (!left.ok()) LOG(WARNING) << "failed to leave the cluster: " << left;
}

absl::Time Trainer::StartDeadline() const {
  return parts_.clock->Now() + options_.start_timeout +
         options_.recovery_timeout + options_.margin;
}

absl::Time Trainer::StepDeadline() const {
  return parts_.clock->Now() + options_.step_timeout +
         options_.recovery_timeout + options_.margin;
}

}  // namespace holdfast
