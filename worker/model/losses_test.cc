// SPDX-License-Identifier: Apache-2.0

// The losses of models: their values, the targets that they take, their scale.
#include "worker/model/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/testing/sequential_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LossesTest : public SequentialTestBase {};

// One dense unit with one input, w = 2 and b = -1, at x = 0, 1 and 2: outputs
// -1, 1 and 3.
TEST_F(LossesTest, LossesOfOneOutputByHand) {
  const Tensors parameters = {{2}, {-1}};
  const std::vector<float> inputs = {0, 1, 2};
  const std::vector<int32_t> labels = {0, 1, 1};
  const auto evaluate = [&](const std::string& loss) {
    return *Make("layers { dense { units: 1 } } loss { " + loss + " {} }", 1)
                ->Evaluate(Spans(parameters), {inputs, labels});
  };
  const BatchResult sigmoid = evaluate("sigmoid_cross_entropy");
  EXPECT_EQ(sigmoid.examples, 3);
  // log(1 + exp(z)) where the label is 0, log(1 + exp(-z)) where it is 1.
  EXPECT_NEAR(sigmoid.loss_sum,
              std::log1p(std::exp(-1.0)) + std::log1p(std::exp(-1.0)) +
                  std::log1p(std::exp(-3.0)),
              1e-6);
  EXPECT_EQ(sigmoid.correct, 3);
  EXPECT_EQ(sigmoid.absolute_error_sum, std::nullopt);
  // Errors -1, 0 and 2.
  const BatchResult squared = evaluate("mean_squared_error");
  EXPECT_EQ(squared.loss_sum, 5);
  EXPECT_EQ(squared.correct, std::nullopt);
  EXPECT_EQ(squared.absolute_error_sum, 3);
  EXPECT_EQ(squared.squared_error_sum, 5);
  EXPECT_EQ(evaluate("mean_absolute_error").loss_sum, 3);
  // With delta 1, the default: 1 / 2, 0 and 2 - 1 / 2.
  const BatchResult huber = evaluate("huber");
  EXPECT_EQ(huber.loss_sum, 2);
  EXPECT_EQ(huber.correct, std::nullopt);
  EXPECT_EQ(huber.absolute_error_sum, 3);
  EXPECT_EQ(huber.squared_error_sum, 5);
}

// Two dense units with one input, w = (1, 0) and b = (0, 1), at x = 2: outputs
// (2, 1), label 1: errors (2, 0).
TEST_F(LossesTest, LossesOfSeveralOutputsByHand) {
  const Tensors parameters = {{1, 0}, {0, 1}};
  const std::vector<float> inputs = {2};
  const auto evaluate = [&](const std::string& loss, int32_t label) {
    return *Make("layers { dense { units: 2 } } loss { " + loss + " {} }", 1)
                ->Evaluate(Spans(parameters), {inputs, {label}});
  };
  const BatchResult sigmoid = evaluate("sigmoid_cross_entropy", 1);
  EXPECT_NEAR(sigmoid.loss_sum,
              (std::log1p(std::exp(2.0)) + std::log1p(std::exp(-1.0))) / 2,
              1e-6);
  EXPECT_EQ(sigmoid.correct, 0);
  EXPECT_EQ(sigmoid.absolute_error_sum, std::nullopt);
  const BatchResult squared = evaluate("mean_squared_error", 1);
  EXPECT_EQ(squared.loss_sum, 2);
  EXPECT_EQ(squared.correct, 0);
  EXPECT_EQ(squared.absolute_error_sum, 1);
  EXPECT_EQ(squared.squared_error_sum, 2);
  EXPECT_EQ(evaluate("mean_squared_error", 0).correct, 1);
  EXPECT_EQ(evaluate("softmax_cross_entropy", 0).absolute_error_sum,
            std::nullopt);
}

TEST_F(LossesTest, LearnsTargets) {
  const ExampleSpec examples = {{2}, std::nullopt, 2};
  const auto create = [&](const std::string& text) {
    return CreateSequential(Parse(text), examples, 0, backend_.get());
  };
  EXPECT_THAT(create("layers { dense { units: 2 } }"
                     "loss { softmax_cross_entropy {} }")
                  .status()
                  .message(),
              HasSubstr("softmax_cross_entropy, which takes classes; the data "
                        "have targets"));
  EXPECT_THAT(create("layers { dense { units: 3 } }"
                     "loss { mean_squared_error {} }")
                  .status()
                  .message(),
              HasSubstr("gives the shape [3]; the data have 2 targets"));
  const auto model = create(
      "layers { dense { units: 2 use_bias: false } }"
      "loss { mean_squared_error {} }");
  ASSERT_TRUE(model.ok()) << model.status();

  // y = x W with W = 0: errors are -t, and dW = x^T dz with dz = -2 w t / 4.
  const std::vector<float> inputs = {1, 2, 3, 4};
  const std::vector<float> targets = {1, 0, 0, -2};
  const std::vector<float> weights = {2, 1};
  Batch batch;
  batch.inputs = inputs;
  batch.targets = targets;
  batch.num_targets = 2;
  batch.weights = weights;
  const std::vector<float> zeros(4);
  const absl::Span<const float> parameters[] = {zeros};
  std::vector<float> gradient;
  const auto result = (*model)->ComputeGradients(
      parameters, batch, [&](int, absl::Span<const float> values) {
        gradient.assign(values.begin(), values.end());
      });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->examples, 2);
  EXPECT_DOUBLE_EQ(result->loss_sum, 2 * 0.5 + 2);
  EXPECT_FALSE(result->correct.has_value());
  EXPECT_THAT(gradient, ElementsAre(-1, 3, -2, 4));

  const std::vector<int32_t> labels = {0, 1};
  EXPECT_THAT(
      (*model)->Evaluate(parameters, {inputs, labels}).status().message(),
      HasSubstr("the batch has 0 targets for each example; the model "
                "takes 2"));
  batch.weights = absl::MakeConstSpan(weights).first(1);
  EXPECT_THAT((*model)->Evaluate(parameters, batch).status().message(),
              HasSubstr("the batch has 1 weights for 2 examples"));
}

