// SPDX-License-Identifier: Apache-2.0

// Products and convolutions on the device and the CPU: in float32, with factors
// of 10 and 16 bits, and by cuDNN.
//
// Products whose factors are rounded to 16 bits are compared with the CPU's
// products of equally rounded factors: kSum.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/case_count.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/images.h"
#include "tests/gpu/parity.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace holdfast {
namespace {

// Tolerance for sums of products whose factors have 10 bits, as in parity.h.
constexpr double kTf32 = 2e-3;

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

class ProductsParityTest : public DeviceComparison {
 protected:
  // Compares products of all shapes.
  void CompareProducts();
  void CompareConvolutions(const std::vector<Images>& all, double tolerance);
};

void ProductsParityTest::CompareProducts() {
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

void ProductsParityTest::CompareConvolutions(const std::vector<Images>& all,
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

TEST_F(ProductsParityTest, MatMul) { CompareProducts(); }

TEST_F(ProductsParityTest, MatMulInTf32) {
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

TEST_F(ProductsParityTest, Convolutions) {
  CompareConvolutions(AllImages(), kSum);
}

TEST_F(ProductsParityTest, ConvolutionsInTf32) {
  if (DeviceHasTheCpusBits() || DeviceIsSlow()) {
    GTEST_SKIP() << "the device has no TF32";
  }
  auto device = MakeDeviceUnderTest({.tf32 = true});
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  CompareConvolutions(AllImages(), kTf32);
}

// run.sh recognizes the tests that run cuDNN's kernels by their names.
TEST_F(ProductsParityTest, ConvolutionsByCudnn) {
  if (DeviceHasTheCpusBits()) GTEST_SKIP() << "the device has no cuDNN";
  auto device = MakeDeviceUnderTest({.tf32 = true});
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  by_cudnn_ = true;
  CompareConvolutions(ImagesForCudnn(), kTf32);
}

// The convolutions of ResNet-50, and one in groups: with cuDNN twice, with
// another backend's cuDNN, and unfolded.
TEST_F(ProductsParityTest, SameBitsByCudnn) {
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
TEST_F(ProductsParityTest, ProductsInSixteenBits) {
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
TEST_F(ProductsParityTest, RoundedCopiesOfFactors) {
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

// Repeating an operation gives the same bits.
TEST_F(ProductsParityTest, SameBitsEveryTime) {
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

}  // namespace
}  // namespace holdfast
