// SPDX-License-Identifier: Apache-2.0

// Models of images: the layers that take them, alone and in residual blocks.

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/tensor/shape.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/testing/test_values.h"
#include "worker/model/gradient_check.h"
#include "worker/model/sequential.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

class ImagesTest : public ::testing::Test {
 protected:
  // `layers`, and a loss.
  absl::StatusOr<std::unique_ptr<NetworkModel>> Create(
      const std::string& layers, const std::vector<int64_t>& shape,
      const std::string& loss = "softmax_cross_entropy") {
    proto::Sequential config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat(layers, " loss { ", loss, " {} }"), &config))
        << layers;
    return CreateSequential(config, {shape}, /*seed=*/7, backend_.get());
  }

  std::string CreateError(const std::string& layers,
                          const std::vector<int64_t>& shape) {
    const absl::Status status = Create(layers, shape).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  // The output shape of `layers`, from the error of a dense layer after them.
  std::string ShapeAfter(const std::string& layers,
                         const std::vector<int64_t>& shape) {
    const std::string error =
        CreateError(layers + " layers { dense { units: 1 } }", shape);
    const std::string before = "its input has the shape ";
    const size_t at = error.find(before);
    if (at == std::string::npos) return error;
    return error.substr(at + before.size(),
                        error.find(';') - at - before.size());
  }

  // "name[shape]" of each variable.
  std::vector<std::string> VariablesOf(const std::string& layers,
                                       const std::vector<int64_t>& shape) {
    const auto model = Create(layers, shape);
    EXPECT_TRUE(model.ok()) << model.status();
    std::vector<std::string> variables;
    for (const proto::Variable& variable : (*model)->Variables()) {
      variables.push_back(variable.name() + ShapeString(variable.shape()));
    }
    return variables;
  }

  // The outputs, at least two, of a model at `parameters` for one example,
  // computed from the squared errors for all labels; the first output must not
  // be small.
  std::vector<double> Outputs(const std::string& layers,
                              const std::vector<int64_t>& shape,
                              const Tensors& parameters,
                              const std::vector<float>& input, int outputs) {
    const auto model =
        Create(layers + " layers { flatten {} }", shape, "mean_squared_error");
    EXPECT_TRUE(model.ok()) << model.status();
    const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                     parameters.end());
    std::vector<double> losses;
    for (int32_t label = 0; label < outputs; ++label) {
      const auto result = (*model)->Evaluate(spans, {input, {label}});
      EXPECT_TRUE(result.ok()) << result.status();
      losses.push_back(result->loss_sum * outputs);
    }
    // The n losses, each n times the mean: loss_i = sum of o^2 + 1 - 2 o_i. So
    // o_i = o_0 + d_i, d_i = (loss_0 - loss_i) / 2, and o_0 is the greater root
    // of loss_0.
    std::vector<double> differences;
    double d1 = 0, d2 = 0;
    for (const double loss : losses) {
      differences.push_back((losses[0] - loss) / 2);
      d1 += differences.back();
      d2 += differences.back() * differences.back();
    }
    const double n = outputs;
    const double b = 2 * d1 - 2, c = d2 + 1 - losses[0];
    const double root = std::sqrt(b * b - 4 * n * c);
    const double o = (-b + root) / (2 * n);
    for (double& difference : differences) difference += o;
    return differences;
  }

  void ExpectGradientsAgree(const std::string& layers,
                            const std::vector<int64_t>& shape,
                            bool with_positions = false) {
    SCOPED_TRACE(absl::StrCat(layers, " of ", ShapeString(shape)));
    const auto model = Create(layers, shape);
    ASSERT_TRUE(model.ok()) << model.status();
    Tensors parameters;
    for (const proto::Variable& variable : (*model)->Variables()) {
      parameters.push_back(RandomValues(*NumElements(variable.shape()),
                                        100 + parameters.size(), 0.5f));
    }
    for (const int64_t examples : {1, 3}) {
      const std::vector<float> inputs =
          RandomValues(examples * *NumElements(shape), 7);
      const std::vector<int32_t> labels = {1, 0, 2};
      const std::vector<int64_t> positions = {10, 11, 12};
      Batch batch = {inputs, absl::MakeConstSpan(labels).first(examples)};
      if (with_positions) {
        batch.positions = absl::MakeConstSpan(positions).first(examples);
      }
      // A step with which no difference crosses a kink.
      const float step = layers.find("max_pool") != layers.npos ? 2e-3f : 1e-2f;
      EXPECT_EQ(CheckGradients(model->get(), parameters, batch, step,
                               /*tolerance=*/5e-4),
                absl::OkStatus());
    }
  }

  std::unique_ptr<CpuBackend> backend_ = *CpuBackend::Create({});
};

