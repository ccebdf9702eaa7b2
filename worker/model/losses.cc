#include "worker/model/losses.h"

#include <functional>
#include <limits>

#include "absl/status/status.h"

namespace holdfast {
namespace {

constexpr float kDefaultDelta = 1;
// Where the label is a number, and any will do.
constexpr int64_t kAnyLabel = int64_t{std::numeric_limits<int32_t>::max()} + 1;

}  // namespace

absl::StatusOr<Loss> Loss::Create(const proto::Loss& config) {
  switch (config.kind_case()) {
    case proto::Loss::kSoftmaxCrossEntropy:
      return Loss(std::mem_fn(&Backend::SoftmaxCrossEntropy), 1,
                  /*takes_values=*/false);
    case proto::Loss::kSigmoidCrossEntropy:
      return Loss(std::mem_fn(&Backend::SigmoidCrossEntropy), 2,
                  /*takes_values=*/true);
    case proto::Loss::kMeanSquaredError:
      return Loss(std::mem_fn(&Backend::MeanSquaredError), kAnyLabel,
                  /*takes_values=*/true);
    case proto::Loss::kMeanAbsoluteError:
      return Loss(std::mem_fn(&Backend::MeanAbsoluteError), kAnyLabel,
                  /*takes_values=*/true);
    case proto::Loss::kHuber: {
      const float delta =
          config.huber().has_delta() ? config.huber().delta() : kDefaultDelta;
      return Loss(
          [delta](Backend* backend, ConstMatrix outputs, const Targets& targets,
                  Matrix* gradient) {
            return backend->Huber(outputs, targets, delta, gradient);
          },
          kAnyLabel, /*takes_values=*/true);
    }
    case proto::Loss::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the model has no loss");
}

}  // namespace holdfast
