// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_TRAINER_TESTING_FAKE_MODEL_H_
#define HOLDFAST_WORKER_TRAINER_TESTING_FAKE_MODEL_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/data/example_source.h"
#include "worker/model/model.h"
#include "worker/model/parameter_arrival.h"

namespace holdfast {

// A model with variables a [2] and b [3] for FakeCluster, where all values
// equal the version: its loss is the version. All values of a gradient are the
// version for b, whose gradient comes first, and minus the version for a. In an
// evaluation, an example is correct if its label equals the version; if the
// model predicts a number, the example's error is the distance between label
// and version. Its one output is the first input value.
//
// Thread-compatible.
class FakeModel final : public Model {
 public:
  // What a test can order: the versions at which ...
  struct {
    // ... the loss is NaN,
    int64_t nan_loss = -1;
    // ... the gradient of a, the last, has an infinite value,
    int64_t infinite_gradient = -1;
    // ... computing gradients is an error.
    int64_t error = -1;
  } at;
  // What a test can order: that the model predicts a number instead of a class.
  bool predicts_number = false;
  // What a test can order: that the model has a table "t" of two values per row
  // for field 0. Both values of a row's gradient are the number of times that
  // the batch uses the row.
  bool has_table = false;
  // What a test can order, if the model has a table: that it has no variables.
  // The version is then that of the batch's first row.
  bool has_variables = true;
  // What a test can order: that the model awaits its parameters.
  bool awaits_parameters = false;
  // Called in each evaluation, with the version.
  std::function<void(int64_t version)> on_evaluate;
  // Called in each computation of gradients, with the version.
  std::function<void(int64_t version)> on_compute;

  // The first input value of each batch for which gradients were computed.
  std::vector<float> first_inputs;
  // The loss scale of each batch for which gradients were computed.
  std::vector<float> loss_scales;
  // If the model has a table: the values of the rows of each batch, including
  // batches that were evaluated.
  std::vector<std::vector<float>> rows;
  // The number of evaluations whose batch wanted the outputs.
  int outputs_told = 0;

  std::vector<proto::Variable> Variables() const override {
    if (!has_variables) return {};
    return {MakeVariable("a", 2), MakeVariable("b", 3)};
  }

  std::vector<ModelTable> Tables() const override {
    if (!has_table) return {};
    ModelTable table;
    table.declared.set_name("t");
    table.declared.set_row_length(2);
    table.fields = {0};
    return {table};
  }

  bool AwaitsParameters() const override { return awaits_parameters; }

  absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink) override {
    for (size_t i = 0; i < 2 && batch.arrival != nullptr; ++i) {
      absl::Status status = batch.arrival->Await(i);
      if (!status.ok()) return status;
    }
    if (has_variables && parameters[1][2] != parameters[0][0]) {
      return absl::InternalError("the parameters have not arrived");
    }
    const float version = VersionOf(parameters, batch);
    first_inputs.push_back(batch.inputs[0]);
    loss_scales.push_back(batch.loss_scale);
    if (on_compute) on_compute(version);
    if (version == at.error) return absl::InternalError("the model broke");
    BatchResult result;
    result.examples = batch.size();
    result.loss_sum = version * batch.size();
    if (version == at.nan_loss) {
      result.finite = false;
      return result;
    }
    if (has_variables) {
      b_.assign(3, version);
      sink(1, b_);
      a_.assign(2, -version);
      if (version == at.infinite_gradient) {
        a_[1] = std::numeric_limits<float>::infinity();
      }
      sink(0, a_);
    }
    if (has_table) {
      rows.emplace_back(batch.rows[0].begin(), batch.rows[0].end());
      t_.assign(batch.rows[0].size(), 0);
      for (const uint32_t row : batch.bags->Of(0).rows()) {
        t_[row * 2] += 1;
        t_[row * 2 + 1] += 1;
      }
      sink(has_variables ? 2 : 0, t_);
    }
    return result;
  }

  absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const Batch& batch) override {
    const float version = VersionOf(parameters, batch);
    if (on_evaluate) on_evaluate(version);
    if (has_table) {
      rows.emplace_back(batch.rows[0].begin(), batch.rows[0].end());
    }
    BatchResult result;
    result.examples = batch.size();
    result.loss_sum = version * batch.size();
    int64_t correct = 0;
    double absolute_error_sum = 0;
    for (const int32_t label : batch.labels) {
      correct += label == version ? 1 : 0;
      absolute_error_sum += std::abs(label - version);
    }
    if (predicts_number) {
      result.absolute_error_sum = absolute_error_sum;
    } else {
      result.correct = correct;
    }
    if (batch.wants_outputs) {
      ++outputs_told;
      result.outputs = batch.inputs;
    }
    return result;
  }

  OutputSpec Outputs() const override { return {1, !predicts_number}; }

 private:
  float VersionOf(absl::Span<const absl::Span<const float>> parameters,
                  const Batch& batch) const {
    return has_variables ? parameters[0][0] : batch.rows[0][0];
  }
  static proto::Variable MakeVariable(const std::string& name, int64_t size) {
    proto::Variable variable;
    variable.set_name(name);
    variable.add_shape(size);
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_zeros();
    return variable;
  }

  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> t_;
};

// Examples of one value: example i has the value i, the label i mod
// `num_labels` and, with ids, the ids i and i mod 10 in field 0.
class FakeExamples final : public ExampleSource {
 public:
  FakeExamples(int64_t num_examples, int32_t num_labels)
      : num_examples_(num_examples), num_labels_(num_labels) {
    spec_.shape = {1};
  }

  // Gives the examples ids. Called by tests.
  void GiveIds() { spec_.id_fields = {{"f", 2}}; }

  // What a test can order: the result of reading any example.
  absl::Status error;

  int64_t num_examples() const override { return num_examples_; }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    to.input[0] = index;
    *to.label = index % num_labels_;
    if (!to.ids.empty()) {
      to.ids[0] = index;
      to.ids[1] = index % 10;
      to.id_counts[0] = 2;
    }
    return error;
  }

 private:
  const int64_t num_examples_;
  const int32_t num_labels_;
  ExampleSpec spec_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_TESTING_FAKE_MODEL_H_
