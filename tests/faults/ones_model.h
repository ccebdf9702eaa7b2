// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_FAULTS_ONES_MODEL_H_
#define HOLDFAST_TESTS_FAULTS_ONES_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model.h"
#include "worker/model/registry.h"

namespace holdfast {

// A model whose variables are counters. Trained with plain SGD at a learning
// rate of 1:
//
//   pushes [49152]       each element grows by 1 with every push that counts;
//   seen   [positions]   element p grows by 1 with every push that counts and
//                        was computed on position p of the training stream.
//
// So the values show exactly whether each push counted once on every shard and
// each example was used once.
//
// Option "positions": the number of batches of the job x the examples in each.
class OnesModel : public Model {
 public:
  // Errors: INVALID_ARGUMENT for any other options.
  static absl::StatusOr<std::unique_ptr<Model>> Create(
      const ModelContext& context);

  std::vector<proto::Variable> Variables() const override;
  absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink) override;
  absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const Batch& batch) override;

 private:
  explicit OnesModel(int64_t positions);

  std::vector<float> pushes_;
  std::vector<float> seen_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_ONES_MODEL_H_
