// SPDX-License-Identifier: Apache-2.0
#include "client/gradients.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/tensors.h"
#include "common/base/status_macros.h"

namespace holdfast::client {

Gradients::Gradients(PushSequence push, const Layout& layout, const Plan& plan,
                     GradientEncoder* encoder, Neighbors* neighbors,
                     GlobalStep step)
    : push_(push),
      layout_(layout),
      plan_(plan),
      encoder_(*encoder),
      neighbors_(neighbors),
      taken_(layout.variables().size(), false),
      gradients_(layout.variables().size()),
      regions_(layout.variables().size()),
      encoded_(layout.variables().size()) {
  if (!layout.tables().empty()) {
    rows_.emplace(&layout, &plan, neighbors, step);
  }
  for (size_t i = 0; i < taken_.size(); ++i) {
    const Layout::Variable& variable = layout.variables()[i];
    if (!variable.trainable || variable.size > 0) continue;
    taken_[i] = true;
    ++num_taken_;
  }
}

absl::Status Gradients::Check(size_t variable,
                              absl::Span<const float> gradient) const {
  if (variable >= layout_.variables().size()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no variable ",
                                                   variable, ", only ",
                                                   layout_.variables().size()));
  }
  const Layout::Variable& declared = layout_.variables()[variable];
  if (!declared.trainable) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable \"", declared.name, "\" is not trainable"));
  }
  if (gradient.size() != declared.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "variable \"", declared.name, "\": gradient has ", gradient.size(),
        " elements, the variable ", declared.size));
  }
  if (taken_[variable] && declared.size > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of variable \"", declared.name,
                     "\" was handed in before"));
  }
  return absl::OkStatus();
}

absl::Status Gradients::Take(size_t variable,
                             absl::Span<const float> gradient) {
  if (gradient.empty()) return absl::OkStatus();
  if (Lends(variable)) {
    HOLDFAST_RETURN_IF_ERROR(TakeRegion(variable));
    auto* const region = reinterpret_cast<float*>(regions_[variable].get());
    if (region != gradient.data()) {
      for (const ElementRange& range : plan_.lent[variable]) {
        std::memcpy(region + range.begin, gradient.data() + range.begin,
                    range.size * sizeof(float));
      }
    }
  }
  taken_[variable] = true;
  ++num_taken_;
  gradients_[variable] = gradient;
  if (encoder_.Encodes(variable)) {
    encoded_[variable] = encoder_.Encode(push_, variable, gradient);
  }
  return absl::OkStatus();
}

absl::Span<float> Gradients::Memory(size_t variable) {
  if (variable >= taken_.size() || taken_[variable] || !Lends(variable) ||
      !TakeRegion(variable).ok()) {
    return {};
  }
  return absl::MakeSpan(reinterpret_cast<float*>(regions_[variable].get()),
                        layout_.variables()[variable].size);
}

bool Gradients::Lends(size_t variable) const {
  return neighbors_ != nullptr && !plan_.lent[variable].empty();
}

absl::Status Gradients::TakeRegion(size_t variable) {
  if (regions_[variable] != nullptr) return absl::OkStatus();
  const Layout::Variable& declared = layout_.variables()[variable];
  absl::StatusOr<std::shared_ptr<char>> region =
      neighbors_->Take(declared.size * sizeof(float));
  if (!region.ok()) {
    return absl::Status(
        region.status().code(),
        absl::StrCat("no shared memory for the gradient of variable \"",
                     declared.name, "\": ", region.status().message()));
  }
  regions_[variable] = *std::move(region);
  return absl::OkStatus();
}

Buffer Gradients::BytesOf(const ElementRange& range) const {
  const std::shared_ptr<char>& region = regions_[range.variable];
  const float* const given = gradients_[range.variable].data();
  const size_t size = range.size * sizeof(float);
  if (region != nullptr) {
    const auto* const shared = reinterpret_cast<const float*>(region.get());
    const std::vector<ElementRange>& lent = plan_.lent[range.variable];
    if (given == shared ||
        std::find(lent.begin(), lent.end(), range) != lent.end()) {
      return Buffer::FromMemory(shared + range.begin, size, region);
    }
  }
  return Buffer::FromMemory(given + range.begin, size, loan_.owner());
}

absl::Status Gradients::CheckComplete() const {
  const size_t missing = layout_.num_trainable() - num_taken_;
  if (missing == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the gradients of ", missing, " of ", layout_.num_trainable(),
      " trainable variables were not handed in"));
}

absl::Status Gradients::CheckRows(size_t table, absl::Span<const uint64_t> ids,
                                  absl::Span<const float> gradients) const {
  if (rows_.has_value()) return rows_->Check(table, ids, gradients);
  return CheckRowIds(layout_, table, ids);
}

bool Gradients::TakeRows(size_t table, absl::Span<const uint64_t> ids,
                         absl::Span<const float> gradients) {
  rows_->Take(table, ids, gradients);
  return rows_->complete();
}

std::vector<TensorPiece> Gradients::PiecesOf(const Plan& plan, uint32_t ps,
                                             uint32_t part) const {
  const std::vector<Plan::Part>& parts = plan.parts[ps];
  if (part >= num_parts(plan, ps)) return {};
  if (part >= parts.size()) {
    return rows_->PiecesOf(ps, part - static_cast<uint32_t>(parts.size()));
  }
  return client::PiecesOf(
      layout_, parts[part], encoded_,
      [this](const ElementRange& range) { return BytesOf(range); });
}

void Gradients::AwaitReturn() {
  loan_.AwaitReturn();
  if (rows_.has_value()) rows_->AwaitReturn();
  for (std::shared_ptr<char>& region : regions_) region.reset();
}

}  // namespace holdfast::client