// As in TensorFlow 2: SAME ceil(n / s), VALID ceil((n - k + 1) / s).
TEST_F(ImagesTest, Shapes) {
  EXPECT_EQ(
      ShapeAfter("layers { conv2d { filters: 6 kernel_size: 5 } }", {28, 28}),
      "[24,24,6]");
  EXPECT_EQ(ShapeAfter("layers { conv2d { filters: 6 kernel_size: [2, 5] "
                       "padding: SAME } }",
                       {28, 20, 3}),
            "[28,20,6]");
  EXPECT_EQ(ShapeAfter("layers { conv2d { filters: 6 kernel_size: 3 "
                       "stride: [2, 3] padding: SAME } }",
                       {28, 28}),
            "[14,10,6]");
  EXPECT_EQ(ShapeAfter("layers { conv2d { filters: 6 kernel_size: 3 "
                       "stride: [2, 3] } }",
                       {28, 28}),
            "[13,9,6]");
  // The stride of a pool is its size.
  EXPECT_EQ(ShapeAfter("layers { max_pool2d { size: 2 } }", {29, 28, 4}),
            "[14,14,4]");
  EXPECT_EQ(ShapeAfter("layers { max_pool2d { size: 2 padding: SAME } }",
                       {29, 28, 4}),
            "[15,14,4]");
  EXPECT_EQ(ShapeAfter("layers { average_pool2d { size: [3, 2] stride: 1 } }",
                       {29, 28, 4}),
            "[27,27,4]");
  EXPECT_EQ(ShapeAfter("layers { layer_norm {} }", {29, 28, 4}), "[29,28,4]");
  EXPECT_EQ(ShapeAfter("layers { residual { layers { relu {} } } }", {9, 8}),
            "[9,8]");
  EXPECT_THAT(VariablesOf("layers { global_average_pool2d {} }"
                          "layers { dense { units: 2 } }",
                          {29, 28, 4}),
              ElementsAre("dense/kernel[4,2]", "dense/bias[2]"));
  EXPECT_THAT(VariablesOf("layers { conv2d { filters: 6 kernel_size: [2, 5] "
                          "groups: 3 } } layers { flatten {} }",
                          {2, 5, 9}),
              ElementsAre("conv2d/kernel[2,5,3,6]", "conv2d/bias[6]"));
}

TEST_F(ImagesTest, VariablesAreNamedByTheirPlace) {
  EXPECT_THAT(
      VariablesOf(
          R"pb(
            layers {
              residual {
                layers { conv2d { filters: 4 kernel_size: 1 use_bias: false } }
                layers { layer_norm {} }
                layers { conv2d { filters: 4 kernel_size: 1 } }
                shortcut {
                  conv2d { filters: 4 kernel_size: 1 use_bias: false }
                }
              }
            }
            layers {
              name: "second"
              residual { layers { layer_norm {} } }
            }
            layers { flatten {} })pb",
          {5, 5}),
      ElementsAre(
          "residual/conv2d/kernel[1,1,1,4]", "residual/layer_norm/scale[4]",
          "residual/layer_norm/offset[4]", "residual/conv2d_1/kernel[1,1,4,4]",
          "residual/conv2d_1/bias[4]",
          "residual/shortcut/conv2d/kernel[1,1,1,4]",
          "second/layer_norm/scale[4]", "second/layer_norm/offset[4]"));
  const auto model = Create(
      "layers { layer_norm {} } layers { conv2d { filters: 1 kernel_size: 2 "
      "kernel_initializer { he {} } bias_initializer { constant { value: 3 } }"
      "} } layers { flatten {} }",
      {2, 2, 2});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto variables = (*model)->Variables();
  EXPECT_EQ(variables[0].initializer().constant().value(), 1);
  EXPECT_TRUE(variables[1].initializer().has_zeros());
  EXPECT_TRUE(variables[2].initializer().has_he());
  EXPECT_EQ(variables[3].initializer().constant().value(), 3);
}

