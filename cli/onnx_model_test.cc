// SPDX-License-Identifier: Apache-2.0
#include "cli/onnx_model.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/job/job_file.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A declaration of these layers and variables, with the values 0, 1, 2, ...
proto::Declaration Declare(
    const std::string& model, const std::vector<int64_t>& example_shape,
    const std::map<std::string, std::vector<int64_t>>& variables) {
  proto::Job job;
  job.set_name("a-job");
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      model, job.mutable_model()));
  proto::Declaration declaration;
  declaration.mutable_job()->set_job_file(SharedJob(job));
  declaration.mutable_job()->mutable_example_shape()->Add(example_shape.begin(),
                                                          example_shape.end());
  for (const auto& [name, shape] : variables) {
    proto::Variable* const variable = declaration.add_variables();
    variable->set_name(name);
    for (const int64_t dimension : shape) variable->add_shape(dimension);
  }
  return declaration;
}

absl::StatusOr<std::vector<float>> ReadCounts(const proto::Variable& variable) {
  int64_t size = 1;
  for (const int64_t dimension : variable.shape()) size *= dimension;
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) values[i] = static_cast<float>(i);
  return values;
}

absl::StatusOr<onnx::ModelProto> Make(const proto::Declaration& declaration,
                                      bool int8 = false) {
  return MakeOnnxModel(declaration, ReadCounts, {.int8 = int8});
}

// The operators of the model, in order.
std::vector<std::string> Operators(const onnx::ModelProto& model) {
  std::vector<std::string> operators;
  for (const onnx::NodeProto& node : model.graph().node()) {
    operators.push_back(node.op_type());
  }
  return operators;
}

template <typename T>
std::vector<T> Constant(const onnx::ModelProto& model,
                        const std::string& name) {
  for (const onnx::TensorProto& tensor : model.graph().initializer()) {
    if (tensor.name() != name) continue;
    std::vector<T> values(tensor.raw_data().size() / sizeof(T));
    std::memcpy(values.data(), tensor.raw_data().data(),
                tensor.raw_data().size());
    return values;
  }
  ADD_FAILURE() << "there is no constant " << name;
  return {};
}

constexpr char kDense[] = R"pb(
  sequential {
    layers { flatten {} }
    layers { dropout { rate: 0.5 } }
    layers {
      name: "outputs"
      dense { units: 2 }
    }
    loss { softmax_cross_entropy {} }
  }
)pb";

