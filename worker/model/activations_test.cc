// SPDX-License-Identifier: Apache-2.0

// Which of a model's values are rounded with DeviceOptions::activations.

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/shape.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/halves.h"
#include "worker/backend/testing/test_values.h"
#include "worker/model/sequential.h"

namespace holdfast {
namespace {

using Tensors = std::vector<std::vector<float>>;

constexpr int64_t kExamples = 3;

class ActivationsTest : public ::testing::Test {
 protected:
  // A model in bfloat16 of `layers`, with a dense layer and a loss after them.
  // Sets `parameters_`.
  std::unique_ptr<NetworkModel> Make(const std::string& layers,
                                     const std::vector<int64_t>& shape,
                                     bool activations) {
    backend_ = *CpuBackend::Create(
        {.precision = Precision::kBfloat16, .activations = activations});
    proto::Sequential config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat(layers,
                     "layers { flatten {} } layers { dense { units: 3 "
                     "} } loss { softmax_cross_entropy {} }"),
        &config));
    auto model = CreateSequential(config, {shape}, /*seed=*/7, backend_.get());
    EXPECT_TRUE(model.ok()) << model.status();
    parameters_.clear();
    for (const proto::Variable& variable : (*model)->Variables()) {
      parameters_.push_back(RandomValues(*NumElements(variable.shape()),
                                         100 + parameters_.size(), 0.5f));
      if (!absl::StrContains(variable.name(), "variance")) continue;
      for (float& value : parameters_.back()) value = std::abs(value) + 0.1f;
    }
    inputs_ = RandomValues(kExamples * *NumElements(shape), 7);
    return *std::move(model);
  }

  std::vector<absl::Span<const float>> Spans() const {
    return {parameters_.begin(), parameters_.end()};
  }

  // The gradients of such a model's variables.
  Tensors Gradients(const std::string& layers,
                    const std::vector<int64_t>& shape, bool activations) {
    const auto model = Make(layers, shape, activations);
    Tensors gradients(parameters_.size());
    const auto result = model->ComputeGradients(
        Spans(), {inputs_, labels_},
        [&](int v, absl::Span<const float> values) {
          gradients[v].assign(values.begin(), values.end());
        });
    EXPECT_TRUE(result.ok()) << result.status();
    return gradients;
  }

  // The loss of such a model, outside training.
  double Loss(const std::string& layers, const std::vector<int64_t>& shape,
              bool activations) {
    const auto model = Make(layers, shape, activations);
    const auto result = model->Evaluate(Spans(), {inputs_, labels_});
    EXPECT_TRUE(result.ok()) << result.status();
    return result->loss_sum;
  }

  // Computes the same for the model of RoundsBetweenProductsAndBatchNorms with
  // the backend's operations, without the dense layer's and without the moving
  // averages.
  Tensors Expected(bool activations);

  const std::vector<int32_t> labels_ = {1, 0, 2};
  std::unique_ptr<CpuBackend> backend_;
  Tensors parameters_;
  std::vector<float> inputs_;
};

