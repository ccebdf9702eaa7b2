// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/progress.h"

#include <algorithm>
#include <utility>

namespace holdfast {
namespace {

// The number of steps that train_loss averages over.
constexpr size_t kLossWindow = 100;
// The number of staleness values that are counted separately: see
// StalenessCount.
constexpr uint64_t kMaxStaleness = 999;

}  // namespace

Progress::Progress(const proto::Position& position)
    : pushes_(position.pushes()), examples_(position.examples()) {
  for (const proto::Position::StepLoss& step : position.recent_losses()) {
    recent_.push_back({step.examples(), step.loss_sum()});
  }
  for (const proto::WorkerCounts& counts : position.workers()) {
    workers_[{counts.worker().job(), counts.worker().index()}] = {
        counts.pushes(), counts.examples()};
  }
  for (const proto::StalenessCount& count : position.staleness()) {
    staleness_[count.staleness()] = count.pushes();
  }
  committed_ = GlobalStep(position.step());
  training_seconds_before_ = position.training_seconds();
}

void Progress::GoBack(const proto::Position& position) {
  Progress from(position);
  from.moved_at_ = moved_at_;
  from.last_commit_ = last_commit_;
  if (training_begun_.has_value()) {
    from.training_begun_ = training_begun_;
    from.training_seconds_before_ = training_seconds_before_;
  }
  if (evaluation_.has_value() && evaluation_->step() <= position.step()) {
    from.evaluation_ = evaluation_;
  }
  *this = std::move(from);
}

void Progress::OnEvaluation(const proto::EvaluationResult& result) {
  if (!evaluation_.has_value() || result.step() >= evaluation_->step()) {
    evaluation_ = result;
  }
}

void Progress::AddStep(const std::vector<AcceptedPush>& pushes) {
  StepLoss step;
  for (const AcceptedPush& push : pushes) {
    pushes_.set_accepted(pushes_.accepted() + 1);
    if (push.not_finite) pushes_.set_not_finite(pushes_.not_finite() + 1);
    examples_ += push.examples;
    Given& given = workers_[push.worker];
    ++given.pushes;
    given.examples += push.examples;
    if (push.examples > 0 && push.loss.has_value()) {
      step.examples += push.examples;
      step.loss_sum += *push.loss * static_cast<double>(push.examples);
    }
    if (push.staleness.has_value()) {
      ++staleness_[std::min(*push.staleness, kMaxStaleness)];
    }
  }
  untaken_.examples += step.examples;
  untaken_.loss_sum += step.loss_sum;
  recent_.push_back(step);
  if (recent_.size() > kLossWindow) recent_.pop_front();
}

std::optional<double> Progress::TakeLoss() {
  const StepLoss taken = std::exchange(untaken_, StepLoss());
  if (taken.examples == 0) return std::nullopt;
  return taken.loss_sum / static_cast<double>(taken.examples);
}

void Progress::AddRefused(proto::Verdict verdict) {
  switch (verdict) {
    case proto::STALE:
      pushes_.set_stale(pushes_.stale() + 1);
      break;
    case proto::DUPLICATE:
      pushes_.set_duplicate(pushes_.duplicate() + 1);
      break;
    case proto::FENCED:
      pushes_.set_fenced(pushes_.fenced() + 1);
      break;
    default:
      pushes_.set_aborted(pushes_.aborted() + 1);
      break;
  }
}

template <typename Message>
void Progress::AddCountsTo(Message* message) const {
  message->set_examples(examples_);
  *message->mutable_pushes() = pushes_;
  for (const auto& [worker, given] : workers_) {
    proto::WorkerCounts& counts = *message->add_workers();
    counts.mutable_worker()->set_job(worker.job);
    counts.mutable_worker()->set_index(worker.index);
    counts.set_pushes(given.pushes);
    counts.set_examples(given.examples);
  }
  for (const auto& [staleness, pushes] : staleness_) {
    proto::StalenessCount& count = *message->add_staleness();
    count.set_staleness(staleness);
    count.set_pushes(pushes);
  }
  if (training_begun_.has_value()) {
    message->set_training_seconds(
        training_seconds_before_ +
        absl::ToDoubleSeconds(last_commit_ - *training_begun_));
  }
}

void Progress::AddTo(proto::GetStatusResponse* status) const {
  AddCountsTo(status);
  if (evaluation_.has_value()) *status->mutable_evaluation() = *evaluation_;
  StepLoss window;
  for (const StepLoss& step : recent_) {
    window.examples += step.examples;
    window.loss_sum += step.loss_sum;
  }
  if (window.examples > 0) {
    status->set_train_loss(window.loss_sum /
                           static_cast<double>(window.examples));
  }
}

void Progress::AddTo(proto::Position* position) const {
  AddCountsTo(position);
  for (const StepLoss& step : recent_) {
    proto::Position::StepLoss& saved = *position->add_recent_losses();
    saved.set_examples(step.examples);
    saved.set_loss_sum(step.loss_sum);
  }
}

}  // namespace holdfast