TEST(OnnxModelTest, DenseLayers) {
  const auto model = Make(Declare(
      kDense, {1, 3}, {{"outputs/kernel", {3, 2}}, {"outputs/bias", {2}}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Operators(*model),
              ElementsAre("Flatten", "MatMul", "Add", "Identity", "Softmax",
                          "Identity"));
  EXPECT_THAT(Constant<float>(*model, "outputs/kernel"),
              ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Constant<float>(*model, "outputs/bias"), ElementsAre(0, 1));
  ASSERT_EQ(model->graph().input_size(), 1);
  EXPECT_EQ(model->graph().input(0).name(), "input");
  const auto& shape = model->graph().input(0).type().tensor_type().shape();
  ASSERT_EQ(shape.dim_size(), 3);
  EXPECT_EQ(shape.dim(0).dim_param(), "n");
  EXPECT_EQ(shape.dim(2).dim_value(), 3);
  ASSERT_EQ(model->graph().output_size(), 2);
  EXPECT_EQ(model->graph().output(0).name(), "outputs");
  EXPECT_EQ(model->graph().output(1).name(), "probabilities");
  // The layer has the name of an output, so its tensor has another one.
  EXPECT_EQ(model->graph().node(2).output(0), "outputs_2");
  EXPECT_EQ(model->graph().node(3).input(0), "outputs_2");
  EXPECT_EQ(model->graph().node(3).output(0), "outputs");
}

// Values are 0 to 5 over [3, 2]; the largest of the channels are 4 and 5.
TEST(OnnxModelTest, EightBitIntegers) {
  const auto model =
      Make(Declare(kDense, {1, 3},
                   {{"outputs/kernel", {3, 2}}, {"outputs/bias", {2}}}),
           /*int8=*/true);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Constant<int8_t>(*model, "outputs/kernel/int8"),
              ElementsAre(0, 25, 64, 76, 127, 127));
  EXPECT_THAT(Constant<float>(*model, "outputs/kernel/scales"),
              ElementsAre(4.0f / 127, 5.0f / 127));
  EXPECT_THAT(Operators(*model), testing::Contains("DequantizeLinear"));
}

// [height 1, width 2, channels 2, filters 3]: value 6 x + 3 c + f is at
// [f, c, 0, x] of ONNX's kernel.
TEST(OnnxModelTest, KernelsOfConvolutionsAreTransposed) {
  const auto model = Make(Declare(
      R"pb(sequential {
             layers {
               conv2d { filters: 3 kernel_size: 1 kernel_size: 2 padding: SAME }
             }
             layers { global_average_pool2d {} }
             loss { mean_squared_error {} }
           })pb",
      {4, 4, 2}, {{"conv2d/kernel", {1, 2, 2, 3}}, {"conv2d/bias", {3}}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Constant<float>(*model, "conv2d/kernel"),
              ElementsAre(0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11));
  EXPECT_THAT(Operators(*model), ElementsAre("Transpose", "Conv", "Transpose",
                                             "ReduceMean", "Identity"));
  EXPECT_EQ(model->graph().output_size(), 1);
}

// scale, offset, mean, variance of channel 1 are all 1: factor 1 / sqrt(1 + e),
// term 1 - factor.
TEST(OnnxModelTest, BatchNormIsAFactorAndATerm) {
  const auto model = Make(Declare(
      R"pb(sequential {
             layers { batch_norm { epsilon: 0.5 } }
             layers { dense { units: 1 use_bias: false } }
             loss { sigmoid_cross_entropy {} }
           })pb",
      {2},
      {{"batch_norm/scale", {2}},
       {"batch_norm/offset", {2}},
       {"batch_norm/moving_mean", {2}},
       {"batch_norm/moving_variance", {2}},
       {"dense/kernel", {2, 1}}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Constant<float>(*model, "batch_norm/factor"),
              ElementsAre(0, testing::FloatEq(0.81649658f)));
  EXPECT_THAT(Constant<float>(*model, "batch_norm/term"),
              ElementsAre(0, testing::FloatEq(0.18350342f)));
  EXPECT_THAT(Operators(*model), ElementsAre("Mul", "Add", "MatMul", "Identity",
                                             "Sigmoid", "Identity"));
}

// The channel dimension is added once, before the residual layer.
TEST(OnnxModelTest, ResidualLayersAddUp) {
  const auto model = Make(Declare(
      R"pb(sequential {
             layers { reshape { shape: [ 2, 2 ] } }
             layers { residual { layers { relu {} } } }
             layers { flatten {} }
             layers { dense { units: 1 use_bias: false } }
             loss { mean_squared_error {} }
           })pb",
      {4}, {{"dense/kernel", {4, 1}}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Operators(*model),
              ElementsAre("Reshape", "Unsqueeze", "Relu", "Add", "Flatten",
                          "MatMul", "Identity"));
  EXPECT_THAT(Constant<int64_t>(*model, "reshape/shape"),
              ElementsAre(-1, 2, 2));
  const onnx::NodeProto& sum = model->graph().node(3);
  EXPECT_EQ(sum.input(0), "residual/relu");
  EXPECT_EQ(sum.input(1), model->graph().node(1).output(0));
}

TEST(OnnxModelTest, ReshapesEachExample) {
  const auto model = Make(Declare(
      R"pb(sequential {
             layers { reshape { shape: 2 shape: 3 } }
             layers { flatten {} }
             layers { dense { units: 1 use_bias: false } }
             loss { huber {} }
           })pb",
      {6}, {{"dense/kernel", {6, 1}}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Operators(*model),
              ElementsAre("Reshape", "Flatten", "MatMul", "Identity"));
  EXPECT_THAT(Constant<int64_t>(*model, "reshape/shape"),
              ElementsAre(-1, 2, 3));
}

TEST(OnnxModelTest, WhatCannotBeExported) {
  EXPECT_TRUE(absl::IsNotFound(Make({}).status()));
  const absl::Status registered =
      Make(Declare("registered { name: \"mine\" }", {2}, {})).status();
  EXPECT_TRUE(absl::IsUnimplemented(registered)) << registered;
  EXPECT_THAT(registered.message(), HasSubstr("\"mine\""));
  const absl::Status clicks =
      Make(Declare("logistic_regression {}", {2}, {})).status();
  EXPECT_TRUE(absl::IsUnimplemented(clicks)) << clicks;
  EXPECT_THAT(clicks.message(), HasSubstr("has embedding tables"));
  const absl::Status incomplete =
      Make(Declare(kDense, {1, 3}, {{"outputs/kernel", {3, 2}}})).status();
  EXPECT_THAT(incomplete.message(), HasSubstr("\"outputs/bias\""));
  // Refused before any variable is read.
  const absl::Status large =
      Make(Declare(kDense, {1, 3}, {{"outputs/kernel", {1 << 20, 1 << 10}}}))
          .status();
  EXPECT_THAT(large.message(), HasSubstr("2 GiB"));
}

}  // namespace
}  // namespace holdfast
