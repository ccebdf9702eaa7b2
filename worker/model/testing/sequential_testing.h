// SPDX-License-Identifier: Apache-2.0

// For tests of sequential models: models from a few words, parameters and
// batches.
#ifndef HOLDFAST_WORKER_MODEL_TESTING_SEQUENTIAL_TESTING_H_
#define HOLDFAST_WORKER_MODEL_TESTING_SEQUENTIAL_TESTING_H_

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/testing/test_values.h"
#include "worker/model/sequential.h"

namespace holdfast {

using Tensors = std::vector<std::vector<float>>;

inline proto::Sequential Parse(const std::string& text) {
  proto::Sequential config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

// dense(units) relu ... dense(units), on vectors.
inline proto::Sequential Mlp(const std::vector<int>& units) {
  proto::Sequential config;
  for (size_t i = 0; i < units.size(); ++i) {
    if (i > 0) config.add_layers()->mutable_relu();
    config.add_layers()->mutable_dense()->set_units(units[i]);
  }
  config.mutable_loss()->mutable_softmax_cross_entropy();
  return config;
}

inline Tensors RandomParameters(const Model& model, float scale = 0.5f) {
  Tensors parameters;
  for (const proto::Variable& variable : model.Variables()) {
    int64_t size = 1;
    for (int64_t dimension : variable.shape()) size *= dimension;
    parameters.push_back(RandomValues(size, 100 + parameters.size(), scale));
  }
  return parameters;
}

inline std::vector<absl::Span<const float>> Spans(const Tensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

// A batch with its memory.
struct Examples {
  Examples(int64_t size, int64_t example_size, int num_classes)
      : inputs(RandomValues(size * example_size, 7)) {
    for (int64_t i = 0; i < size; ++i) {
      labels.push_back(i * 7 % num_classes);
      positions.push_back(1000 + i);
    }
  }
  Batch batch() const { return {inputs, labels}; }
  Batch training_batch() const { return {inputs, labels, positions}; }

  std::vector<float> inputs;
  std::vector<int32_t> labels;
  std::vector<int64_t> positions;
};

class SequentialTestBase : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<NetworkModel>> Create(
      const proto::Sequential& config, std::vector<int64_t> shape,
      std::optional<int64_t> num_classes = std::nullopt, uint64_t seed = 0) {
    return CreateSequential(config, {std::move(shape), num_classes}, seed,
                            backend_.get());
  }

  std::unique_ptr<NetworkModel> MakeMlp(const std::vector<int>& units,
                                        int64_t inputs) {
    auto model = Create(Mlp(units), {inputs});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  std::string CreateError(const std::string& text, std::vector<int64_t> shape,
                          std::optional<int64_t> num_classes = std::nullopt) {
    const absl::Status status =
        Create(Parse(text), std::move(shape), num_classes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  // For vectors of `inputs` inputs.
  std::unique_ptr<NetworkModel> Make(const std::string& text, int64_t inputs,
                                     uint64_t seed = 0) {
    auto model = Create(Parse(text), {inputs}, std::nullopt, seed);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  // The gradients, indexed by variable.
  Tensors Gradients(Model* model, const Tensors& parameters,
                    const Batch& batch) {
    Tensors gradients(parameters.size());
    const auto result = model->ComputeGradients(
        Spans(parameters), batch,
        [&](int variable, absl::Span<const float> gradient) {
          gradients[variable].assign(gradient.begin(), gradient.end());
        });
    EXPECT_TRUE(result.ok()) << result.status();
    return gradients;
  }

  std::unique_ptr<CpuBackend> backend_ = *CpuBackend::Create({});
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_TESTING_SEQUENTIAL_TESTING_H_
