// SPDX-License-Identifier: Apache-2.0

// Every operation of the backend, forward and backward, on the device
// (MakeDeviceUnderTest) and the CPU, over a grid of shapes: odd, without rows,
// large, and at unaligned addresses.
//
// Tolerances are those of parity.h and
//
//   kTf32      sums of products whose factors have 10 bits.
//
// Products whose factors are rounded to 16 bits are compared with the CPU's
// products of equally rounded factors: kSum.
//
// Without a device, no case runs: the test reports that and is skipped.

#include "tests/gpu/parity.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/tensor/norm.h"
#include "tests/gpu/case_count.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/images.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/registry.h"
#include "worker/model/replicated.h"

namespace holdfast {
namespace {

constexpr double kTf32 = 2e-3;

class ParityTest : public DeviceComparison {
 protected:
  using Loss = std::function<absl::StatusOr<LossSums>(Backend*, ConstMatrix,
                                                      const Targets&, Matrix*)>;

  // Compares the loss of `z` on the device with the loss on the CPU.
  void CompareLoss(const std::string& name, const Values& z,
                   const Targets& targets, const Loss& loss) {
    std::vector<LossSums> told;
    const auto run = [&](Backend* backend, Matrix z,
                         Matrix* dz) -> absl::Status {
      const auto sums = loss(backend, z, targets, dz);
      if (!sums.ok()) return sums.status();
      told.push_back(*sums);
      return absl::OkStatus();
    };
    Compare(name, {z, Values::Unset(z.rows, z.cols)}, kRounding,
            [&](Backend* backend, const Matrices& x) {
              absl::Status status = run(backend, x[0], nullptr);
              Matrix dz = x[1];
              status.Update(run(backend, x[0], &dz));
              // The gradient overwrites the outputs.
              Matrix in_place = x[0];
              status.Update(run(backend, x[0], &in_place));
              return status;
            });
    for (const LossSums& sums : told) {
      SCOPED_TRACE(name);
      const LossSums& expected = told.front();
      EXPECT_NEAR(sums.loss, expected.loss, 1e-6 * std::abs(expected.loss));
      EXPECT_EQ(sums.correct, expected.correct);
      ASSERT_EQ(sums.absolute_error.has_value(),
                expected.absolute_error.has_value());
      EXPECT_NEAR(sums.absolute_error.value_or(0),
                  expected.absolute_error.value_or(0),
                  1e-9 * expected.absolute_error.value_or(0));
      EXPECT_EQ(sums.squared_error.has_value(),
                expected.squared_error.has_value());
      EXPECT_NEAR(sums.squared_error.value_or(0),
                  expected.squared_error.value_or(0),
                  1e-9 * expected.squared_error.value_or(0));
    }
  }

  // Steps of a loss curve.
  const size_t steps_ = DeviceIsSlow() ? 5 : 100;

  // The mean losses of the first steps of gradient descent, with a replica of
  // the model on each of `backends`.
  std::vector<double> Losses(const proto::Model& config,
                             const std::vector<int64_t>& shape,
                             const std::vector<Backend*>& backends) {
    constexpr int64_t kExamples = 32;
    constexpr int kClasses = 10;
    std::vector<double> losses;
    const auto model = CreateReplicatedModel(config, {shape, kClasses}, 1,
                                             backends, ModelRegistry());
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return losses;
    std::vector<std::vector<float>> parameters;
    for (const proto::Variable& variable : (*model)->Variables()) {
      int64_t size = 1;
      for (const int64_t dimension : variable.shape()) size *= dimension;
      parameters.push_back(RandomValues(size, 100 + parameters.size()));
      for (float& value : parameters.back()) value *= 0.3f;
    }
    int64_t example_size = 1;
    for (const int64_t dimension : shape) example_size *= dimension;
    const std::vector<float> inputs = RandomValues(kExamples * example_size, 1);
    std::vector<int32_t> labels(kExamples);
    std::vector<int64_t> positions(kExamples);
    for (int64_t i = 0; i < kExamples; ++i) {
      labels[i] = i * 7 % kClasses;
      positions[i] = i;
    }
    for (size_t step = 0; step < steps_; ++step) {
      std::vector<std::vector<float>> gradients(parameters.size());
      const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                       parameters.end());
      const auto result = (*model)->ComputeGradients(
          spans, {inputs, labels, positions},
          [&](int variable, absl::Span<const float> gradient) {
            gradients[variable].assign(gradient.begin(), gradient.end());
          });
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return losses;
      losses.push_back(result->loss_sum / kExamples);
      for (size_t v = 0; v < parameters.size(); ++v) {
        for (size_t i = 0; i < gradients[v].size(); ++i) {
          parameters[v][i] -= 0.1f * gradients[v][i];
        }
      }
    }
    return losses;
  }

  // Compares products of all shapes.
  void CompareProducts();
  void CompareConvolutions(const std::vector<Images>& all, double tolerance);
};

struct Shape {
  int64_t rows, cols;
};

std::string Name(const char* what, Shape shape) {
  return absl::StrCat(what, " of ", shape.rows, " x ", shape.cols);
}

// One value; odd; without rows; a row, a column; more rows or columns than one
// block takes; large. All remainders of the number of values modulo 4 occur.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes = {{1, 1},   {3, 5},    {0, 7},    {1, 1000},
                               {777, 1}, {33, 257}, {203, 33}, {6, 7}};
  if (!DeviceIsSlow()) {
    shapes.push_back({2051, 33});
    shapes.push_back({1024, 1030});
  }
  return shapes;
}

