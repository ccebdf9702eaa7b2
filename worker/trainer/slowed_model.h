#ifndef HOLDFAST_WORKER_TRAINER_SLOWED_MODEL_H_
#define HOLDFAST_WORKER_TRAINER_SLOWED_MODEL_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "proto/training.pb.h"
#include "worker/model/model.h"

namespace holdfast {

// A model as on a slower machine: gradients take `factor` times as long. For
// tests and benchmarks of clusters of unlike machines. Evaluations take the
// time they take.
//
// Thread-compatible.
class SlowedModel final : public Model {
 public:
  // `factor` is at least 1; `sleep` waits for as long as it is told. `model`
  // and `clock` must outlive this.
  SlowedModel(Model* model, double factor, const Clock* clock,
              std::function<void(absl::Duration)> sleep)
      : model_(model), factor_(factor), clock_(clock), sleep_(sleep) {}

  std::vector<proto::Variable> Variables() const override {
    return model_->Variables();
  }

  absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink) override {
    const absl::Time begin = clock_->Now();
    auto result = model_->ComputeGradients(parameters, batch, sink);
    sleep_((factor_ - 1) * (clock_->Now() - begin));
    return result;
  }

  absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const Batch& batch) override {
    return model_->Evaluate(parameters, batch);
  }

 private:
  Model* const model_;
  const double factor_;
  const Clock* const clock_;
  const std::function<void(absl::Duration)> sleep_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_SLOWED_MODEL_H_