Tensors ActivationsTest::Expected(bool activations) {
  Tensors memory(32);
  size_t used = 0;
  const auto take = [&](int64_t rows, int64_t cols) -> Matrix {
    memory[used].resize(rows * cols);
    return {memory[used++].data(), rows, cols};
  };
  const auto parameter = [&](int v, int64_t rows, int64_t cols) {
    return ConstMatrix{parameters_[v].data(), rows, cols};
  };
  const auto round = [&](Matrix made) {
    for (int64_t i = 0; i < made.size() && activations; ++i) {
      made.data[i] = halves::RoundToBfloat16(made.data[i]);
    }
  };
  Convolution first, second;
  first.window = {5, 4, 2, 3, 3, 1, 1, 0, 0, 3, 2};
  first.filters = 4;
  second.window = {3, 2, 4, 2, 2, 1, 1, 0, 0, 2, 1};
  second.filters = 5;
  const ConstMatrix x = {inputs_.data(), kExamples, 40};
  const ConstMatrix kernel1 = parameter(0, 18, 4);
  const ConstMatrix kernel2 = parameter(5, 16, 5);
  const auto images = [](Matrix rows) -> Matrix {
    return {rows.data, kExamples, rows.size() / kExamples};
  };
  const auto rows = [](Matrix images, int64_t channels) -> Matrix {
    return {images.data, images.size() / channels, channels};
  };
  // Returns y and the norm that made it.
  const auto normalize = [&](int v, Matrix x, bool relu) {
    const Matrix mean = take(1, x.cols), variance = take(1, x.cols);
    backend_->ColumnMoments(x, mean, variance);
    const ColumnNorm norm = {mean, variance, 1e-3f, parameter(v, 1, x.cols),
                             parameter(v + 1, 1, x.cols)};
    const Matrix y = take(x.rows, x.cols);
    backend_->NormalizeColumns(x, norm, {}, relu, y);
    return std::make_pair(y, norm);
  };
  const Matrix y1 = take(kExamples, 24);
  EXPECT_TRUE(backend_->Convolve(first, x, kernel1, y1).ok());
  round(y1);
  const auto [n1, norm1] = normalize(1, rows(y1, 4), true);
  const Matrix y2 = take(kExamples, 10);
  EXPECT_TRUE(backend_->Convolve(second, images(n1), kernel2, y2).ok());
  round(y2);
  const auto [n2, norm2] = normalize(6, rows(y2, 5), false);
  const Matrix z = take(kExamples, 3);
  backend_->MatMul(Form::kPlain, images(n2), Form::kPlain, parameter(10, 10, 3),
                   z);
  backend_->AddBias(parameter(11, 1, 3), z);
  Matrix dz = take(kExamples, 3);
  EXPECT_TRUE(backend_->SoftmaxCrossEntropy(z, {labels_}, &dz).ok());
  const Matrix dn2 = take(kExamples, 10);
  backend_->MatMul(Form::kPlain, dz, Form::kTransposed, parameter(10, 10, 3),
                   dn2);
  const Matrix dscale2 = take(1, 5), doffset2 = take(1, 5);
  const Matrix dy2 = take(kExamples, 10);
  backend_->NormalizeColumnsGradient(rows(y2, 5), norm2, false, rows(dn2, 5),
                                     dscale2, doffset2, rows(dy2, 5));
  const Matrix dkernel2 = take(16, 5);
  EXPECT_TRUE(
      backend_->ConvolveKernelGradient(second, images(n1), dy2, dkernel2).ok());
  const Matrix dn1 = take(kExamples, 24);
  EXPECT_TRUE(backend_->ConvolveInputGradient(second, kernel2, dy2, dn1).ok());
  round(dn1);
  const Matrix dscale1 = take(1, 4), doffset1 = take(1, 4);
  const Matrix dy1 = take(kExamples, 24);
  backend_->NormalizeColumnsGradient(rows(y1, 4), norm1, true, rows(dn1, 4),
                                     dscale1, doffset1, rows(dy1, 4));
  const Matrix dkernel1 = take(18, 4);
  EXPECT_TRUE(backend_->ConvolveKernelGradient(first, x, dy1, dkernel1).ok());
  Tensors gradients;
  for (const Matrix& made :
       {dkernel1, dscale1, doffset1, dkernel2, dscale2, doffset2}) {
    gradients.emplace_back(made.data, made.data + made.size());
  }
  return gradients;
}

// The values between a product without bias and a batch norm are rounded: here
// y1 and y2 of the convolutions and dn1, the gradient that the second
// convolution gives to the first batch norm. Nothing else is.
TEST_F(ActivationsTest, RoundsBetweenProductsAndBatchNorms) {
  const std::string layers =
      "layers { conv2d { filters: 4 kernel_size: 3 use_bias: false } }"
      "layers { batch_norm {} } layers { relu {} }"
      "layers { conv2d { filters: 5 kernel_size: 2 use_bias: false } }"
      "layers { batch_norm {} }";
  // The variables: kernel; scale, offset and two moving averages; kernel; four
  // again; kernel and bias.
  const auto trained = [](const Tensors& all) {
    EXPECT_EQ(all.size(), 12);
    return Tensors{all[0], all[1], all[2], all[5], all[6], all[7]};
  };
  const Tensors without = trained(Gradients(layers, {5, 4, 2}, false));
  EXPECT_EQ(without, Expected(false));
  const Tensors found = trained(Gradients(layers, {5, 4, 2}, true));
  EXPECT_EQ(found, Expected(true));
  // Roundings, by 2^-9 each, change all of these, but not by much.
  for (size_t i = 0; i < found.size(); ++i) {
    double square = 0, difference = 0;
    for (size_t k = 0; k < found[i].size(); ++k) {
      square += found[i][k] * found[i][k];
      difference += std::pow(found[i][k] - without[i][k], 2);
    }
    EXPECT_GT(difference, 0) << i;
    EXPECT_LT(difference, 0.05 * 0.05 * square) << i;
  }
}

