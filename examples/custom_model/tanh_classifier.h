// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_EXAMPLES_CUSTOM_MODEL_TANH_CLASSIFIER_H_
#define HOLDFAST_EXAMPLES_CUSTOM_MODEL_TANH_CLASSIFIER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/model/model.h"
#include "worker/model/registry.h"

namespace holdfast_examples {

// A custom model: a classifier with one hidden layer of tanh units and softmax
// cross-entropy, in plain C++,
//
//   h = tanh(x V + c),  z = h W + b,  loss = log(sum of exp(z)) - z[label],
//
// with V [inputs, hidden], c [hidden], W [hidden, classes], b [classes].
//
// Thread-compatible.
class TanhClassifier final : public holdfast::Model {
 public:
  // Option "hidden_units": the width of the hidden layer, 1 to 65536.
  // Errors: INVALID_ARGUMENT if it is missing, another option is given, or the
  // data do not say how many classes they have.
  static absl::StatusOr<std::unique_ptr<holdfast::Model>> Create(
      const holdfast::ModelContext& context);

  std::vector<holdfast::proto::Variable> Variables() const override {
    return variables_;
  }
  absl::StatusOr<holdfast::BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters,
      const holdfast::Batch& batch, holdfast::GradientSink sink) override;
  absl::StatusOr<holdfast::BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const holdfast::Batch& batch) override;

 private:
  // Indices in Variables().
  enum Variable { kV, kC, kW, kB, kNumVariables };

  TanhClassifier(int64_t inputs, int64_t hidden, int64_t classes);

  // Computes the loss. Fills hidden_ with h, and probabilities_ with the
  // softmax of z.
  absl::StatusOr<holdfast::BatchResult> Forward(
      absl::Span<const absl::Span<const float>> parameters,
      const holdfast::Batch& batch);

  const int64_t inputs_;
  const int64_t hidden_units_;
  const int64_t classes_;
  std::vector<holdfast::proto::Variable> variables_;

  // Indexed by example; kept to reuse their memory.
  std::vector<float> hidden_;
  std::vector<float> probabilities_;
  // Indexed by variable; kept until the next ComputeGradients, while they are
  // being sent.
  std::vector<std::vector<float>> gradients_;
};

}  // namespace holdfast_examples

#endif  // HOLDFAST_EXAMPLES_CUSTOM_MODEL_TANH_CLASSIFIER_H_
