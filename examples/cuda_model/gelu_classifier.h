// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_EXAMPLES_CUDA_MODEL_GELU_CLASSIFIER_H_
#define HOLDFAST_EXAMPLES_CUDA_MODEL_GELU_CLASSIFIER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/backend/backend.h"
#include "worker/model/model.h"
#include "worker/model/registry.h"

namespace holdfast_examples {

// A custom model with custom kernels: a classifier with one hidden layer and
// softmax cross-entropy,
//
//   a = x V + c,  h = gelu(a),  z = h W + b,
//
// with V [inputs, hidden], c [hidden], W [hidden, classes], b [classes]. The
// backend computes everything but gelu, which comes from gelu.h: a kernel on a
// GPU, a loop on the CPU.
//
// Thread-compatible.
class GeluClassifier final : public holdfast::Model {
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

  GeluClassifier(holdfast::Backend* backend, int64_t inputs, int64_t hidden,
                 int64_t classes);

  // Uploads the data, and computes the loss. If `want_gradient`, also computes
  // dz_, the gradient of the loss with respect to z.
  absl::StatusOr<holdfast::BatchResult> Forward(
      absl::Span<const absl::Span<const float>> parameters,
      const holdfast::Batch& batch, bool want_gradient);
  // Makes `matrix` a [rows, cols] view of `buffer`, which is enlarged as
  // needed.
  absl::Status Reserve(int64_t rows, int64_t cols,
                       holdfast::DeviceBuffer* buffer,
                       holdfast::Matrix* matrix);

  holdfast::Backend* const backend_;
  const int64_t inputs_;
  const int64_t hidden_units_;
  const int64_t classes_;
  std::vector<holdfast::proto::Variable> variables_;

  // Matrices in the backend's memory, which is kept from step to step. For the
  // current pass: x_, the inputs; indexed by variable, the values and the
  // gradients; the other matrices of the formula; and the gradients with
  // respect to z and h.
  holdfast::ConstMatrix x_;
  holdfast::ConstMatrix values_[kNumVariables];
  holdfast::Matrix gradients_[kNumVariables];
  holdfast::Matrix a_, h_, z_, dz_, dh_;
  holdfast::DeviceBuffer x_buffer_, a_buffer_, h_buffer_, z_buffer_, dz_buffer_,
      dh_buffer_;
  holdfast::DeviceBuffer value_buffers_[kNumVariables];
  holdfast::DeviceBuffer gradient_buffers_[kNumVariables];
};

}  // namespace holdfast_examples

#endif  // HOLDFAST_EXAMPLES_CUDA_MODEL_GELU_CLASSIFIER_H_
