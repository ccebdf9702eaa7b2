#include "worker/model/losses.h"

#include <limits>

#include "absl/status/status.h"

namespace holdfast {

absl::StatusOr<Loss> Loss::Create(const proto::Loss& config) {
  switch (config.kind_case()) {
    case proto::Loss::kSoftmaxCrossEntropy:
      return Loss(&Backend::SoftmaxCrossEntropy, 1);
    case proto::Loss::kSigmoidCrossEntropy:
      return Loss(&Backend::SigmoidCrossEntropy, 2);
    case proto::Loss::kMeanSquaredError:
      // The label is a number, and any will do.
      return Loss(&Backend::MeanSquaredError,
                  int64_t{std::numeric_limits<int32_t>::max()} + 1);
    case proto::Loss::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the model has no loss");
}

}  // namespace holdfast