// x = (1, 2, 3, 4) down, kernel (1, 10, 100), stride 2: SAME needs one row of
// padding, which TensorFlow puts at the end. VALID sees the first window alone;
// two filters make two outputs from it.
TEST_F(ImagesTest, PaddingByHand) {
  EXPECT_THAT(Outputs("layers { conv2d { filters: 1 kernel_size: [3, 1] "
                      "stride: [2, 1] padding: SAME use_bias: false } }",
                      {4, 1}, {{1, 10, 100}}, {1, 2, 3, 4}, 2),
              ElementsAre(testing::DoubleNear(321, 1e-3),
                          testing::DoubleNear(43, 1e-3)));
  EXPECT_THAT(
      Outputs("layers { conv2d { filters: 2 kernel_size: [3, 1] "
              "stride: [2, 1] } }",
              {4, 1}, {{1, 3, 10, 30, 100, 300}, {0.5, 2}}, {1, 2, 3, 4}, 2),
      ElementsAre(testing::DoubleNear(321.5, 1e-3),
                  testing::DoubleNear(965, 1e-3)));
}

// An image with two channels, which are innermost.
TEST_F(ImagesTest, PoolsByHand) {
  const std::vector<float> image = {1, 40, 3, 20, 2, 30, 4, 70};
  EXPECT_THAT(
      Outputs("layers { max_pool2d { size: 2 } } layers { layer_norm {"
              "epsilon: 1e-6 } }",
              {2, 2, 2}, {{1, 1}, {5, 5}}, image, 2),
      ElementsAre(testing::DoubleNear(4, 1e-3), testing::DoubleNear(6, 1e-3)));
  EXPECT_THAT(
      Outputs("layers { average_pool2d { size: [1, 2] } } layers { "
              "flatten {} } layers { dense { units: 4 } }",
              {2, 2, 2},
              {{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, {0, 0, 0, 0}},
              image, 4),
      ElementsAre(testing::DoubleNear(2, 1e-3), testing::DoubleNear(30, 1e-3),
                  testing::DoubleNear(3, 1e-3), testing::DoubleNear(50, 1e-3)));
  EXPECT_THAT(Outputs("layers { global_average_pool2d {} } layers { dense { "
                      "units: 2 } }",
                      {2, 2, 2}, {{1, 0, 0, 1}, {0, 0}}, image, 2),
              ElementsAre(testing::DoubleNear(2.5, 1e-3),
                          testing::DoubleNear(40, 1e-3)));
}

// f(x) = x W + b with W = [0 2; 3 0], b = (1, 1): of (5, 7), (22, 11).
TEST_F(ImagesTest, ResidualByHand) {
  const std::string f = "layers { dense { units: 2 } }";
  const Tensors identity = {{0, 2, 3, 0}, {1, 1}};
  EXPECT_THAT(
      Outputs("layers { residual { " + f + " } }", {2}, identity, {5, 7}, 2),
      ElementsAre(testing::DoubleNear(27, 1e-3),
                  testing::DoubleNear(18, 1e-3)));
  // With the shortcut 10 x.
  EXPECT_THAT(
      Outputs("layers { residual { " + f +
                  " shortcut { dense { units: 2 use_bias: false } } } }",
              {2}, {{0, 2, 3, 0}, {1, 1}, {10, 0, 0, 10}}, {5, 7}, 2),
      ElementsAre(testing::DoubleNear(72, 1e-3),
                  testing::DoubleNear(81, 1e-3)));
}

TEST_F(ImagesTest, EveryKindAgreesWithFiniteDifferences) {
  const std::string end = "layers { flatten {} } layers { dense { units: 3 } }";
  const std::string conv = "layers { conv2d { filters: 4 kernel_size: 3 } }";
  for (const std::string& layers : std::vector<std::string>{
           "layers { conv2d { filters: 4 kernel_size: [3, 2] padding: SAME } }",
           "layers { conv2d { filters: 2 kernel_size: 3 stride: 2 } }",
           "layers { conv2d { filters: 4 kernel_size: 1 groups: 2 } }",
           "layers { conv2d { filters: 6 kernel_size: 2 stride: [3, 1] "
           "groups: 2 use_bias: false padding: SAME } }",
           // Depthwise, between other layers.
           conv +
               "layers { conv2d { filters: 4 kernel_size: 3 groups: 4 "
               "padding: SAME } }" +
               conv,
           conv + "layers { conv2d { filters: 8 kernel_size: 2 stride: 2 "
                  "groups: 4 padding: SAME } }",
           conv + conv,
           conv + "layers { max_pool2d { size: 2 stride: 1 } }",
           conv + "layers { max_pool2d { size: 3 stride: 2 padding: SAME } }",
           conv + "layers { average_pool2d { size: 2 padding: SAME } }",
           conv + "layers { global_average_pool2d {} }",
           "layers { layer_norm {} }",
           conv + "layers { layer_norm {} }" + conv,
           // Before and after trained layers.
           "layers { max_pool2d { size: 2 } }" + conv +
               "layers { layer_norm { epsilon: 0.1 } }",
       }) {
    ExpectGradientsAgree(layers + end, {6, 7, 2});
  }
  ExpectGradientsAgree(conv + end, {5, 4});
  ExpectGradientsAgree(
      "layers { dense { units: 4 } } layers { layer_norm {} }"
      "layers { dense { units: 3 } }",
      {5});
}

TEST_F(ImagesTest, BatchNormAgreesWithFiniteDifferences) {
  const std::string end = "layers { flatten {} } layers { dense { units: 3 } }";
  const std::string conv =
      "layers { conv2d { filters: 4 kernel_size: 3 use_bias: false } }";
  ExpectGradientsAgree(conv + "layers { batch_norm {} } layers { tanh {} }" +
                           conv + "layers { batch_norm { epsilon: 0.1 } }" +
                           end,
                       {6, 7, 2});
  ExpectGradientsAgree("layers { batch_norm {} }" + end, {3, 4});
  ExpectGradientsAgree(
      "layers { residual { layers { batch_norm {} } "
      "layers { tanh {} } shortcut { batch_norm {} } } }" +
          end,
      {2, 2, 3});
}

// Two examples, (1, 10) and (3, 30): means (2, 20), variances (1, 100). With
// epsilon 0.25 the normalised second values are 10 / sqrt(100.25).
TEST_F(ImagesTest, BatchNormByHand) {
  const auto model =
      Create("layers { batch_norm { momentum: 0.5 epsilon: 0.25 } }", {2},
             "mean_squared_error");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto variables = (*model)->Variables();
  ASSERT_EQ(variables.size(), 4u);
  EXPECT_EQ(variables[2].name(), "batch_norm/moving_mean");
  EXPECT_EQ(variables[3].name(), "batch_norm/moving_variance");
  EXPECT_TRUE(variables[2].initializer().has_zeros());
  EXPECT_EQ(variables[3].initializer().constant().value(), 1);
  for (int v = 0; v < 4; ++v) {
    EXPECT_EQ(variables[v].has_moving_average(), v >= 2);
    EXPECT_TRUE(variables[v].trainable());
  }
  EXPECT_EQ(variables[2].moving_average().momentum(), 0.5f);

  const std::vector<float> inputs = {1, 10, 3, 30};
  const std::vector<int32_t> labels = {0, 0};
  const Tensors parameters = {{1, 1}, {0, 0}, {1, 2}, {3.75, 15.75}};
  const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                   parameters.end());
  std::vector<int> order;
  Tensors pushed(4);
  const auto trained = (*model)->ComputeGradients(
      spans, {inputs, labels}, [&](int v, absl::Span<const float> values) {
        order.push_back(v);
        pushed[v].assign(values.begin(), values.end());
      });
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_THAT(order, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(pushed[2], ElementsAre(2, 20));
  EXPECT_THAT(pushed[3], ElementsAre(1, 100));
  // y = (-a, -b), (a, b), with a = 1 / sqrt(1.25), b = 10 / sqrt(100.25), and
  // the target (1, 0).
  const double a = 1 / std::sqrt(1.25), b = 10 / std::sqrt(100.25);
  EXPECT_NEAR(trained->loss_sum,
              ((1 + a) * (1 + a) + (1 - a) * (1 - a) + 2 * b * b) / 2, 1e-5);
  // In evaluation ((x - 1) / 2, (x - 2) / 4): (0, 2) and (1, 7).
  const auto evaluated = (*model)->Evaluate(spans, {inputs, labels});
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_NEAR(evaluated->loss_sum, (1 + 4 + 0 + 49) / 2.0, 1e-5);
}

TEST_F(ImagesTest, ResidualsAgreeWithFiniteDifferences) {
  const std::string end = "layers { flatten {} } layers { dense { units: 3 } }";
  const std::string conv =
      "layers { conv2d { filters: 4 kernel_size: 3 padding: SAME } }";
  // The identity shortcut, with layers that overwrite their input (tanh) or
  // pass it on (flatten); as the first layer, after a trained layer, and within
  // another block.
  const std::string block =
      "layers { residual { " + conv + " layers { tanh {} } " + conv + " } }";
  ExpectGradientsAgree(block + end, {4, 3, 4});
  ExpectGradientsAgree(conv + block + "layers { tanh {} }" + block + end,
                       {4, 3, 2});
  ExpectGradientsAgree(
      "layers { dense { units: 4 } }"
      "layers { residual { layers { tanh {} } } }"
      "layers { residual { layers { flatten {} } } }"
      "layers { residual { layers { residual { layers { tanh "
      "{} } layers { dense { units: 4 } } } } } }"
      "layers { dense { units: 3 } }",
      {5});
  // A shortcut with layers that also overwrite their input.
  ExpectGradientsAgree(
      conv +
          "layers { residual { layers { conv2d { filters: 5 kernel_size: 3 "
          "stride: 2 padding: SAME } } layers { layer_norm {} }"
          "shortcut { conv2d { filters: 5 kernel_size: 1 stride: 2 } }"
          "shortcut { tanh {} } } }" +
          end,
      {5, 4, 2});
  // Variables in the shortcut alone.
  ExpectGradientsAgree(
      "layers { residual { layers { tanh {} } shortcut { "
      "conv2d { filters: 2 kernel_size: 1 } } } }" +
          end,
      {3, 3, 2});
  // Dropout in the body and in the shortcut, with separate masks.
  ExpectGradientsAgree(
      "layers { dense { units: 8 } } layers { residual {"
      "layers { dropout { rate: 0.5 } } shortcut { dropout { rate: 0.5 } } } }"
      "layers { dense { units: 3 } }",
      {5}, /*with_positions=*/true);
}

// Batch norms and blocks apply the relu after them, and batch norms a block's
// sum, with the same bits as when an identity layer separates them ("|").
TEST_F(ImagesTest, RelusAndSumsOfOtherLayersChangeNoBit) {
  const auto conv_of = [](const std::string& chain, int filters) {
    return chain + " { conv2d { filters: " + absl::StrCat(filters) +
           " kernel_size: 3 padding: SAME use_bias: false } }";
  };
  const std::string conv = conv_of("layers", 4);
  const std::string pixel =
      "layers { conv2d { filters: 4 kernel_size: 1 use_bias: false } }";
  const std::string relu = "| layers { relu {} }";
  const std::string norm = "layers { batch_norm {} }";
  for (const std::string& layers : std::vector<std::string>{
           conv + norm + relu + conv + norm + relu + relu,
           // After the identity; after a shortcut with a batch norm; within a
           // block.
           conv + "layers { residual { " + conv + norm + relu + conv + norm +
               "| } }" + relu + conv + norm + relu,
           conv + "layers { residual { " + norm + relu + conv + norm + "|" +
               conv_of("shortcut", 4) + "shortcut { batch_norm {} } } }" +
               relu + "layers { residual { " + norm + "| } }" + relu,
           conv + "layers { residual { " + conv + norm + relu + " } }" + relu,
           // Blocks whose body ends with another layer, or whose shortcut
           // overwrites its input.
           conv + "layers { residual { " + conv + " } }" + relu,
           conv + "layers { residual { " + norm + "| shortcut { tanh {} } } }" +
               relu,
           conv + "layers { residual { layers { tanh {} } " +
               conv_of("shortcut", 4) + "shortcut { batch_norm {} } } }" + relu,
           conv + "layers { residual { layers { residual { " + norm +
               "| } } } }" + relu,
           // Bodies that begin with a product, which adds to the shortcut's
           // gradient: with the identity, with a convolution, and without a
           // norm.
           conv + "layers { residual { | " + pixel + norm + relu + conv + norm +
               " } }" + relu + "layers { residual { | " + pixel + norm +
               conv_of("shortcut", 4) + "shortcut { batch_norm {} } } }" + relu,
           conv + "layers { residual { | " + pixel + " } }" + relu +
               "layers { residual { | " + pixel + "layers { tanh {} } } }",
       }) {
    SCOPED_TRACE(layers);
    const std::vector<float> inputs = RandomValues(3 * 4 * 3 * 2, 7);
    const std::vector<int32_t> labels = {1, 0, 2};
    const auto gradients_with = [&](const std::string& between) {
      const auto model =
          Create(absl::StrReplaceAll(layers, {{"|", between}}) +
                     "layers { flatten {} } layers { dense { units: 3 } }",
                 {4, 3, 2});
      EXPECT_TRUE(model.ok()) << model.status();
      Tensors parameters;
      for (const proto::Variable& variable : (*model)->Variables()) {
        parameters.push_back(RandomValues(*NumElements(variable.shape()),
                                          100 + parameters.size(), 0.5f));
      }
      const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                       parameters.end());
      Tensors gradients(parameters.size());
      // Twice: nothing of the first batch is left for the second.
      for (int round = 0; round < 2; ++round) {
        const auto result = (*model)->ComputeGradients(
            spans, {inputs, labels},
            [&](int v, absl::Span<const float> values) {
              gradients[v].assign(values.begin(), values.end());
            });
        EXPECT_TRUE(result.ok()) << result.status();
        gradients.push_back({static_cast<float>(result->loss_sum)});
      }
      return gradients;
    };
    EXPECT_EQ(gradients_with(""),
              gradients_with("layers { dropout { rate: 0 } }"));
  }
}

