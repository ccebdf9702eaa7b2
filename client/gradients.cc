#include "client/gradients.h"

#include "absl/strings/str_cat.h"
#include "client/tensors.h"

namespace holdfast::client {

Gradients::Gradients(PushSequence push, const Layout& layout,
                     GradientEncoder* encoder)
    : push_(push),
      layout_(layout),
      encoder_(*encoder),
      taken_(layout.variables().size(), false),
      gradients_(layout.variables().size()),
      encoded_(layout.variables().size()) {}

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
  if (taken_[variable]) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of variable \"", declared.name,
                     "\" was handed in before"));
  }
  return absl::OkStatus();
}

void Gradients::Take(size_t variable, absl::Span<const float> gradient) {
  taken_[variable] = true;
  ++num_taken_;
  gradients_[variable] = gradient;
  if (encoder_.Encodes(variable)) {
    encoded_[variable] = encoder_.Encode(push_, variable, gradient);
  }
}

absl::Status Gradients::CheckComplete() const {
  const size_t missing = layout_.num_trainable() - num_taken_;
  if (missing == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the gradients of ", missing, " of ", layout_.num_trainable(),
      " trainable variables were not handed in"));
}

std::vector<TensorPiece> Gradients::PiecesOf(const Plan::Part& part) const {
  return client::PiecesOf(layout_, part, gradients_, encoded_, loan_.owner());
}

}  // namespace holdfast::client
