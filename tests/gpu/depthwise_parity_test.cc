// SPDX-License-Identifier: Apache-2.0

// Depthwise convolutions on the device and the CPU. Both sum y and dx in the
// same order, so these are exact, at all alignments; the gradient of a kernel
// is summed in different orders.

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
#include "worker/backend/halves.h"

namespace holdfast {
namespace {

const char* NameOf(Precision precision) {
  switch (precision) {
    case Precision::kBfloat16:
      return "bfloat16";
    case Precision::kFloat16:
      return "float16";
    case Precision::kFloat32:
      break;
  }
  return "float32";
}

// One, two and three filters per channel; channels that threads process one or
// four at a time; more channels than one block takes; strides up to beyond the
// window, both paddings; one position; more lines than one block sums.
std::vector<Images> DepthwiseImages() {
  std::vector<Images> all = {
      MakeImages(2, 6, 7, 8, 3, 1, 1, 8, 8),
      MakeImages(0, 6, 7, 8, 3, 1, 1, 8, 8),
      MakeImages(2, 7, 9, 5, 3, 1, 1, 5, 5),
      MakeImages(3, 9, 6, 6, 2, 3, 0, 6, 6),
      MakeImages(5, 6, 5, 8, 1, 2, 0, 8, 8),
      MakeImages(2, 6, 5, 4, 1, 1, 0, 4, 4),
      MakeImages(2, 9, 8, 4, 5, 2, 2, 4, 4),
      MakeImages(2, 8, 9, 4, 3, 1, 1, 8, 4),
      MakeImages(2, 8, 9, 3, 3, 2, 1, 9, 3),
      MakeSameImages(2, 8, 10, 12, 3, 1, 12, 12),
      MakeSameImages(3, 8, 10, 4, 3, 2, 4, 4),
      MakeSameImages(2, 7, 10, 8, 2, 3, 16, 8),
      MakeSameImages(2, 3, 3, 4, 7, 1, 4, 4),
      MakeSameImages(1, 1, 1, 8, 3, 1, 8, 8),
      MakeSameImages(1, 6, 5, 140, 7, 1, 140, 140),
      MakeSameImages(41, 5, 6, 4, 3, 2, 4, 4),
  };
  if (!DeviceIsSlow()) {
    all.push_back(MakeSameImages(3, 56, 56, 64, 3, 1, 64, 64));
    all.push_back(MakeSameImages(3, 28, 28, 136, 3, 2, 136, 136));
    all.push_back(MakeSameImages(70, 7, 7, 520, 3, 1, 520, 520));
  }
  return all;
}

class DepthwiseParityTest : public DeviceComparison {
 protected:
  void CompareAll() {
    for (const Images& images : DepthwiseImages()) {
      const Convolution convolution = {images.window, images.filters,
                                       images.groups};
      const int64_t m = images.m;
      const int64_t inputs = images.window.input_size();
      const int64_t outputs = convolution.output_size();
      const int64_t rows = convolution.kernel_rows();
      const std::string filters = absl::StrCat(", filters ", images.filters);
      Compare(
          Name("Convolve", images) + filters,
          {Values::Random(m, inputs, 1),
           Values::Random(rows, images.filters, 2), Values::Unset(m, outputs)},
          kExact, [&](Backend* backend, const Matrices& x) {
            return backend->Convolve(convolution, x[0], x[1], x[2]);
          });
      Compare(Name("ConvolveInputGradient", images) + filters,
              {Values::Random(rows, images.filters, 1),
               Values::Random(m, outputs, 2), Values::Unset(m, inputs)},
              kExact, [&](Backend* backend, const Matrices& x) {
                return backend->ConvolveInputGradient(convolution, x[0], x[1],
                                                      x[2]);
              });
      Compare(Name("ConvolveKernelGradient", images) + filters,
              {Values::Random(m, inputs, 1), Values::Random(m, outputs, 2),
               Values::Unset(rows, images.filters)},
              kSum, [&](Backend* backend, const Matrices& x) {
                return backend->ConvolveKernelGradient(convolution, x[0], x[1],
                                                       x[2]);
              });
      if (HasFatalFailure()) return;
    }
  }

