// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/learning_state.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ps_server/coordinator/schedule.h"

namespace holdfast {

LearningState::LearningState(const proto::Declaration& declaration,
                             const proto::Position& position)
    : updates_(position.updates()),
      updates_before_(position.updates_before().begin(),
                      position.updates_before().end()),
      divergence_(DivergenceWatch(declaration, position)) {
  if (declaration.has_loss_scale()) {
    loss_scaler_.emplace(declaration.loss_scale(), position);
  }
}

void LearningState::OnStep(const proto::Declaration& declaration,
                           const Step& step, float rate_factor,
                           proto::CommitRequest* commit) {
  AddScalars(declaration, step.number().value(), updates_ + 1, rate_factor,
             commit->mutable_scalars());
  const bool changes = std::any_of(
      commit->contributions().begin(), commit->contributions().end(),
      [](const auto& contribution) { return contribution.weight() != 0; });
  if (changes) ++updates_;
  const float loss_scale = this->loss_scale();
  if (loss_scaler_.has_value()) {
    const bool finite =
        std::none_of(step.seats().begin(), step.seats().end(),
                     [](const std::optional<SeatOffer>& offer) {
                       return offer.has_value() && offer->not_finite;
                     });
    loss_scaler_->OnStep(loss_scale, finite);
    commit->set_loss_scale(loss_scaler_->scale());
  }
  for (const std::optional<SeatOffer>& offer : step.seats()) {
    if (!offer.has_value()) continue;
    divergence_->OnContribution(offer->examples, offer->not_finite, loss_scale);
  }
}

void LearningState::AddScalarsOfTicket(
    const proto::Declaration& declaration, uint64_t index, float rate_factor,
    google::protobuf::RepeatedPtrField<proto::StepScalars>* scalars) const {
  AddScalars(declaration, index, index + 1, rate_factor, scalars);
}

void LearningState::AddScalars(
    const proto::Declaration& declaration, uint64_t index, uint64_t update,
    float rate_factor,
    google::protobuf::RepeatedPtrField<proto::StepScalars>* scalars) const {
  for (size_t i = 0; i < static_cast<size_t>(declaration.optimizers_size());
       ++i) {
    const uint64_t before = i < updates_before_.size() ? updates_before_[i] : 0;
    *scalars->Add() = ScalarsAt(declaration.optimizers(i), index,
                                before + update, rate_factor);
  }
}

void LearningState::OnPush(uint64_t examples, bool not_finite,
                           float loss_scale) {
  divergence_->OnContribution(examples, not_finite, loss_scale);
  if (loss_scaler_.has_value()) loss_scaler_->OnStep(loss_scale, !not_finite);
}

std::string LearningState::DescribeDivergence(GlobalStep committed) const {
  return absl::StrCat(
      "the job has diverged: the last ", divergence_->limit(),
      " contributions up to step ", committed.value(),
      " were not finite (max_consecutive_not_finite in the job file). Lower "
      "the learning rate or clip the gradients, and train in another "
      "checkpoint directory, from the first values or, with --warm_start, from "
      "those of a checkpoint");
}

void LearningState::AddTo(proto::Position* position) const {
  position->set_updates(updates_);
  position->mutable_updates_before()->Assign(updates_before_.begin(),
                                             updates_before_.end());
  if (loss_scaler_.has_value()) loss_scaler_->AddTo(position);
  divergence_->AddTo(position);
}

}  // namespace holdfast
