// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_EXAMPLES_CUSTOM_TABLE_MATRIX_FACTORIZATION_H_
#define HOLDFAST_EXAMPLES_CUSTOM_TABLE_MATRIX_FACTORIZATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/model/model.h"
#include "worker/model/registry.h"

namespace holdfast_examples {

// A custom model with embedding tables: the factorization of a matrix of
// ratings (Koren et al. 2009), in plain C++. For the rating that user u gives
// item i it predicts
//
//   y = mean + b_u + b_i + <p_u, q_i>,  loss = (y - rating)^2.
//
// "mean" is a variable [1]. The rows of the users table are [b_u, p_u], and
// those of the items table [b_i, q_i], with as many factors in p_u as in q_i.
// Users and items need not be listed: a row is created when its id first
// appears in a batch.
//
// Thread-compatible.
class MatrixFactorization final : public holdfast::Model {
 public:
  // Takes examples with two fields of ids, the user and the item, each with one
  // id, and one target. The tables are named after the fields. Option
  // "factors": the number of factors, 1 to 1024.
  // Errors: INVALID_ARGUMENT if the option is missing, another option is given,
  // or the examples are of another form.
  static absl::StatusOr<std::unique_ptr<holdfast::Model>> Create(
      const holdfast::ModelContext& context);

  std::vector<holdfast::proto::Variable> Variables() const override {
    return variables_;
  }
  std::vector<holdfast::ModelTable> Tables() const override { return tables_; }
  absl::StatusOr<holdfast::BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters,
      const holdfast::Batch& batch, holdfast::GradientSink sink) override;
  absl::StatusOr<holdfast::BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const holdfast::Batch& batch) override;
  holdfast::OutputSpec Outputs() const override { return {/*count=*/1}; }

 private:
  // Indices in Tables().
  enum Table { kUsers, kItems, kNumTables };

  MatrixFactorization(int64_t factors, const std::string& users,
                      const std::string& items);

  // Computes the loss. Fills errors_ and, if the batch wants outputs, outputs_.
  absl::StatusOr<holdfast::BatchResult> Forward(
      absl::Span<const absl::Span<const float>> parameters,
      const holdfast::Batch& batch);

  const int64_t row_length_;
  const std::vector<holdfast::proto::Variable> variables_;
  const std::vector<holdfast::ModelTable> tables_;

  // Indexed by example: y - rating.
  std::vector<float> errors_;
  std::vector<float> outputs_;
  // The gradients, which must stay unchanged until the next ComputeGradients,
  // while they are being sent.
  std::vector<float> mean_gradient_;
  std::vector<float> row_gradients_[kNumTables];
};

}  // namespace holdfast_examples

#endif  // HOLDFAST_EXAMPLES_CUSTOM_TABLE_MATRIX_FACTORIZATION_H_
