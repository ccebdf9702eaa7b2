// SPDX-License-Identifier: Apache-2.0
#include "examples/custom_table/matrix_factorization.h"

#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/input/id_bags.h"

namespace holdfast_examples {
namespace {

using ::holdfast::Batch;
using ::holdfast::BatchResult;
using ::holdfast::IdBags;

constexpr int64_t kMostFactors = 1024;
constexpr float kFirstFactors = 0.1f;

holdfast::proto::Variable MakeMean() {
  holdfast::proto::Variable variable;
  variable.set_name("mean");
  variable.add_shape(1);
  variable.set_dtype(holdfast::proto::FLOAT32);
  variable.mutable_initializer()->mutable_zeros();
  return variable;
}

// The table for the ids of one field. Factors that started at 0 would stay
// there, because the gradient of each is a multiple of another.
holdfast::ModelTable MakeTable(const std::string& name, int64_t row_length,
                               int field) {
  holdfast::ModelTable table;
  table.declared.set_name(name);
  table.declared.set_row_length(static_cast<uint32_t>(row_length));
  auto* const uniform = table.declared.mutable_initializer()->mutable_uniform();
  uniform->set_low(-kFirstFactors);
  uniform->set_high(kFirstFactors);
  table.fields = {field};
  return table;
}

// The row at index `place` of a batch's rows.
template <typename T>
absl::Span<T> Row(absl::Span<T> rows, uint32_t place, int64_t row_length) {
  return rows.subspan(place * row_length, row_length);
}

}  // namespace

absl::StatusOr<std::unique_ptr<holdfast::Model>> MatrixFactorization::Create(
    const holdfast::ModelContext& context) {
  int64_t factors = 0;
  for (const auto& [name, value] : context.options) {
    if (name != "factors") {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown option \"", name, "\"; there is \"factors\""));
    }
    if (!absl::SimpleAtoi(value, &factors)) factors = 0;
  }
  if (factors < 1 || factors > kMostFactors) {
    return absl::InvalidArgumentError(absl::StrCat(
        "option \"factors\" must be given, a number from 1 to ", kMostFactors));
  }
  const auto& fields = context.id_fields;
  if (fields.size() != kNumTables || context.id_values ||
      fields[kUsers].max_ids != 1 || fields[kItems].max_ids != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model needs two fields of ids, users and items, each with one id "
        "and without values; the examples have ",
        fields.size(), " fields"));
  }
  if (context.example_shape != std::vector<int64_t>{0}) {
    return absl::InvalidArgumentError("the model takes no inputs besides ids");
  }
  if (context.num_targets != 1) {
    return absl::InvalidArgumentError("the model needs one target, the rating");
  }
  if (context.weighted) {
    return absl::InvalidArgumentError(
        "the model does not support weights of examples");
  }
  return std::unique_ptr<holdfast::Model>(new MatrixFactorization(
      factors, fields[kUsers].name, fields[kItems].name));
}

MatrixFactorization::MatrixFactorization(int64_t factors,
                                         const std::string& users,
                                         const std::string& items)
    : row_length_(1 + factors),
      variables_({MakeMean()}),
      tables_({MakeTable(users, 1 + factors, kUsers),
               MakeTable(items, 1 + factors, kItems)}),
      mean_gradient_(1) {}

absl::StatusOr<BatchResult> MatrixFactorization::Forward(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch) {
  HOLDFAST_RETURN_IF_ERROR(holdfast::CheckParameters(variables_, parameters));
  HOLDFAST_RETURN_IF_ERROR(holdfast::CheckBatch(batch, /*example_size=*/0,
                                                /*num_classes=*/0,
                                                /*num_targets=*/1));
  if (batch.bags == nullptr || batch.rows.size() != kNumTables) {
    return absl::InvalidArgumentError("the batch has no rows");
  }
  const IdBags& users = batch.bags->Of(kUsers);
  const IdBags& items = batch.bags->Of(kItems);
  // With one id in each bag, entry e of rows() belongs to example e.
  const auto examples = static_cast<size_t>(batch.size());
  if (users.rows().size() != examples || items.rows().size() != examples) {
    return absl::InvalidArgumentError("an example lacks its user or its item");
  }

  const float mean = parameters[0][0];
  BatchResult result;
  result.examples = batch.size();
  double absolute = 0;
  errors_.resize(examples);
  outputs_.resize(examples);
  for (size_t e = 0; e < examples; ++e) {
    const auto user = Row(batch.rows[kUsers], users.rows()[e], row_length_);
    const auto item = Row(batch.rows[kItems], items.rows()[e], row_length_);
    float y = mean + user[0] + item[0];
    for (int64_t k = 1; k < row_length_; ++k) y += user[k] * item[k];
    outputs_[e] = y;
    errors_[e] = y - batch.targets[e];
    result.loss_sum += double{errors_[e]} * errors_[e];
    absolute += std::abs(errors_[e]);
  }
  result.absolute_error_sum = absolute;
  result.squared_error_sum = result.loss_sum;
  result.finite = std::isfinite(result.loss_sum);
  if (batch.wants_outputs) result.outputs = outputs_;
  return result;
}

absl::StatusOr<BatchResult> MatrixFactorization::ComputeGradients(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    holdfast::GradientSink sink) {
  absl::StatusOr<BatchResult> result = Forward(parameters, batch);
  if (!result.ok() || !result->finite) return result;
  const IdBags& users = batch.bags->Of(kUsers);
  const IdBags& items = batch.bags->Of(kItems);
  mean_gradient_[0] = 0;
  for (int t = 0; t < kNumTables; ++t) {
    row_gradients_[t].assign(batch.rows[t].size(), 0.0f);
  }
  const float scale = 2.0f / static_cast<float>(batch.size());
  for (size_t e = 0; e < errors_.size(); ++e) {
    const float dy = scale * errors_[e];
    const auto user = Row(batch.rows[kUsers], users.rows()[e], row_length_);
    const auto item = Row(batch.rows[kItems], items.rows()[e], row_length_);
    // The gradient of a row that several examples use is the sum of their
    // gradients.
    const auto user_gradient = Row(absl::MakeSpan(row_gradients_[kUsers]),
                                   users.rows()[e], row_length_);
    const auto item_gradient = Row(absl::MakeSpan(row_gradients_[kItems]),
                                   items.rows()[e], row_length_);
    mean_gradient_[0] += dy;
    user_gradient[0] += dy;
    item_gradient[0] += dy;
    for (int64_t k = 1; k < row_length_; ++k) {
      user_gradient[k] += dy * item[k];
      item_gradient[k] += dy * user[k];
    }
  }
  // Tables have the indices after the variables.
  sink(0, mean_gradient_);
  const int first_table = static_cast<int>(variables_.size());
  for (int t = 0; t < kNumTables; ++t) {
    sink(first_table + t, row_gradients_[t]);
  }
  return result;
}

absl::StatusOr<BatchResult> MatrixFactorization::Evaluate(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch) {
  return Forward(parameters, batch);
}

}  // namespace holdfast_examples