// The mask of a dropout layer in a block differs from that of the other dropout
// layer in the block, and from those of layers at the same places outside the
// block.
TEST_F(ImagesTest, DropoutInABlockHasMasksOfItsOwn) {
  // dW of a unit at 0 is -2 y, as in InTraining of sequential_test.cc.
  const auto masks = [&](const std::string& layers) {
    const auto model =
        Create(layers + "layers { dense { units: 1 use_bias: false } }", {64},
               "mean_squared_error");
    EXPECT_TRUE(model.ok()) << model.status();
    const std::vector<float> ones(64, 1), zeros(64);
    const std::vector<int64_t> position = {3};
    std::vector<float> y;
    EXPECT_TRUE((*model)
                    ->ComputeGradients({zeros}, {ones, {1}, position},
                                       [&](int, absl::Span<const float> g) {
                                         for (float v : g) y.push_back(v / -2);
                                       })
                    .ok());
    return y;
  };
  const std::string dropout = "dropout { rate: 0.5 }";
  const auto alone = masks("layers { " + dropout + " }");
  const auto block = masks("layers { residual { layers { " + dropout +
                           " } shortcut { " + dropout + " } } }");
  // The sums of two masks of 0 and 2.
  EXPECT_THAT(block, testing::Contains(2));
  // The body's mask, with x added by the identity.
  auto body = masks("layers { residual { layers { " + dropout + " } } }");
  for (float& value : body) value -= 1;
  EXPECT_NE(body, alone);
}