// Also shapes with a multiple of 4 columns: few, some, and many.
std::vector<Shape> ShapesWithFours() {
  std::vector<Shape> shapes = Shapes();
  shapes.insert(shapes.end(), {{700, 4}, {131, 64}, {70, 516}, {5, 1028}});
  if (!DeviceIsSlow() && !DeviceHasTheCpusBits()) {
    shapes.push_back({20003, 64});
  }
  return shapes;
}

void ParityTest::CompareProducts() {
  has_products_ = true;
  struct Product {
    int64_t m, n, k;
  };
  const Product products[] = {{1, 1, 1},    {3, 5, 7},      {0, 4, 3},
                              {4, 3, 0},    {1, 1000, 33},  {65, 1, 129},
                              {64, 64, 64}, {127, 65, 255}, {512, 768, 1024}};
  for (const auto [m, n, k] : products) {
    for (const Form form_a : {Form::kPlain, Form::kTransposed}) {
      for (const Form form_b : {Form::kPlain, Form::kTransposed}) {
        const bool at = form_a == Form::kTransposed;
        const bool bt = form_b == Form::kTransposed;
        Compare(absl::StrCat("MatMul ", m, " ", n, " ", k, at ? " T" : " N",
                             bt ? "T" : "N"),
                {Values::Random(at ? k : m, at ? m : k, 1),
                 Values::Random(bt ? n : k, bt ? k : n, 2), Values::Unset(m, n),
                 Values::Random(m, n, 3)},
                kSum, Void([=](Backend* backend, const Matrices& x) {
                  backend->MatMul(form_a, x[0], form_b, x[1], x[2]);
                  backend->AddMatMul(form_a, x[0], form_b, x[1], x[3]);
                }));
      }
    }
  }
}

TEST_F(ParityTest, MatMul) { CompareProducts(); }

TEST_F(ParityTest, MatMulInTf32) {
  has_products_ = true;
  auto device = MakeDeviceUnderTest({.tf32 = true});
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  for (const int64_t size : {63, 512}) {
    Compare("MatMul in TF32",
            {Values::Random(size, size, 1), Values::Random(size, size, 2),
             Values::Unset(size, size)},
            kTf32, Void([](Backend* backend, const Matrices& x) {
              backend->MatMul(Form::kPlain, x[0], Form::kPlain, x[1], x[2]);
            }));
  }
}

TEST_F(ParityTest, BiasAndSums) {
  const auto add_bias = [&](Shape shape) {
    const auto [m, n] = shape;
    Compare(Name("AddBias", shape),
            {Values::Random(1, n, 1), Values::Random(m, n, 2)}, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->AddBias(x[0], x[1]);
            }));
  };
  // Each thread processes four columns of several rows.
  if (!DeviceIsSlow()) add_bias({2051, 1028});
  for (const Shape shape : ShapesWithFours()) {
    const auto [m, n] = shape;
    add_bias(shape);
    Compare(Name("SumRows", shape),
            {Values::Random(m, n, 1), Values::Unset(1, n)}, kSum,
            Void([](Backend* backend, const Matrices& x) {
              backend->SumRows(x[0], x[1]);
            }));
    Compare(
        Name("Add", shape),
        {Values::Random(m, n, 1), Values::Random(m, n, 2), Values::Unset(m, n)},
        kExact, Void([](Backend* backend, const Matrices& x) {
          backend->Add(x[0], x[1], x[2]);
          backend->Add(x[0], x[2], x[0]);
        }));
    Compare(Name("Scale and AddScaled", shape),
            {Values::Random(m, n, 1), Values::Random(m, n, 2)}, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->AddScaled(0.3f, x[0], x[1]);
              backend->Scale(0.7f, x[1], x[0]);
              backend->Scale(-0.1f, x[0], x[0]);
            }));
    Compare(Name("Copy", shape), {Values::Random(m, n, 1), Values::Unset(m, n)},
            kExact, Void([](Backend* backend, const Matrices& x) {
              backend->Copy(x[0], x[1]);
            }));
  }
}

TEST_F(ParityTest, Activations) {
  for (const Shape shape : ShapesWithFours()) {
    const auto [m, n] = shape;
    Values x = Values::Random(m, n, 1);
    for (float& value : x.values) value *= 8;
    if (x.values.size() > 4) {
      x.values[1] = kNan;
      x.values[2] = std::numeric_limits<float>::infinity();
      x.values[3] = -std::numeric_limits<float>::infinity();
      x.values[4] = -200;
    }
    const std::vector<Values> two = {x, Values::Unset(m, n)};
    Compare(Name("Relu", shape), two, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->Relu(x[0], x[1]);
              backend->Relu(x[0], x[0]);
            }));
    Compare(Name("Tanh", shape), two, kRounding,
            Void([](Backend* backend, const Matrices& x) {
              backend->Tanh(x[0], x[1]);
              backend->Tanh(x[0], x[0]);
            }));
    Compare(Name("Sigmoid", shape), two, kRounding,
            Void([](Backend* backend, const Matrices& x) {
              backend->Sigmoid(x[0], x[1]);
              backend->Sigmoid(x[0], x[0]);
            }));
    const std::vector<Values> three = {
        Values::Random(m, n, 1), Values::Random(m, n, 2), Values::Unset(m, n)};
    Compare(Name("ReluGradient", shape), three, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->ReluGradient(x[0], x[1], x[2]);
              backend->ReluGradient(x[0], x[1], x[1]);
            }));
    Compare(Name("TanhGradient", shape), three, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->TanhGradient(x[0], x[1], x[2]);
              backend->TanhGradient(x[0], x[1], x[1]);
            }));
    Compare(Name("SigmoidGradient", shape), three, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->SigmoidGradient(x[0], x[1], x[2]);
              backend->SigmoidGradient(x[0], x[1], x[1]);
            }));
  }
}

