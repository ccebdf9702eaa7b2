// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/training_context.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// Batches differ, so means over this many losses are compared.
constexpr int kLossesPerReport = 20;

}  // namespace

TrainingContext::TrainingContext(const Parts& parts, const Options& options,
                                 Counts* counts)
    : parts_(parts),
      options_(options),
      counts_(*counts),
      rows_(parts.num_tables),
      last_log_(parts.clock->Now()),
      loss_watch_(kLossesPerReport) {}

absl::Time TrainingContext::StepDeadline(uint64_t count) const {
  return parts_.clock->Now() + count * options_.step_timeout + options_.margin;
}

absl::StatusOr<Batch> TrainingContext::NextBatch(GlobalStep step,
                                                 int64_t seat) {
  const TracedPhase waiting = Waiting(PhaseMeter::Phase::kInput, "input");
  return parts_.batches->Next(step, seat, StepDeadline());
}

absl::StatusOr<Batch> TrainingContext::NextTicketBatch(uint64_t ticket) {
  const TracedPhase waiting = Waiting(PhaseMeter::Phase::kInput, "input");
  return parts_.batches->NextTicket(ticket, StepDeadline());
}

absl::Status TrainingContext::BringRows(const Parameters& at,
                                        GlobalStep min_version, Batch* batch) {
  const RowSource read = [&](Parameters* rows) {
    const TracedPhase waiting = Waiting(PhaseMeter::Phase::kVersion, "rows");
    return parts_.cluster->StartPull(min_version, rows)->Await(StepDeadline());
  };
  return rows_.Bring(at, read, batch);
}

void TrainingContext::BeforeStep(GlobalStep step_or_ticket) {
  if (options_.before_step) options_.before_step(step_or_ticket);
}

bool TrainingContext::IsEvaluationDue(GlobalStep version) const {
  const uint64_t every = options_.evaluate_every_steps;
  if (parts_.evaluator == nullptr || every == 0 ||
      version >= options_.total_steps) {
    return false;
  }
  // A worker may see only some of the versions.
  const uint64_t seen =
      last_seen_.value_or(version == GlobalStep(0) ? 0 : version.value() - 1);
  return version.value() / every > seen / every;
}

absl::Status TrainingContext::EvaluateWhenDue(GlobalStep version) {
  const bool due = IsEvaluationDue(version);
  last_seen_ = std::max(last_seen_.value_or(0), version.value());
  return due ? parts_.evaluator->Start(StepDeadline()) : absl::OkStatus();
}

void TrainingContext::OnGradient(GlobalStep version, absl::string_view push,
                                 const GradientComputer::Result& gradient) {
  if (!gradient.not_finite.empty()) {
    LOG_EVERY_N(WARNING, 100) << push << ": " << gradient.not_finite
                              << " is not a finite number; contributes nothing";
    ++counts_.not_finite;
  }
  if (gradient.examples > 0 && options_.warns_of_loss) {
    const std::string warning = loss_watch_.Add(gradient.loss);
    LOG_IF(WARNING, !warning.empty()) << push << ": " << warning;
  }
  const absl::Time now = parts_.clock->Now();
  if (gradient.examples == 0 || now - last_log_ < options_.log_interval) return;
  last_log_ = now;
  LOG(INFO) << "step " << version << " of " << options_.total_steps
            << ": loss of this worker's batch " << gradient.loss;
}

absl::Status TrainingContext::OnVerdict(proto::Verdict verdict,
                                        absl::string_view push) {
  switch (verdict) {
    case proto::ACCEPTED:
      ++counts_.accepted;
      return absl::OkStatus();
    case proto::STALE:
      ++counts_.stale;
      return absl::OkStatus();
    case proto::DUPLICATE:
      ++counts_.duplicate;
      return absl::OkStatus();
    case proto::FENCED:
      return absl::AbortedError(
          absl::StrCat(push,
                       " was fenced: the lease of this worker has expired, or "
                       "another process has taken over this task"));
    case proto::ABORTED: {
      const proto::JobState state = parts_.cluster->state();
      return absl::AbortedError(
          state.phase() == proto::FAILED
              ? state.reason()
              : absl::StrCat(push, " was dropped: a ps has lost its state"));
    }
    default:
      return absl::InternalError(absl::StrCat(
          push, " got no verdict (", proto::Verdict_Name(verdict), ")"));
  }
}

}  // namespace holdfast
