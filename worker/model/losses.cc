// SPDX-License-Identifier: Apache-2.0
#include "worker/model/losses.h"

#include <limits>

#include "absl/status/status.h"

namespace holdfast {
namespace {

constexpr float kDefaultDelta = 1;
// The number of classes for a loss that takes labels as numbers: every label is
// allowed.
constexpr int64_t kAnyLabel = int64_t{std::numeric_limits<int32_t>::max()} + 1;

}  // namespace

absl::StatusOr<Loss> Loss::Create(const proto::Loss& config) {
  switch (config.kind_case()) {
    case proto::Loss::kSoftmaxCrossEntropy:
      return Loss({LossKind::kSoftmaxCrossEntropy}, 1,
                  /*takes_values=*/false);
    case proto::Loss::kSigmoidCrossEntropy:
      return Loss({LossKind::kSigmoidCrossEntropy}, 2,
                  /*takes_values=*/true);
    case proto::Loss::kMeanSquaredError:
      return Loss({LossKind::kMeanSquaredError}, kAnyLabel,
                  /*takes_values=*/true);
    case proto::Loss::kMeanAbsoluteError:
      return Loss({LossKind::kMeanAbsoluteError}, kAnyLabel,
                  /*takes_values=*/true);
    case proto::Loss::kHuber: {
      const float delta =
          config.huber().has_delta() ? config.huber().delta() : kDefaultDelta;
      return Loss({LossKind::kHuber, delta}, kAnyLabel, /*takes_values=*/true);
    }
    case proto::Loss::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the model has no loss");
}

}  // namespace holdfast