TEST_F(ParityTest, Dropout) {
  for (const Shape shape : ShapesWithFours()) {
    const auto [m, n] = shape;
    std::vector<int64_t> positions(m);
    for (int64_t i = 0; i < m; ++i) positions[i] = (i << 33) + 5 * i;
    for (const float rate : {0.0f, 0.1f, 0.5f, 0.999f}) {
      Compare(Name("Dropout", shape),
              {Values::Random(m, n, 1), Values::Unset(m, n)}, kExact,
              Void([&](Backend* backend, const Matrices& x) {
                backend->Dropout(x[0], positions, 0x123456789abcdef, rate,
                                 x[1]);
                backend->Dropout(x[0], positions, 7, rate, x[0]);
              }));
    }
  }
}

const std::vector<Images>& AllImages() {
  static const auto* const all = new std::vector<Images>{
      MakeImages(1, 1, 1, 1, 1, 1, 0, 1, 1),
      MakeImages(2, 5, 7, 3, 3, 1, 1, 4, 1),
      MakeImages(0, 5, 7, 3, 3, 1, 1, 4, 1),
      MakeImages(3, 8, 8, 4, 3, 2, 1, 6, 2),
      MakeImages(2, 9, 6, 6, 2, 3, 0, 6, 6),
      MakeImages(5, 6, 5, 7, 1, 1, 0, 9, 1),
      MakeImages(5, 6, 5, 8, 1, 2, 0, 4, 4),
      MakeImages(4, 12, 13, 2, 5, 2, 2, 3, 1),
      // Channels that threads process four or eight at a time, with strides 1
      // and 2, in groups and depthwise.
      MakeImages(3, 6, 5, 8, 3, 1, 1, 8, 1),
      MakeImages(2, 7, 6, 12, 3, 2, 1, 16, 1),
      MakeImages(3, 5, 5, 16, 3, 1, 1, 12, 2),
      MakeImages(2, 6, 7, 8, 3, 1, 1, 8, 8),
      MakeImages(3, 5, 6, 12, 1, 2, 0, 8, 1),
      MakeImages(9, 6, 5, 8, 1, 1, 0, 16, 1),
      MakeImages(2, 9, 8, 4, 3, 1, 0, 3, 1),
      MakeImages(DeviceIsSlow() ? 1 : 33, 28, 28, 16, 5, 1, 2, 32, 1),
      // More padding after than before; and pixels at the end that no window
      // covers.
      MakeSameImages(3, 8, 10, 4, 3, 2, 6, 2),
      MakeSameImages(3, 7, 10, 4, 2, 3, 8, 1),
      MakeSameImages(2, 9, 6, 3, 4, 1, 5, 1),
  };
  return *all;
}

// With enough channels per group that cuDNN is used: several strides, symmetric
// and asymmetric padding, groups; and two convolutions that the emulated cuDNN
// refuses.
const std::vector<Images>& ImagesForCudnn() {
  static const auto* const all = new std::vector<Images>{
      MakeImages(3, 6, 5, 64, 3, 1, 1, 8, 1),
      MakeImages(2, 7, 6, 68, 3, 2, 1, 16, 1),
      MakeImages(2, 5, 5, 128, 3, 1, 1, 12, 2),
      MakeImages(2, 5, 6, 64, 1, 2, 0, 96, 1),
      MakeSameImages(3, 8, 10, 64, 3, 2, 64, 1),
      MakeSameImages(2, 7, 10, 128, 2, 3, 64, 2),
      MakeSameImages(2, 9, 6, 64, 4, 1, 5, 1),
      MakeImages(2, 9, 8, 64, 5, 2, 2, 4, 1),
  };
  return *all;
}

void ParityTest::CompareConvolutions(const std::vector<Images>& all,
                                     double tolerance) {
  has_products_ = true;
  for (const Images& images : all) {
    const Convolution convolution = {images.window, images.filters,
                                     images.groups};
    const int64_t m = images.m;
    const int64_t inputs = images.window.input_size();
    const int64_t outputs = convolution.output_size();
    const int64_t rows = convolution.kernel_rows();
    Compare(
        Name("Convolve", images),
        {Values::Random(m, inputs, 1), Values::Random(rows, images.filters, 2),
         Values::Unset(m, outputs)},
        tolerance, [&](Backend* backend, const Matrices& x) {
          return backend->Convolve(convolution, x[0], x[1], x[2]);
        });
    Compare(Name("ConvolveKernelGradient", images),
            {Values::Random(m, inputs, 1), Values::Random(m, outputs, 2),
             Values::Unset(rows, images.filters)},
            tolerance, [&](Backend* backend, const Matrices& x) {
              return backend->ConvolveKernelGradient(convolution, x[0], x[1],
                                                     x[2]);
            });
    Compare(Name("ConvolveInputGradient", images),
            {Values::Random(rows, images.filters, 1),
             Values::Random(m, outputs, 2), Values::Unset(m, inputs)},
            tolerance, [&](Backend* backend, const Matrices& x) {
              return backend->ConvolveInputGradient(convolution, x[0], x[1],
                                                    x[2]);
            });
  }
}