// What residual blocks read is rounded, too: here the output of the first norm,
// which is the addend of the first block, the output of this block, and the
// addend of the second, but not the output of the second block.
TEST_F(ActivationsTest, RoundsBetweenBlocks) {
  const std::string layers =
      "layers { conv2d { filters: 4 kernel_size: 1 } }"
      "layers { batch_norm {} } layers { relu {} }"
      "layers { residual {"
      "layers { conv2d { filters: 4 kernel_size: 1 use_bias: false } }"
      "layers { batch_norm {} } } } layers { relu {} }"
      "layers { residual {"
      "layers { conv2d { filters: 5 kernel_size: 1 use_bias: false } }"
      "layers { batch_norm {} }"
      "shortcut { conv2d { filters: 5 kernel_size: 1 use_bias: false } } } }"
      "layers { relu {} }";
  for (const bool activations : {false, true}) {
    const double found = Loss(layers, {3, 2, 2}, activations);
    // As products of pixels.
    constexpr int64_t kPixels = 6 * kExamples;
    Tensors memory(16);
    size_t used = 0;
    const auto take = [&](int64_t rows, int64_t cols) -> Matrix {
      memory[used].resize(rows * cols);
      return {memory[used++].data(), rows, cols};
    };
    const auto parameter = [&](int v, int64_t rows, int64_t cols) {
      return ConstMatrix{parameters_[v].data(), rows, cols};
    };
    const auto rounded = [&](Matrix made) {
      for (int64_t i = 0; i < made.size() && activations; ++i) {
        made.data[i] = halves::RoundToBfloat16(made.data[i]);
      }
      return made;
    };
    const auto product = [&](ConstMatrix x, int v, int64_t filters) {
      const Matrix y = take(kPixels, filters);
      backend_->MatMul(Form::kPlain, x, Form::kPlain,
                       parameter(v, x.cols, filters), y);
      return y;
    };
    const auto normalize = [&](ConstMatrix x, int v, ConstMatrix addend) {
      const auto row = [&](int i) { return parameter(v + i, 1, x.cols); };
      const Matrix y = take(kPixels, x.cols);
      backend_->NormalizeColumns(x, {row(2), row(3), 1e-3f, row(0), row(1)},
                                 addend, true, y);
      return y;
    };
    const Matrix y0 = product({inputs_.data(), kPixels, 2}, 0, 4);
    backend_->AddBias(parameter(1, 1, 4), y0);
    const Matrix first = rounded(normalize(y0, 2, {}));
    const Matrix second =
        rounded(normalize(rounded(product(first, 6, 4)), 7, first));
    const Matrix addend = rounded(product(second, 16, 5));
    const Matrix last = normalize(rounded(product(second, 11, 5)), 12, addend);
    const Matrix z = take(kExamples, 3);
    backend_->MatMul(Form::kPlain, {last.data, kExamples, 30}, Form::kPlain,
                     parameter(17, 30, 3), z);
    backend_->AddBias(parameter(18, 1, 3), z);
    const auto expected = backend_->SoftmaxCrossEntropy(z, {labels_}, nullptr);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(found, expected->loss);
  }
  EXPECT_NE(Loss(layers, {3, 2, 2}, true), Loss(layers, {3, 2, 2}, false));
}

// Everywhere else nothing is rounded.
TEST_F(ActivationsTest, RoundsNothingThatOthersReadOrAddTo) {
  for (const char* layers : {
           // A bias; another layer in between.
           "layers { conv2d { filters: 4 kernel_size: 3 } }"
           "layers { batch_norm {} }",
           "layers { conv2d { filters: 4 kernel_size: 1 use_bias: false } }"
           "layers { tanh {} } layers { batch_norm {} }",
           // Blocks: the body begins with a product, whose dx is added to that
           // of the shortcut, and the body and the shortcut end with one.
           "layers { batch_norm {} } layers { residual {"
           "layers { conv2d { filters: 2 kernel_size: 1 use_bias: false } } } }"
           "layers { batch_norm {} }",
           "layers { batch_norm {} } layers { residual {"
           "layers { conv2d { filters: 2 kernel_size: 1 use_bias: false } }"
           "shortcut { conv2d { filters: 2 kernel_size: 1 use_bias: false } } "
           "} } layers { batch_norm {} }",
       }) {
    SCOPED_TRACE(layers);
    EXPECT_EQ(Gradients(layers, {4, 3, 2}, true),
              Gradients(layers, {4, 3, 2}, false));
  }
}

}  // namespace
}  // namespace holdfast