TEST_F(ImagesTest, ErrorsAtCreationNameTheLayer) {
  EXPECT_THAT(
      CreateError("layers { name: 'c' conv2d { filters: 2 kernel_size: 3 } }",
                  {784}),
      HasSubstr("layer \"c\": a conv2d layer takes images, "
                "[height,width,channels] or [height,width], but its input has "
                "the shape [784]"));
  EXPECT_THAT(CreateError("layers { max_pool2d { size: 2 } }", {1, 2, 3, 4}),
              HasSubstr("layer \"max_pool2d\": a max_pool2d layer takes "
                        "images"));
  EXPECT_THAT(CreateError("layers { global_average_pool2d {} }", {4}),
              HasSubstr("a global_average_pool2d layer takes images"));
  EXPECT_THAT(
      CreateError("layers { conv2d { filters: 2 kernel_size: [3, 6] } }",
                  {5, 5}),
      HasSubstr("layer \"conv2d\": a window of 3x6 is larger than its input, "
                "5x5 places; make it smaller, or set padding: SAME"));
  EXPECT_THAT(CreateError("layers { average_pool2d { size: 6 } }", {5, 5}),
              HasSubstr("layer \"average_pool2d\": a window of 6x6"));
  EXPECT_THAT(
      CreateError("layers { conv2d { filters: 4 kernel_size: 1 groups: 2 } }",
                  {5, 5, 3}),
      HasSubstr("layer \"conv2d\": groups is 2, but must divide the channels "
                "of its input, 3, and its filters, 4"));
  EXPECT_THAT(
      CreateError("layers { conv2d { filters: 3 kernel_size: 1 groups: 2 } }",
                  {5, 5, 4}),
      HasSubstr("of its input, 4, and its filters, 3"));
  EXPECT_THAT(
      CreateError("layers { conv2d { filters: 2 kernel_size: 1 groups: 0 } }",
                  {5, 5}),
      HasSubstr("groups is 0"));
  EXPECT_THAT(CreateError("layers { conv2d { kernel_size: 1 } }", {5, 5}),
              HasSubstr("layer \"conv2d\": filters is 0"));
  EXPECT_THAT(CreateError("layers { conv2d { filters: 1 } }", {5, 5}),
              HasSubstr("layer \"conv2d\": has no kernel_size"));
  EXPECT_THAT(
      CreateError("layers { conv2d { filters: 1 kernel_size: [1, 2, 3] } }",
                  {5, 5}),
      HasSubstr("kernel_size is 3 numbers, but must be one number or two"));
  EXPECT_THAT(
      CreateError("layers { max_pool2d { size: 1 stride: [1, 0] } }", {5, 5}),
      HasSubstr("stride is 0, but must be at least 1"));
  EXPECT_THAT(
      CreateError("layers { conv2d { filters: 1000000 kernel_size: 1 } }",
                  {100, 100}),
      HasSubstr("its output or a filter would have more than 2147483647"));
  EXPECT_THAT(CreateError("layers { conv2d { filters: 1 padding: SAME "
                          "kernel_size: 4294967295 } }",
                          {100, 100}),
              HasSubstr("its output or a filter would have more than"));
  EXPECT_THAT(CreateError("layers { layer_norm {} }", {5, 5}),
              HasSubstr("layer \"layer_norm\": a layer_norm layer normalises "
                        "over the channels, but its input has only one"));
  EXPECT_THAT(CreateError("layers { layer_norm { epsilon: 0 } }", {5}),
              HasSubstr("layer \"layer_norm\": epsilon is 0"));
  EXPECT_THAT(CreateError("layers { layer_norm { epsilon: nan } }", {5}),
              HasSubstr("epsilon is nan"));
  EXPECT_THAT(CreateError("layers { batch_norm {} }", {1, 2, 3, 4}),
              HasSubstr("layer \"batch_norm\": a batch_norm layer, unless it "
                        "takes vectors, takes images"));
  EXPECT_THAT(CreateError("layers { batch_norm { epsilon: 2 } }", {5}),
              HasSubstr("layer \"batch_norm\": epsilon is 2"));
  EXPECT_THAT(CreateError("layers { batch_norm { momentum: 1 } }", {5}),
              HasSubstr("momentum is 1, but must be at least 0 and below 1"));
  EXPECT_THAT(
      CreateError("layers { residual { layers { dense { units: 4 } } } }", {5}),
      HasSubstr(
          "layer \"residual\": its layers make the shape [4] from [5], its "
          "shortcut [5]; they must be the same"));
  EXPECT_THAT(CreateError("layers { residual { layers { dense {} } } }", {5}),
              HasSubstr("layer \"residual/dense\": units is 0"));
  EXPECT_THAT(
      CreateError("layers { residual { layers { relu {} } "
                  "shortcut { name: 'x' relu {} } shortcut { name: 'x' tanh "
                  "{} } } }",
                  {5}),
      HasSubstr("layers 0 and 1 (counted from 0) are both named "
                "\"residual/shortcut/x\""));
  EXPECT_THAT(
      CreateError("layers { name: 'a/b' dense { units: 5 } }"
                  "layers { name: 'a' residual { layers { name: 'b' dense { "
                  "units: 5 } } } }",
                  {5}),
      HasSubstr("two variables of the model are named \"a/b/kernel\""));
}

}  // namespace
}  // namespace holdfast