TEST_F(ParityTest, Convolutions) { CompareConvolutions(AllImages(), kSum); }

TEST_F(ParityTest, ConvolutionsInTf32) {
  if (DeviceHasTheCpusBits() || DeviceIsSlow()) {
    GTEST_SKIP() << "the device has no TF32";
  }
  auto device = MakeDeviceUnderTest({.tf32 = true});
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  CompareConvolutions(AllImages(), kTf32);
}

// run.sh recognizes the tests that run cuDNN's kernels by their names.
TEST_F(ParityTest, ConvolutionsByCudnn) {
  if (DeviceHasTheCpusBits()) GTEST_SKIP() << "the device has no cuDNN";
  auto device = MakeDeviceUnderTest({.tf32 = true});
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  by_cudnn_ = true;
  CompareConvolutions(ImagesForCudnn(), kTf32);
}

// The convolutions of ResNet-50, and one in groups: with cuDNN twice, with
// another backend's cuDNN, and unfolded.
TEST_F(ParityTest, SameBitsByCudnn) {
  auto device = MakeDeviceUnderTest({.tf32 = true});
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  if (device_->Describe().core.find("cuDNN") == std::string::npos) {
    GTEST_SKIP() << "no cuDNN on " << device_->Describe().core;
  }
  auto twin = MakeDeviceUnderTest({.tf32 = true});
  ASSERT_TRUE(twin.ok()) << twin.status();
  auto unfolding = MakeDeviceUnderTest({.tf32 = true, .cudnn = false});
  ASSERT_TRUE(unfolding.ok()) << unfolding.status();
  const Images all[] = {MakeSameImages(8, 56, 56, 64, 3, 1, 64, 1),
                        MakeSameImages(8, 56, 56, 128, 3, 2, 128, 1),
                        MakeSameImages(8, 56, 56, 256, 1, 2, 512, 1),
                        MakeSameImages(8, 28, 28, 128, 3, 1, 128, 2),
                        MakeSameImages(8, 14, 14, 256, 3, 1, 256, 1),
                        MakeSameImages(8, 14, 14, 512, 3, 2, 512, 1)};
  for (const Images& images : all) {
    SCOPED_TRACE(Name("convolution", images));
    const Convolution convolution = {images.window, images.filters,
                                     images.groups};
    const int64_t m = images.m;
    const int64_t rows = convolution.kernel_rows();
    const Values x = Values::Random(m, images.window.input_size(), 1);
    const Values kernel = Values::Random(rows, images.filters, 2);
    const Values dy = Values::Random(m, convolution.output_size(), 3);
    // Computes y and the gradients with respect to the kernel and to x.
    const auto run = [&](Backend* backend,
                         std::vector<std::vector<float>>* results) {
      std::vector<DeviceBuffer> buffers(6);
      const auto upload = [&](const Values& values, DeviceBuffer* buffer) {
        return backend->Upload(values.values, values.rows, values.cols, buffer);
      };
      const auto in_x = upload(x, &buffers[0]);
      const auto in_kernel = upload(kernel, &buffers[1]);
      const auto in_dy = upload(dy, &buffers[2]);
      ASSERT_TRUE(in_x.ok() && in_kernel.ok() && in_dy.ok());
      std::vector<Matrix> made;
      for (const ConstMatrix like : {*in_dy, *in_kernel, *in_x}) {
        DeviceBuffer& buffer = buffers[3 + made.size()];
        ASSERT_EQ(backend->Reserve(like.size(), &buffer), absl::OkStatus());
        made.push_back(buffer.View(like.rows, like.cols));
      }
      ASSERT_EQ(backend->Convolve(convolution, *in_x, *in_kernel, made[0]),
                absl::OkStatus());
      ASSERT_EQ(
          backend->ConvolveKernelGradient(convolution, *in_x, *in_dy, made[1]),
          absl::OkStatus());
      ASSERT_EQ(backend->ConvolveInputGradient(convolution, *in_kernel, *in_dy,
                                               made[2]),
                absl::OkStatus());
      for (const Matrix& matrix : made) {
        const auto download = backend->StartDownload(matrix);
        ASSERT_TRUE(download.ok()) << download.status();
        ASSERT_EQ(backend->Await(*download), absl::OkStatus());
        results->emplace_back(download->values.begin(), download->values.end());
      }
    };
    std::vector<std::vector<float>> first, again, of_twin, unfolded;
    run(device_.get(), &first);
    run(device_.get(), &again);
    run(twin->get(), &of_twin);
    run(unfolding->get(), &unfolded);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < first.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("result ", i));
      EXPECT_TRUE(Near(again[i], first[i], kExact));
      EXPECT_TRUE(Near(of_twin[i], first[i], kExact));
      EXPECT_TRUE(Near(first[i], unfolded[i], kTf32));
      ++g_cases;
    }
  }
}

