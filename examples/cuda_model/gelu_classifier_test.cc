// SPDX-License-Identifier: Apache-2.0
#include "examples/cuda_model/gelu_classifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "examples/cuda_model/gelu.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/gradient_check.h"

namespace holdfast_examples {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

holdfast::Backend* Cpu() {
  static holdfast::Backend* const cpu =
      holdfast::CpuBackend::Create({})->release();
  return cpu;
}

absl::StatusOr<std::unique_ptr<holdfast::Model>> Create(
    std::map<std::string, std::string> options) {
  holdfast::ModelContext context;
  context.example_shape = {2, 3};
  context.num_classes = 4;
  context.backend = Cpu();
  context.options = std::move(options);
  return GeluClassifier::Create(context);
}

TEST(GeluClassifierTest, ReadsItsOptions) {
  const auto model = Create({{"hidden_units", "5"}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->Variables()[0].shape(), ElementsAre(6, 5));
  EXPECT_THAT((*model)->Variables()[3].shape(), ElementsAre(4));
  EXPECT_THAT(Create({}).status().message(), HasSubstr("hidden_units"));
  EXPECT_FALSE(Create({{"hidden_units", "five"}}).ok());
  EXPECT_FALSE(Create({{"hidden_units", "0"}}).ok());
  EXPECT_THAT(
      Create({{"hidden_units", "5"}, {"depth", "2"}}).status().message(),
      HasSubstr("unknown option \"depth\""));
}

// From the formula in gelu.h, to 6 digits: P(1) = 0.841345, p(1) = 0.241971.
TEST(GeluTest, Values) {
  const std::vector<float> x = {0, 1, -1, 20, -20};
  std::vector<float> y(x.size());
  Gelu(x.data(), x.size(), y.data());
  EXPECT_THAT(y, Pointwise(FloatNear(1e-6f),
                           {0.0f, 0.841345f, -0.158655f, 20.0f, 0.0f}));
  const std::vector<float> dy(x.size(), 2);
  GeluGradient(x.data(), dy.data(), x.size(), y.data());
  // 2 (P + x p).
  EXPECT_THAT(y, Pointwise(FloatNear(2e-6f),
                           {1.0f, 2.166632f, -0.166632f, 2.0f, 0.0f}));
}

TEST(GeluClassifierTest, GradientsAgreeWithFiniteDifferences) {
  const auto model = Create({{"hidden_units", "5"}});
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<std::vector<float>> parameters;
  float angle = 0;
  for (const auto& variable : (*model)->Variables()) {
    int64_t size = 1;
    for (int64_t dimension : variable.shape()) size *= dimension;
    parameters.emplace_back(size);
    for (float& value : parameters.back()) value = 0.7f * std::sin(angle += 1);
  }
  std::vector<float> inputs(3 * 6);
  for (float& value : inputs) value = std::sin(angle += 1);
  const std::vector<int32_t> labels = {0, 3, 1};
  EXPECT_EQ(
      holdfast::CheckGradients(model->get(), parameters, {inputs, labels}),
      absl::OkStatus());
}

}  // namespace
}  // namespace holdfast_examples
