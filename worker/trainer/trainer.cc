#include "worker/trainer/trainer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "glog/logging.h"
#include "worker/trainer/digest.h"
#include "worker/trainer/result.h"

namespace holdfast {
namespace {

// std::isfinite on each element, in a form that GCC vectorises: it was 4 % of a
// worker's time otherwise.
bool AllFinite(absl::Span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t found = 0;
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    found |= (bits & kExponent) == kExponent;
  }
  return found == 0;
}

// The seats of `replica` in a step of max(N, M).
std::vector<uint32_t> SeatsOf(uint32_t replica, uint32_t n, uint32_t m) {
  std::vector<uint32_t> seats;
  for (uint32_t seat = replica; seat < std::max(n, m); seat += m) {
    seats.push_back(seat);
  }
  return seats;
}

std::vector<absl::Span<const float>> Spans(const Parameters& parameters) {
  return {parameters.values.begin(), parameters.values.end()};
}

}  // namespace

Trainer::Trainer(const Parts& parts, const Options& options)
    : parts_(parts), options_(options), last_log_(parts.clock->Now()) {
  if (options_.is_chief && parts_.test_set != nullptr) {
    Evaluator::Options evaluation;
    evaluation.batch_size = options_.evaluation_batch_size;
    evaluation.call_timeout = options_.step_timeout + options_.margin;
    evaluation.hold = options_.pin_hold;
    evaluator_ =
        std::make_unique<Evaluator>(parts_.cluster, parts_.evaluation_model,
                                    parts_.test_set, parts_.clock, evaluation);
  }
}

absl::Status Trainer::Run() {
  absl::Status status = Train();
  if (!status.ok() && parts_.cluster->state().phase() == proto::DONE) {
    // A straggler: the last step has closed without it, and the shards may have
    // gone before they answered.
    LOG(INFO) << "the job is done; left behind: " << status;
    status = absl::OkStatus();
  }
  if (status.ok() && options_.is_chief) status = Conclude();
  evaluator_.reset();
  Leave(status);
  return status;
}