// The CPU rounds the same factors, but sums in another order.
TEST_F(ParityTest, ProductsInSixteenBits) {
  for (const Precision precision :
       {Precision::kBfloat16, Precision::kFloat16}) {
    SCOPED_TRACE(precision == Precision::kFloat16 ? "float16" : "bfloat16");
    cpu_ = *CpuBackend::Create({.precision = precision});
    auto device = MakeDeviceUnderTest({.precision = precision});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    CompareProducts();
    CompareConvolutions(AllImages(), kSum);
    // Values that overflow, and that only just do not; subnormal numbers.
    Values x = Values::Random(5, 33, 1);
    x.values[3] = 65519;
    x.values[40] = -65520;
    x.values[70] = kNan;
    for (size_t i = 99; i < x.values.size(); ++i) x.values[i] *= 1e-6f;
    Compare("MatMul beyond", {x, Values::Random(33, 7, 2), Values::Unset(5, 7)},
            kSum, Void([](Backend* backend, const Matrices& x) {
              backend->MatMul(Form::kPlain, x[0], Form::kPlain, x[1], x[2]);
            }));
  }
}

// Products use the rounded copies that normalization stores beside its values,
// with the same bits as if they rounded the values themselves. A slow device is
// an exception: it rounds a few images at a time, and adds up the products of
// these.
TEST_F(ParityTest, RoundedCopiesOfFactors) {
  if (DeviceHasTheCpusBits()) GTEST_SKIP() << "the device rounds no factors";
  for (const Precision precision :
       {Precision::kBfloat16, Precision::kFloat16}) {
    SCOPED_TRACE(precision == Precision::kFloat16 ? "float16" : "bfloat16");
    auto device = MakeDeviceUnderTest({.precision = precision});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    for (const Images& images : AllImages()) {
      if (images.m == 0) continue;
      SCOPED_TRACE(Name("rounded copies", images));
      const Window& window = images.window;
      const Convolution convolution = {window, images.filters, images.groups};
      const int64_t outputs = window.output_places() * images.filters;
      const int64_t kernel_rows = convolution.kernel_rows();
      std::vector<std::unique_ptr<DeviceBuffer>> buffers;
      const auto upload = [&](const Values& values) -> ConstMatrix {
        buffers.push_back(std::make_unique<DeviceBuffer>());
        return *device_->Upload(values.values, values.rows, values.cols,
                                buffers.back().get());
      };
      // Normalized images with `channels` channels, which have a rounded copy.
      const auto normalized = [&](int64_t size, int64_t channels,
                                  bool by_gradient, bool alone) {
        const ConstMatrix x =
            upload(Values::Random(images.m * size / channels, channels, 1));
        const ConstMatrix row = upload(Values::Random(1, channels, 2));
        Values positive = Values::Random(1, channels, 3);
        for (float& value : positive.values) value = value * value + 0.1f;
        const ColumnNorm norm = {row, upload(positive), 1e-3f, row, row};
        buffers.push_back(std::make_unique<DeviceBuffer>());
        Matrix y = *device_->ReserveFactor(images.m, size, alone,
                                           buffers.back().get());
        EXPECT_NE(y.rounded, nullptr);
        EXPECT_EQ(y.rounded_alone, alone);
        const Matrix by_row = {y.data, x.rows, x.cols, y.rounded, alone};
        DeviceBuffer sums;
        if (by_gradient) {
          EXPECT_EQ(device_->Reserve(2 * channels, &sums), absl::OkStatus());
          const Matrix both = sums.View(2, channels);
          device_->NormalizeColumnsGradient(
              x, norm, true, upload(Values::Random(x.rows, channels, 4)),
              {both.data, 1, channels}, {both.data + channels, 1, channels},
              by_row);
        } else {
          device_->NormalizeColumns(x, norm, {}, true, by_row);
        }
        return y;
      };
      const auto images_of = [&](bool alone) -> ConstMatrix {
        return normalized(window.input_size(), window.channels, false, alone);
      };
      const auto gradient_of = [&](bool alone) -> ConstMatrix {
        return normalized(outputs, images.filters, true, alone);
      };
      const ConstMatrix x = images_of(false);
      const ConstMatrix dy = gradient_of(false);
      const ConstMatrix kernel =
          upload(Values::Random(kernel_rows, images.filters, 5));
      const auto without_copy = [](ConstMatrix matrix) {
        matrix.rounded = nullptr;
        return matrix;
      };
      const auto results = [&](ConstMatrix x, ConstMatrix dy) {
        std::vector<std::vector<float>> results;
        DeviceBuffer buffer;
        const auto result = [&](int64_t rows, int64_t cols, auto operation) {
          EXPECT_EQ(device_->Reserve(rows * cols, &buffer), absl::OkStatus());
          const Matrix made = buffer.View(rows, cols);
          EXPECT_EQ(operation(made), absl::OkStatus());
          const auto download = device_->StartDownload(made);
          EXPECT_EQ(device_->Await(*download), absl::OkStatus());
          results.emplace_back(download->values.begin(),
                               download->values.end());
        };
        result(images.m, outputs, [&](Matrix y) {
          return device_->Convolve(convolution, x, kernel, y);
        });
        result(kernel_rows, images.filters, [&](Matrix dk) {
          return device_->ConvolveKernelGradient(convolution, x, dy, dk);
        });
        result(images.m, x.cols, [&](Matrix dx) {
          return device_->ConvolveInputGradient(convolution, kernel, dy, dx);
        });
        result(images.m, images.m, [&](Matrix c) {
          device_->MatMul(Form::kPlain, x, Form::kTransposed, x, c);
          device_->AddMatMul(Form::kPlain, dy, Form::kTransposed, dy, c);
          return absl::OkStatus();
        });
        return results;
      };
      const auto rounding = results(without_copy(x), without_copy(dy));
      const auto expect_near = [&](const auto& made) {
        for (size_t i = 0; i < made.size(); ++i) {
          SCOPED_TRACE(absl::StrCat("result ", i));
          EXPECT_TRUE(
              Near(made[i], rounding[i], DeviceIsSlow() ? kSum : kExact));
        }
      };
      expect_near(results(x, dy));
      expect_near(results(images_of(true), gradient_of(true)));
      ++g_cases;
    }
  }
}

