// SPDX-License-Identifier: Apache-2.0

// What only shows at a device's limits: memory that runs out, more elements
// than 32 bits count, and products in TensorFloat-32 that are not products in
// float32.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/gpu/case_count.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/parity.h"

namespace holdfast {
namespace {

// Whether the device is a GPU, neither emulated nor the host's stand-in.
bool IsGpu() { return !DeviceHasTheCpusBits() && !DeviceIsSlow(); }

class LimitsParityTest : public DeviceComparison {
 protected:
  std::vector<float> Download(Backend* backend, ConstMatrix matrix) {
    const auto download = backend->StartDownload(matrix);
    EXPECT_TRUE(download.ok()) << download.status();
    if (!download.ok()) return {};
    EXPECT_EQ(backend->Await(*download), absl::OkStatus());
    return {download->values.begin(), download->values.end()};
  }

  // The product of two random matrices, in the arithmetic of `backend`.
  std::vector<float> Product(Backend* backend) {
    constexpr int64_t kSide = 256;
    const std::vector<float> a = RandomValues(kSide * kSide, 1);
    const std::vector<float> b = RandomValues(kSide * kSide, 2);
    DeviceBuffer left, right, product;
    const auto x = backend->Upload(a, kSide, kSide, &left);
    const auto y = backend->Upload(b, kSide, kSide, &right);
    EXPECT_TRUE(x.ok() && y.ok()) << x.status() << y.status();
    EXPECT_EQ(backend->Reserve(kSide * kSide, &product), absl::OkStatus());
    const Matrix c = product.View(kSide, kSide);
    backend->MatMul(Form::kPlain, *x, Form::kPlain, *y, c);
    return Download(backend, c);
  }
};

// If TF32 were ignored, everything else would pass.
TEST_F(LimitsParityTest, ProductsInTf32AreNotThoseInFloat32) {
  if (!IsGpu()) GTEST_SKIP() << "only GPUs have TF32";
  const auto rounding = MakeDeviceUnderTest({.tf32 = true});
  ASSERT_TRUE(rounding.ok()) << rounding.status();
  const std::vector<float> exact = Product(device_.get());
  const std::vector<float> rounded = Product(rounding->get());
  EXPECT_NE(exact, rounded);
  EXPECT_TRUE(Near(rounded, exact, 2e-3));
  ++g_cases;
}

// A request that fails takes nothing away from what comes after it.
TEST_F(LimitsParityTest, AfterMemoryHasRunOutTheDeviceGoesOn) {
  const std::vector<float> before = Product(device_.get());
  DeviceBuffer huge;
  const absl::Status full = device_->Reserve(int64_t{1} << 42, &huge);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(huge.capacity(), 0);
  EXPECT_EQ(Product(device_.get()), before);
  ++g_cases;
}

// Elements beyond number 2^31, and 2^32 bytes.
TEST_F(LimitsParityTest, MoreElementsThan32BitsCount) {
  if (!IsGpu()) GTEST_SKIP() << "too slow on the host";
  constexpr int64_t kCols = int64_t{1} << 16;
  constexpr int64_t kRows = (int64_t{1} << 15) + 2;
  DeviceBuffer memory, staging, copy;
  const absl::Status room = device_->Reserve(kRows * kCols, &memory);
  if (!room.ok()) GTEST_SKIP() << room;
  const Matrix whole = memory.View(kRows, kCols);
  const auto row_of = [&](int64_t i) {
    return Matrix{whole.data + i * kCols, 1, kCols};
  };
  const std::vector<float> values = RandomValues(kCols, 1);
  const auto row = device_->Upload(values, 1, kCols, &staging);
  ASSERT_TRUE(row.ok()) << row.status();
  for (int64_t i = 0; i < kRows; ++i) device_->Scale(1, *row, row_of(i));
  device_->Scale(2, whole, whole);
  device_->Relu(whole, whole);
  std::vector<float> expected = values;
  for (float& value : expected) value = value > 0 ? 2 * value : 0;
  // Only a copy of a row is downloaded: a download pins as much memory of the
  // host as the matrix's block has.
  ASSERT_EQ(device_->Reserve(kCols, &copy), absl::OkStatus());
  for (const int64_t i : {int64_t{0}, kRows / 2, kRows - 2, kRows - 1}) {
    device_->Scale(1, row_of(i), copy.View(1, kCols));
    EXPECT_EQ(Download(device_.get(), copy.View(1, kCols)), expected)
        << "row " << i;
    ++g_cases;
  }
}

}  // namespace
}  // namespace holdfast
