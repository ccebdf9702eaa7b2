// SPDX-License-Identifier: Apache-2.0
#include "examples/custom_model/tanh_classifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/model/gradient_check.h"

namespace holdfast_examples {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<holdfast::Model>> Create(
    std::map<std::string, std::string> options) {
  holdfast::ModelContext context;
  context.example_shape = {2, 3};
  context.num_classes = 4;
  context.options = std::move(options);
  return TanhClassifier::Create(context);
}

TEST(TanhClassifierTest, ReadsItsOptions) {
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

TEST(TanhClassifierTest, GradientsAgreeWithFiniteDifferences) {
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