TEST_F(ParityTest, Pools) {
  std::vector<Images> all = AllImages();
  // As many window positions as a byte can number, and more.
  all.push_back(MakeSameImages(2, 20, 18, 4, 16, 3, 1, 1));
  all.push_back(MakeSameImages(2, 20, 18, 3, 17, 2, 1, 1));
  all.push_back(MakeSameImages(2, 20, 18, 4, 17, 2, 1, 1));
  for (const Images& images : all) {
    const Window& window = images.window;
    const int64_t m = images.m;
    const int64_t inputs = window.input_size();
    const int64_t outputs = window.output_places() * window.channels;
    Values x = Values::Random(m, inputs, 1);
    // With equal values in a window, and a NaN.
    for (float& value : x.values) value = std::round(value * 3);
    if (x.values.size() > 100) {
      x.values[50] = kNan;
      const float infinity = std::numeric_limits<float>::infinity();
      std::fill_n(x.values.begin() + 60, 40, -infinity);
    }
    Compare(Name("MaxPool", images),
            {x, Values::Unset(m, outputs), Values::Random(m, outputs, 2),
             Values::Unset(m, inputs)},
            kRounding, Void([&](Backend* backend, const Matrices& x) {
              backend->MaxPool(window, x[0], x[1]);
              backend->MaxPoolGradient(window, x[0], x[1], x[2], x[3]);
            }));
    Compare(Name("AveragePool", images),
            {Values::Random(m, inputs, 1), Values::Unset(m, outputs),
             Values::Random(m, outputs, 2), Values::Unset(m, inputs)},
            kRounding, Void([&](Backend* backend, const Matrices& x) {
              backend->AveragePool(window, x[0], x[1]);
              backend->AveragePoolGradient(window, x[2], x[3]);
            }));
  }
}

TEST_F(ParityTest, Normalization) {
  for (const Shape shape : ShapesWithFours()) {
    const auto [m, n] = shape;
    // Far from 0, so that an inaccurate variance shows.
    Values x = Values::Random(m, n, 1);
    for (float& value : x.values) value += 100;
    if (m > 0) {
      Compare(Name("ColumnMoments", shape),
              {x, Values::Unset(1, n), Values::Unset(1, n)}, kRounding,
              Void([](Backend* backend, const Matrices& x) {
                backend->ColumnMoments(x[0], x[1], x[2]);
              }));
    }
    // A variance that is not 0, even for one row.
    Values variance = Values::Random(1, n, 3);
    for (float& value : variance.values) value = value * value + 0.1f;
    Values mean = Values::Random(1, n, 4);
    for (float& value : mean.values) value += 100;
    const Values scale = Values::Random(1, n, 5),
                 offset = Values::Random(1, n, 6);
    Compare(Name("NormalizeColumns", shape),
            {x, mean, variance, scale, offset, Values::Random(m, n, 7),
             Values::Unset(m, n), Values::Unset(m, n), Values::Unset(m, n)},
            kSum, Void([](Backend* backend, const Matrices& x) {
              const ColumnNorm norm = {x[1], x[2], 1e-3f, x[3], x[4]};
              backend->NormalizeColumns(x[0], norm, {}, false, x[6]);
              backend->NormalizeColumns(x[0], norm, {}, true, x[7]);
              backend->NormalizeColumns(x[0], norm, x[5], true, x[8]);
              backend->NormalizeColumns(x[0], norm, x[5], false, x[0]);
            }));
    for (const bool want_dx : {true, false}) {
      Compare(Name("NormalizeColumnsGradient", shape),
              {x, mean, variance, scale, offset, Values::Random(m, n, 6),
               Values::Unset(1, n), Values::Unset(1, n), Values::Unset(m, n)},
              kSum, Void([&](Backend* backend, const Matrices& x) {
                const ColumnNorm norm = {x[1], x[2], 1e-3f, x[3], x[4]};
                const Matrix dx = want_dx ? x[8] : Matrix{};
                backend->NormalizeColumnsGradient(x[0], norm, false, x[5], x[6],
                                                  x[7], dx);
              }));
    }
    // Device and CPU may disagree on what a ReLU passes only near 0, and no
    // value gets there: the values are multiples of 1/4, and the mean is not.
    Values quarters = x, means = mean;
    for (float& value : quarters.values) value = std::round(value * 4) / 4;
    for (float& value : means.values) value = std::round(value * 4) / 4 + 0.1f;
    Compare(Name("NormalizeColumnsGradient of a relu", shape),
            {quarters, means, variance, scale, Values::Unset(1, n),
             Values::Random(m, n, 6), Values::Unset(1, n), Values::Unset(1, n)},
            kSum, Void([&](Backend* backend, const Matrices& x) {
              backend->Scale(0, x[3], x[4]);
              const ColumnNorm norm = {x[1], x[2], 1e-3f, x[3], x[4]};
              backend->NormalizeColumnsGradient(x[0], norm, true, x[5], x[6],
                                                x[7], x[5]);
            }));
    // The variance of one value is 0, and the result would be noise.
    if (n == 1) continue;
    Compare(Name("NormalizeRows", shape),
            {x, Values::Random(1, n, 5), Values::Random(1, n, 6),
             Values::Unset(m, 2), Values::Unset(m, n), Values::Random(m, n, 7),
             Values::Unset(1, n), Values::Unset(1, n), Values::Unset(m, n)},
            kSum, Void([&](Backend* backend, const Matrices& x) {
              backend->NormalizeRows(x[0], 1e-3f, x[1], x[2], x[3], x[4]);
              backend->NormalizeRowsGradient(x[0], x[1], x[3], x[5], x[6], x[7],
                                             x[8]);
              backend->NormalizeRowsGradient(x[0], x[1], x[3], x[5], x[6], x[7],
                                             x[5]);
            }));
  }
}