absl::Status Trainer::Train() {
  if (absl::Status status = Prepare(); !status.ok()) return status;
  while (now_.version < total_steps_) {
    if (absl::Status status = TrainStep(); !status.ok()) return status;
    if (absl::Status status = EvaluateWhenDue(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Trainer::Prepare() {
  const absl::Time deadline = StartDeadline();
  if (options_.is_chief) {
    absl::Status status =
        parts_.cluster->Declare(options_.declaration, deadline);
    if (!status.ok()) return status;
  }
  absl::Status status = parts_.cluster->AwaitVariables(deadline);
  if (!status.ok()) return status;

  const proto::Declaration& declared = parts_.cluster->declaration();
  const auto& synchronous = declared.consistency().synchronous();
  seats_ = SeatsOf(options_.replica, synchronous.replicas_to_aggregate(),
                   synchronous.total_num_replicas());
  total_steps_ = GlobalStep(declared.total_steps());
  LOG(INFO) << "the variables exist; training to step " << total_steps_;
  return parts_.cluster->StartPull(GlobalStep(0), &now_)->Await(deadline);
}

absl::Status Trainer::TrainStep() {
  if (options_.before_step) options_.before_step(now_.version);
  struct Outstanding {
    uint32_t seat;
    std::unique_ptr<Cluster::Offer> offer;
  };
  std::vector<Outstanding> offers;
  for (const uint32_t seat : seats_) {
    auto offer = FillSeat(seat);
    if (!offer.ok()) return offer.status();
    offers.push_back({seat, *std::move(offer)});
  }
  const std::unique_ptr<Cluster::Pull> pull =
      parts_.cluster->StartPull(now_.version.next(), &next_);
  for (const Outstanding& outstanding : offers) {
    const auto outcome = outstanding.offer->Await(StepDeadline());
    if (!outcome.ok()) return outcome.status();
    absl::Status status = CountVerdict(outcome->verdict, outstanding.seat);
    if (!status.ok()) return status;
  }
  absl::Status status = pull->Await(StepDeadline());
  if (!status.ok()) return status;
  std::swap(now_, next_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Cluster::Offer>> Trainer::FillSeat(
    uint32_t seat) {
  const absl::StatusOr<Batch> batch =
      parts_.batches->Next(now_.version, seat, StepDeadline());
  if (!batch.ok()) return batch.status();

  const auto push = parts_.cluster->StartPush(now_.version);
  absl::Status added;
  bool finite = true;
  const auto result = parts_.model->ComputeGradients(
      Spans(now_), *batch, [&](int variable, absl::Span<const float> gradient) {
        finite = finite && AllFinite(gradient);
        if (finite && added.ok()) added = push->Add(variable, gradient);
      });
  if (!result.ok()) return result.status();
  if (!added.ok()) return added;

  Contribution offer;
  offer.step = now_.version;
  offer.seat = seat;
  offer.sequence = push->sequence();
  if (!result->finite || !finite) {
    // Parts that have left under this number count for nothing at weight 0.
    LOG_EVERY_N(WARNING, 100)
        << "step " << now_.version << ", seat " << seat << ": "
        << (result->finite ? "a gradient" : "the loss")
        << " is not a finite number; contributes nothing";
    ++counts_.not_finite;
    return parts_.cluster->StartContribute(offer);
  }
  // A push that a shard has found too late is offered all the same: the verdict
  // is the coordinator's to tell, and to count.
  const auto acknowledged = push->Await(StepDeadline());
  if (!acknowledged.ok()) return acknowledged.status();
  offer.examples = result->examples;
  offer.loss = result->loss_sum / result->examples;
  LogProgress(offer.loss);
  return parts_.cluster->StartContribute(offer);
}

absl::Status Trainer::CountVerdict(proto::Verdict verdict, uint32_t seat) {
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
      return absl::AbortedError(absl::StrCat(
          "the push for step ", now_.version.value(), ", seat ", seat,
          " was shut out: another process has taken this task over"));
    case proto::ABORTED: {
      const proto::JobState state = parts_.cluster->state();
      return absl::AbortedError(
          state.phase() == proto::FAILED
              ? state.reason()
              : absl::StrCat("the push for step ", now_.version.value(),
                             ", seat ", seat,
                             " was dropped: a ps has lost its state"));
    }
    default:
      return absl::InternalError(absl::StrCat(
          "the push for step ", now_.version.value(), ", seat ", seat,
          " got no verdict (", proto::Verdict_Name(verdict), ")"));
  }
}

absl::Status Trainer::EvaluateWhenDue() {
  const uint64_t every = options_.evaluate_every_steps;
  if (evaluator_ == nullptr || every == 0 || now_.version >= total_steps_) {
    return absl::OkStatus();
  }
  // A backup replica may have skipped the multiple itself.
  const uint64_t due = now_.version.value() / every * every;
  if (due <= last_evaluated_) return absl::OkStatus();
  last_evaluated_ = due;
  return evaluator_->Start(StepDeadline());
}

absl::Status Trainer::Conclude() {
  if (evaluator_ != nullptr) {
    absl::Status status = evaluator_->Finish(StepDeadline());
    if (!status.ok()) return status;
  }
  const auto pin =
      parts_.cluster->PinVersion(options_.pin_hold, StepDeadline());
  if (!pin.ok()) return pin.status();
  absl::Status status = (*pin)->Read(&now_, StepDeadline());
  if (!status.ok()) return status;
  const auto& declared = parts_.cluster->declaration();
  if (now_.version != GlobalStep(declared.total_steps())) {
    return absl::InternalError(
        absl::StrCat("the job is done, but the newest version is ",
                     now_.version.value(), " of ", declared.total_steps()));
  }

  proto::TrainingResult result = options_.result;
  if (parts_.test_set != nullptr) {
    const auto test =
        EvaluateOn(*parts_.test_set, options_.evaluation_batch_size, now_,
                   parts_.model, /*cancelled=*/nullptr);
    if (!test.ok()) return test.status();
    status = parts_.cluster->ReportEvaluation(*test, StepDeadline());
    if (!status.ok()) return status;
    result.set_test_loss(test->loss());
    result.set_test_accuracy(test->accuracy());
    LOG(INFO) << "step " << test->step() << ": test loss " << test->loss()
              << ", accuracy " << test->accuracy();
  }
  const std::vector<proto::Variable> variables(declared.variables().begin(),
                                               declared.variables().end());
  result.set_digest(DigestOfVariables(variables, now_.values));
  LOG(INFO) << "digest of the variables: " << result.digest();

  const auto cluster_status = parts_.cluster->GetStatus(StepDeadline());
  if (!cluster_status.ok()) return cluster_status.status();
  AddStatus(*cluster_status, &result);
  if (options_.result_file.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> json = ResultToJson(result);
  if (!json.ok()) return json.status();
  return WriteFileAtomically(options_.result_file, *json);
}

void Trainer::Leave(const absl::Status& status) {
  LOG(INFO) << "leaves: " << counts_.accepted << " accepted, " << counts_.stale
            << " stale, " << counts_.duplicate << " duplicate, "
            << counts_.not_finite << " not finite";
  const absl::Status left =
      parts_.cluster->Leave(status.ok() ? "" : std::string(status.message()),
                            parts_.clock->Now() + options_.leave_timeout);
  // The job's outcome stands without it: the lease ends by itself.
  if (!left.ok()) LOG(WARNING) << "cannot take leave of the cluster: " << left;
}

void Trainer::LogProgress(double loss) {
  const absl::Time now = parts_.clock->Now();
  if (now - last_log_ < options_.log_interval) return;
  last_log_ = now;
  LOG(INFO) << "step " << now_.version << " of " << total_steps_
            << ": loss of this worker's batch " << loss;
}

absl::Time Trainer::StartDeadline() const {
  return parts_.clock->Now() + options_.start_timeout + options_.margin;
}

absl::Time Trainer::StepDeadline() const {
  return parts_.clock->Now() + options_.step_timeout + options_.margin;
}

}  // namespace holdfast