  void UseDevice(const ProductOptions& options) {
    auto device = MakeDeviceUnderTest(options);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  std::vector<float> Download(ConstMatrix matrix) {
    const auto download = device_->StartDownload(matrix);
    EXPECT_TRUE(download.ok()) << download.status();
    if (!download.ok()) return {};
    EXPECT_EQ(device_->Await(*download), absl::OkStatus());
    return {download->values.begin(), download->values.end()};
  }

  // The halves of a matrix with a rounded copy.
  std::vector<uint16_t> Halves(ConstMatrix matrix) {
    const std::vector<float> pairs =
        Download({static_cast<const float*>(matrix.rounded), 1,
                  (matrix.size() + 1) / 2});
    std::vector<uint16_t> halves(matrix.size());
    std::memcpy(halves.data(), pairs.data(), halves.size() * sizeof(uint16_t));
    return halves;
  }
};

TEST_F(DepthwiseParityTest, EveryShape) { CompareAll(); }

// Depthwise convolutions are not products of tensor cores: TF32 rounds nothing.
TEST_F(DepthwiseParityTest, EveryShapeWithTf32) {
  if (DeviceHasTheCpusBits()) GTEST_SKIP() << "the device has no TF32";
  UseDevice({.tf32 = true});
  CompareAll();
}

TEST_F(DepthwiseParityTest, EveryShapeInSixteenBits) {
  for (const Precision precision :
       {Precision::kBfloat16, Precision::kFloat16}) {
    SCOPED_TRACE(NameOf(precision));
    cpu_ = *CpuBackend::Create({.precision = precision});
    UseDevice({.precision = precision});
    CompareAll();
  }
}

// Rounded results have the bits of rounded float32 results, and convolutions of
// rounded matrices those of convolutions that round by themselves.
TEST_F(DepthwiseParityTest, RoundedCopies) {
  if (DeviceHasTheCpusBits()) GTEST_SKIP() << "the device rounds no factors";
  for (const Precision precision :
       {Precision::kBfloat16, Precision::kFloat16}) {
    SCOPED_TRACE(NameOf(precision));
    UseDevice({.precision = precision});
    const auto rounded = [&](const std::vector<float>& values) {
      std::vector<uint16_t> halves;
      for (const float value : values) {
        halves.push_back(precision == Precision::kFloat16
                             ? halves::ToFloat16(value)
                             : halves::ToBfloat16(value));
      }
      return halves;
    };
    for (const Images& images : DepthwiseImages()) {
      if (images.m == 0) continue;
      if (DeviceIsSlow() && images.window.input_size() > 1000) continue;
      SCOPED_TRACE(Name("rounded copies", images));
      const Convolution convolution = {images.window, images.filters,
                                       images.groups};
      const int64_t m = images.m;
      const int64_t inputs = images.window.input_size();
      const int64_t outputs = convolution.output_size();
      const int64_t rows = convolution.kernel_rows();
      DeviceBuffer buffers[8];
      const auto upload = [&](const Values& values, DeviceBuffer* buffer) {
        return *device_->Upload(values.values, values.rows, values.cols,
                                buffer);
      };
      const ConstMatrix x = upload(Values::Random(m, inputs, 1), &buffers[0]);
      const ConstMatrix dy = upload(Values::Random(m, outputs, 2), &buffers[1]);
      const ConstMatrix kernel =
          upload(Values::Random(rows, images.filters, 3), &buffers[2]);
      const auto plain = [&](int64_t rows, int64_t cols, DeviceBuffer* buffer) {
        EXPECT_EQ(device_->Reserve(rows * cols, buffer), absl::OkStatus());
        return buffer->View(rows, cols);
      };
      const Matrix y = plain(m, outputs, &buffers[3]);
      const Matrix dx = plain(m, inputs, &buffers[4]);
      ASSERT_TRUE(device_->Convolve(convolution, x, kernel, y).ok());
      ASSERT_TRUE(
          device_->ConvolveInputGradient(convolution, kernel, dy, dx).ok());
      for (const bool alone : {false, true}) {
        SCOPED_TRACE(alone ? "alone" : "beside the values");
        const Matrix y_halves =
            *device_->ReserveFactor(m, outputs, alone, &buffers[5]);
        const Matrix dx_halves =
            *device_->ReserveFactor(m, inputs, alone, &buffers[6]);
        ASSERT_NE(y_halves.rounded, nullptr);
        ASSERT_TRUE(device_->Convolve(convolution, x, kernel, y_halves).ok());
        ASSERT_TRUE(
            device_->ConvolveInputGradient(convolution, kernel, dy, dx_halves)
                .ok());
        EXPECT_EQ(Halves(y_halves), rounded(Download(y)));
        EXPECT_EQ(Halves(dx_halves), rounded(Download(dx)));
        if (!alone) {
          EXPECT_EQ(Download({y_halves.data, m, outputs}), Download(y));
          EXPECT_EQ(Download({dx_halves.data, m, inputs}), Download(dx));
        }
        // dx has the shape of x, and y that of dy.
        const auto results = [&](ConstMatrix x, ConstMatrix dy) {
          std::vector<std::vector<float>> results;
          const Matrix y = plain(m, outputs, &buffers[7]);
          EXPECT_TRUE(device_->Convolve(convolution, x, kernel, y).ok());
          results.push_back(Download(y));
          const Matrix dx = plain(m, inputs, &buffers[7]);
          EXPECT_TRUE(
              device_->ConvolveInputGradient(convolution, kernel, dy, dx).ok());
          results.push_back(Download(dx));
          const Matrix dkernel = plain(rows, images.filters, &buffers[7]);
          EXPECT_TRUE(
              device_->ConvolveKernelGradient(convolution, x, dy, dkernel)
                  .ok());
          results.push_back(Download(dkernel));
          return results;
        };
        const auto expected = results(dx, y);
        EXPECT_EQ(results(dx_halves, y_halves), expected);
        EXPECT_EQ(results(dx_halves, y), expected);
        EXPECT_EQ(results(dx, y_halves), expected);
        ++g_cases;
      }
    }
  }
}

}  // namespace
}  // namespace holdfast