TEST_F(ParityTest, Losses) {
  const std::pair<const char*, Loss> losses[] = {
      {"SoftmaxCrossEntropy", std::mem_fn(&Backend::SoftmaxCrossEntropy)},
      {"SigmoidCrossEntropy", std::mem_fn(&Backend::SigmoidCrossEntropy)},
      {"MeanSquaredError", std::mem_fn(&Backend::MeanSquaredError)},
      {"MeanAbsoluteError", std::mem_fn(&Backend::MeanAbsoluteError)},
      {"Huber", [](Backend* backend, ConstMatrix z, const Targets& targets,
                   Matrix* dz) { return backend->Huber(z, targets, 1, dz); }}};
  for (const Shape shape : Shapes()) {
    const auto [m, n] = shape;
    std::vector<int32_t> labels(m);
    for (int64_t i = 0; i < m; ++i) labels[i] = i * 7 % n;
    Values z = Values::Random(m, n, 1);
    for (float& value : z.values) value = std::round(value * 4);
    const std::vector<float> numbers = RandomValues(m * n, 2);
    std::vector<float> weights(m);
    for (int64_t i = 0; i < m; ++i) weights[i] = static_cast<float>(i % 3);
    const Targets of_labels = {labels};
    const Targets of_weighted = {labels, {}, weights};
    const Targets of_numbers = {{}, numbers, weights};
    for (const auto& [name, loss] : losses) {
      for (const Targets* const targets :
           {&of_labels, &of_weighted, &of_numbers}) {
        if (targets == &of_numbers && &loss == &losses[0].second) continue;
        CompareLoss(Name(name, shape), z, *targets, loss);
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

// In blocks of 8192 values, the last of which may be partial.
TEST_F(ParityTest, SumsOfSquares) {
  std::vector<int64_t> sizes = {0, 1, 3, 4, 1000, 8191, 8192, 8193, 70'001};
  // More than one round of all blocks.
  if (!DeviceIsSlow()) sizes.push_back((int64_t{1} << 24) + 5);
  for (const int64_t size : sizes) {
    std::vector<float> values = RandomValues(size, 1);
    const auto sum_at = [&](int64_t offset) {
      constexpr float kGuard = 12345;
      std::vector<float> host(offset + size, kGuard);
      std::copy(values.begin(), values.end(), host.begin() + offset);
      const std::vector<float> guards(6, kGuard);
      DeviceBuffer staging, sums;
      const auto x = device_->Upload(host, 1, host.size(), &staging);
      const auto to = device_->Upload(guards, 1, guards.size(), &sums);
      EXPECT_TRUE(x.ok() && to.ok());
      device_->SumSquares({x->data + offset, size, 1},
                          {sums.View(1, 6).data + 2, 1, 2});
      const auto download = device_->StartDownload(sums.View(1, 6));
      EXPECT_TRUE(download.ok() && device_->Await(*download).ok());
      double sum = 0;
      std::memcpy(&sum, &download->values[2], sizeof(sum));
      for (const int i : {0, 1, 4, 5}) EXPECT_EQ(download->values[i], kGuard);
      ++g_cases;
      return sum;
    };
    SCOPED_TRACE(absl::StrCat(size, " values"));
    const double expected = SumOfSquares(values);
    const double made = sum_at(0);
    EXPECT_NEAR(made, expected, DeviceHasTheCpusBits() ? 0 : 1e-12 * expected);
    EXPECT_EQ(sum_at(1), made);
    if (size == 0) continue;
    for (const float bad : {kNan, std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      for (const int64_t place : {int64_t{0}, size - 1}) {
        const float good = std::exchange(values[place], bad);
        EXPECT_FALSE(std::isfinite(sum_at(0))) << place;
        values[place] = good;
      }
    }
    // Far above the largest float32.
    values[size / 2] = 1e30f;
    EXPECT_NEAR(sum_at(0), SumOfSquares(values), 1e47);
  }
}

// Repeating an operation gives the same bits.
TEST_F(ParityTest, SameBitsEveryTime) {
  const std::vector<float> a = RandomValues(513 * 1021, 1);
  const std::vector<float> b = RandomValues(1021 * 257, 2);
  DeviceBuffer staging_a, staging_b, product, sums;
  const auto x = device_->Upload(a, 513, 1021, &staging_a);
  const auto y = device_->Upload(b, 1021, 257, &staging_b);
  ASSERT_TRUE(x.ok() && y.ok());
  ASSERT_TRUE(device_->Reserve(513 * 257, &product).ok());
  ASSERT_TRUE(device_->Reserve(257, &sums).ok());
  std::vector<float> first;
  for (int i = 0; i < 5; ++i) {
    device_->MatMul(Form::kPlain, *x, Form::kPlain, *y, product.View(513, 257));
    device_->SumRows(product.View(513, 257), sums.View(1, 257));
    const auto download = device_->StartDownload(sums.View(1, 257));
    ASSERT_TRUE(download.ok());
    ASSERT_TRUE(device_->Await(*download).ok());
    const std::vector<float> made(download->values.begin(),
                                  download->values.end());
    if (first.empty()) first = made;
    EXPECT_EQ(std::memcmp(made.data(), first.data(), 257 * sizeof(float)), 0);
    ++g_cases;
  }
}

// The losses of 100 steps of gradient descent, on the device and the CPU.
TEST_F(ParityTest, LossCurves) {
  const std::pair<const char*, std::vector<int64_t>> models[] = {
      {R"pb(layers { dense { units: 64 } }
            layers { relu {} }
            layers { dropout { rate: 0.2 } }
            layers { dense { units: 10 } }
            loss { softmax_cross_entropy {} })pb",
       {20}},
      {R"pb(layers { conv2d { filters: 6 kernel_size: 3 padding: SAME } }
            layers { relu {} }
            layers { max_pool2d { size: 2 } }
            layers {
              residual {
                layers { layer_norm {} }
                layers { conv2d { filters: 6 kernel_size: 3 padding: SAME } }
                layers { tanh {} }
              }
            }
            layers { global_average_pool2d {} }
            layers { dense { units: 10 } }
            loss { softmax_cross_entropy {} })pb",
       {8, 8, 2}}};
  for (const auto& [text, shape] : models) {
    SCOPED_TRACE(text);
    proto::Model config;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        text, config.mutable_sequential()));
    const std::vector<double> expected = Losses(config, shape, {cpu_.get()});
    const std::vector<double> made = Losses(config, shape, {device_.get()});
    ASSERT_EQ(made.size(), steps_);
    ASSERT_EQ(expected.size(), steps_);
    for (size_t i = 0; i < made.size(); ++i) {
      // Rounding differences accumulate and grow from step to step.
      EXPECT_NEAR(made[i], expected[i], 1e-2 * expected[i]) << "step " << i;
    }
    EXPECT_LT(made.back(), made.front());
    ++g_cases;
  }
}

// Three replicas of a model on the device and as many on the CPU; two runs give
// the same bits, whatever the timing of the threads.
TEST_F(ParityTest, Replicas) {
  if (!DeviceHasTwins()) GTEST_SKIP() << "only one device can exist at a time";
  proto::Model config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(layers { conv2d { filters: 6 kernel_size: 3 padding: SAME } }
           layers { batch_norm {} }
           layers { relu {} }
           layers { flatten {} }
           layers { dropout { rate: 0.2 } }
           layers { dense { units: 64 } }
           layers { relu {} }
           layers { dense { units: 10 } }
           loss { softmax_cross_entropy {} })pb",
      config.mutable_sequential()));
  const std::vector<int64_t> shape = {8, 8, 2};
  auto second = MakeDeviceUnderTest();
  auto third = MakeDeviceUnderTest();
  ASSERT_TRUE(second.ok() && third.ok());
  const auto cpu_2 = *CpuBackend::Create({});
  const auto cpu_3 = *CpuBackend::Create({});
  const std::vector<double> expected =
      Losses(config, shape, {cpu_.get(), cpu_2.get(), cpu_3.get()});
  const std::vector<Backend*> devices = {device_.get(), second->get(),
                                         third->get()};
  const std::vector<double> made = Losses(config, shape, devices);
  ASSERT_EQ(made.size(), steps_);
  ASSERT_EQ(expected.size(), steps_);
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_NEAR(made[i], expected[i],
                DeviceHasTheCpusBits() ? 0 : 1e-2 * expected[i])
        << "step " << i;
  }
  EXPECT_EQ(Losses(config, shape, devices), made);
  ++g_cases;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
  const auto device = holdfast::MakeDeviceUnderTest();
  if (device.ok()) {
    std::printf("%lld cases ran on %s\n",
                static_cast<long long>(holdfast::g_cases),
                (*device)->Describe().core.c_str());
  } else {
    std::printf("no case ran: %s\n", device.status().ToString().c_str());
  }
  return code;
}
