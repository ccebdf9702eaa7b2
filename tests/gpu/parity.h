// SPDX-License-Identifier: Apache-2.0

// Comparisons of operations on the device with those on the CPU, on matrices at
// unaligned addresses.
#ifndef HOLDFAST_TESTS_GPU_PARITY_H_
#define HOLDFAST_TESTS_GPU_PARITY_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/random.h"
#include "tests/gpu/case_count.h"
#include "tests/gpu/device_under_test.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace holdfast {

// Tolerances, relative to the greatest magnitude among a result's values:
//
//   kExact     comparisons, copies, single roundings, sums in the CPU's order:
//              the same bits as the CPU's
//   kRounding  a few roundings, or functions such as exp, in float32
//   kSum       sums of many products in float32, in the device's order
inline constexpr double kExact = 0;
inline constexpr double kRounding = 1e-6;
inline constexpr double kSum = 1e-5;
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Values in [-1, 1), the same in every run.
inline std::vector<float> RandomValues(int64_t size, uint32_t key) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; i += 4) {
    const auto bits = Philox4x32({static_cast<uint32_t>(i)}, {key});
    for (int64_t k = i; k < std::min(size, i + 4); ++k) {
      values[k] = static_cast<float>(bits[k - i] >> 8) / (1 << 23) - 1;
    }
  }
  return values;
}

// A matrix on the host.
struct Values {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;

  static Values Random(int64_t rows, int64_t cols, uint32_t key) {
    return {rows, cols, RandomValues(rows * cols, key)};
  }
  static Values Unset(int64_t rows, int64_t cols) {
    return {rows, cols, std::vector<float>(rows * cols, kNan)};
  }
  Matrix matrix() { return {values.data(), rows, cols}; }
};

// Checks that values are within `tolerance` times the greatest magnitude among
// `expected`; values that are not finite must be the same.
inline ::testing::AssertionResult Near(absl::Span<const float> made,
                                       absl::Span<const float> expected,
                                       double tolerance) {
  if (made.size() != expected.size()) {
    return ::testing::AssertionFailure() << made.size() << " values";
  }
  double scale = 0;
  for (const float value : expected) {
    if (std::isfinite(value)) {
      scale = std::max(scale, std::abs(double{value}));
    }
  }
  for (size_t i = 0; i < made.size(); ++i) {
    const bool finite = std::isfinite(expected[i]) && std::isfinite(made[i]);
    const bool near =
        finite ? std::abs(double{made[i]} - double{expected[i]}) <=
                     tolerance * scale
               : made[i] == expected[i] ||
                     (std::isnan(made[i]) && std::isnan(expected[i]));
    if (!near) {
      return ::testing::AssertionFailure()
             << "value " << i << " of " << made.size() << " is " << made[i]
             << ", on the CPU " << expected[i] << "; the greatest is " << scale;
    }
  }
  return ::testing::AssertionSuccess();
}

class DeviceComparison : public ::testing::Test {
 protected:
  // The arguments of an operation: matrices in the order of `all`, including
  // the ones that it writes.
  using Matrices = std::vector<Matrix>;
  using Operation = std::function<absl::Status(Backend*, const Matrices&)>;

  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Backend>> device = MakeDeviceUnderTest();
    if (absl::IsUnimplemented(device.status()) ||
        absl::IsFailedPrecondition(device.status())) {
      GTEST_SKIP() << "no case ran: " << device.status().message();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  // Runs `operation` on copies of `all` on both CPU and device, compares all
  // matrices afterwards, and checks that the device has not written outside
  // them. Repeats this with matrices at several offsets in memory, of which 0
  // is aligned: our kernels must give the same bits at all offsets.
  void Compare(const std::string& name, const std::vector<Values>& all,
               double tolerance, const Operation& operation) {
    SCOPED_TRACE(name);
    if (DeviceHasTheCpusBits()) tolerance = kExact;
    std::vector<Values> expected = all;
    Matrices on_cpu;
    for (Values& values : expected) on_cpu.push_back(values.matrix());
    ASSERT_EQ(operation(cpu_.get(), on_cpu), absl::OkStatus());
    std::vector<std::vector<float>> first_bits;
    size_t size = 0;
    for (const Values& values : all) size += values.values.size();
    for (const int64_t offset : {1, 7, 0}) {
      // For a slow device or a large matrix, offsets 0 and 1 suffice to cover
      // aligned and unaligned addresses.
      if (offset == 7 && (DeviceIsSlow() || size > 200'000)) continue;
      SCOPED_TRACE(absl::StrCat("offset ", offset));
      CompareAt(offset, all, expected, tolerance, operation, &first_bits);
      ++g_cases;
      if (HasFatalFailure()) return;
    }
  }

  void CompareAt(int64_t offset, const std::vector<Values>& all,
                 const std::vector<Values>& expected, double tolerance,
                 const Operation& operation,
                 std::vector<std::vector<float>>* first_bits) {
    // Values before and after each matrix.
    constexpr float kGuard = 12345;
    constexpr int64_t kGuards = 9;
    std::vector<DeviceBuffer> buffers(all.size());
    std::vector<std::vector<float>> host(all.size());
    Matrices on_device;
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<float>& values = all[i].values;
      host[i].assign(offset + values.size() + kGuards, kGuard);
      std::copy(values.begin(), values.end(), host[i].begin() + offset);
      const auto uploaded =
          device_->Upload(host[i], 1, host[i].size(), &buffers[i]);
      ASSERT_TRUE(uploaded.ok()) << uploaded.status();
      on_device.push_back(
          {buffers[i].View(1, 1).data + offset, all[i].rows, all[i].cols});
    }
    ASSERT_EQ(operation(device_.get(), on_device), absl::OkStatus());
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("matrix ", i));
      const auto download =
          device_->StartDownload(buffers[i].View(1, host[i].size()));
      ASSERT_TRUE(download.ok()) << download.status();
      ASSERT_EQ(device_->Await(*download), absl::OkStatus());
      const auto made = download->values;
      const int64_t size = all[i].values.size();
      ASSERT_TRUE(
          Near(made.subspan(offset, size), expected[i].values, tolerance));
      std::vector<float> bits(made.begin() + offset,
                              made.begin() + offset + size);
      if (first_bits->size() <= i) first_bits->push_back(bits);
      if (!has_products_ || (DeviceIsSlow() && !by_cudnn_)) {
        ASSERT_EQ(std::memcmp(bits.data(), (*first_bits)[i].data(),
                              size * sizeof(float)),
                  0);
      }
      ASSERT_THAT(made.first(offset), ::testing::Each(kGuard));
      ASSERT_THAT(made.subspan(offset + size), ::testing::Each(kGuard));
    }
  }

  // Operations that return nothing.
  static Operation Void(
      std::function<void(Backend*, const Matrices&)> operation) {
    return [operation = std::move(operation)](Backend* backend,
                                              const Matrices& matrices) {
      operation(backend, matrices);
      return absl::OkStatus();
    };
  }

  // Whether operations compute products, for which cuBLAS may choose different
  // algorithms at different alignments.
  bool has_products_ = false;
  // Whether there are convolutions that cuDNN computes if matrices are aligned.
  bool by_cudnn_ = false;

  std::unique_ptr<Backend> cpu_ = *CpuBackend::Create({});
  std::unique_ptr<Backend> device_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_PARITY_H_