TEST_F(LossesTest, OneOutputLimitsTheLabelsAsTheLossSays) {
  const Tensors parameters = {{2}, {-1}};
  const std::vector<float> inputs = {0, 1, 2};
  const auto evaluate = [&](const std::string& loss,
                            std::vector<int32_t> labels) {
    return Make("layers { dense { units: 1 } } loss { " + loss + " {} }", 1)
        ->Evaluate(Spans(parameters), {inputs, labels})
        .status();
  };
  const absl::Status status = evaluate("sigmoid_cross_entropy", {0, 1, 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("example 2 of the batch has the label 2; the model "
                        "knows the classes 0 to 1"));
  EXPECT_TRUE(evaluate("mean_squared_error", {0, 200, 2147483647}).ok());
  EXPECT_THAT(evaluate("mean_squared_error", {0, -1, 0}).message(),
              HasSubstr("example 1 of the batch has the label -1"));
}

// The mean over a batch is the mean of the means over its halves.
TEST_F(LossesTest, GradientIsOfTheMeanLoss) {
  auto model = MakeMlp({5, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples all(8, 4, 3);
  const Batch batch = all.batch();
  const Tensors whole = Gradients(model.get(), parameters, batch);
  const Tensors a =
      Gradients(model.get(), parameters,
                {batch.inputs.subspan(0, 16), batch.labels.subspan(0, 4)});
  const Tensors b =
      Gradients(model.get(), parameters,
                {batch.inputs.subspan(16), batch.labels.subspan(4)});
  for (size_t v = 0; v < whole.size(); ++v) {
    for (size_t i = 0; i < whole[v].size(); ++i) {
      EXPECT_NEAR(whole[v][i], (a[v][i] + b[v][i]) / 2, 1e-6);
    }
  }
}

// Except for float16's losses, a scale that is a power of two changes no bits;
// batch norm's statistics are not gradients.
TEST_F(LossesTest, TheLossScaleGoesInAndOutAgain) {
  const auto model = Make(
      "layers { dense { units: 6 } } layers { batch_norm {} }"
      "layers { relu {} } layers { dense { units: 3 } }"
      "loss { softmax_cross_entropy {} }",
      5);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(8, 5, 3);
  Batch batch = examples.training_batch();
  const Tensors expected = Gradients(model.get(), parameters, batch);
  batch.loss_scale = 1024;
  EXPECT_EQ(Gradients(model.get(), parameters, batch), expected);
}

// With x = 1, w and v: z = w v, dz = 2 (z - label), dw = v dz, where dz is a
// factor and is rounded.
TEST_F(LossesTest, TheLossScaleKeepsSmallGradientsInFloat16) {
  backend_ = *CpuBackend::Create({.precision = Precision::kFloat16});
  const auto model = Make(
      "layers { dense { units: 1 use_bias: false } }"
      "layers { dense { units: 1 use_bias: false } }"
      "loss { mean_squared_error {} }",
      1);
  const Tensors parameters = {{1}, {0x1p-24f}};
  const std::vector<float> input = {1};
  const std::vector<int32_t> labels = {1};
  Batch batch = {input, labels};
  // dz = 2 (2^-24 - 1), which float32 holds; by the first kernel 2^-24 dz.
  EXPECT_EQ(Gradients(model.get(), parameters, batch)[0][0], -0x1p-23f);
  const Tensors smaller = {{0x1p-13f}, {0x1p-13f}};
  const std::vector<int32_t> zero = {0};
  batch.labels = zero;
  // dz = 2^-25, and 0 as a factor.
  EXPECT_EQ(Gradients(model.get(), smaller, batch)[0][0], 0);
  batch.loss_scale = 65536;
  EXPECT_EQ(Gradients(model.get(), smaller, batch)[0][0], 0x1p-38f);
  // A scale that is too large gives infinity or NaN.
  batch.labels = labels;
  batch.loss_scale = 1 << 24;
  EXPECT_FALSE(std::isfinite(Gradients(model.get(), parameters, batch)[0][0]));
}

TEST_F(LossesTest, SaysWhenTheLossIsNotFinite) {
  auto model = MakeMlp({5, 3}, 4);
  const Tensors good = RandomParameters(*model);
  const Examples examples(8, 4, 3);
  int calls = 0;
  const auto count = [&](int, absl::Span<const float>) { ++calls; };
  for (float bad : {std::numeric_limits<float>::quiet_NaN(),
                    std::numeric_limits<float>::infinity()}) {
    Tensors parameters = good;
    parameters[1][2] = bad;
    const auto result =
        model->ComputeGradients(Spans(parameters), examples.batch(), count);
    ASSERT_TRUE(result.ok());
    EXPECT_FALSE(result->finite);
    EXPECT_EQ(result->examples, 8);
    const auto forward = model->Evaluate(Spans(parameters), examples.batch());
    ASSERT_TRUE(forward.ok());
    EXPECT_FALSE(forward->finite);
  }
  EXPECT_EQ(calls, 0);
  // And continues after the error.
  const auto result =
      model->ComputeGradients(Spans(good), examples.batch(), count);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->finite);
  EXPECT_EQ(calls, 4);
}

}  // namespace
}  // namespace holdfast
