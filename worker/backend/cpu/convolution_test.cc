// SPDX-License-Identifier: Apache-2.0

// Compares the CPU backend's convolutions, depthwise ones among them, with the
// formulas of backend.h in double.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/simd.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/testing/test_matrices.h"
#include "worker/backend/cpu/testing/test_windows.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

void CheckConvolution(CpuBackend* backend, const Convolution& convolution,
                      int64_t images) {
  SCOPED_TRACE(absl::StrCat(
      Describe(convolution.window), ", ", convolution.filters, " filters in ",
      convolution.groups, " groups, ", images, " images"));
  const Window& w = convolution.window;
  const Values x = Values::Random(images, w.input_size(), 1);
  const Values kernel =
      Values::Random(convolution.kernel_rows(), convolution.filters, 2);
  const Values dy = Values::Random(images, convolution.output_size(), 3);
  Sums y(images * convolution.output_size());
  Sums dkernel(kernel.values.size());
  Sums dx(x.values.size());
  const int64_t channels = w.channels / convolution.groups;
  const int64_t filters = convolution.filters / convolution.groups;
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t place = 0; place < w.output_places(); ++place) {
      VisitCovered(
          w, place / w.output_width, place % w.output_width,
          [&](int64_t in_window, int64_t in_image) {
            for (int64_t f = 0; f < convolution.filters; ++f) {
              for (int64_t c = 0; c < channels; ++c) {
                const int64_t at_x = i * w.input_size() +
                                     in_image * w.channels +
                                     f / filters * channels + c;
                const int64_t at_k =
                    (in_window * channels + c) * convolution.filters + f;
                const int64_t at_y = i * convolution.output_size() +
                                     place * convolution.filters + f;
                const double from = x.values[at_x], k = kernel.values[at_k],
                             d = dy.values[at_y];
                y.Add(at_y, from * k);
                dkernel.Add(at_k, from * d);
                dx.Add(at_x, k * d);
              }
            }
          });
    }
  }
  Values found = Values::Unset(images, convolution.output_size());
  ASSERT_TRUE(backend->Convolve(convolution, x, kernel, found).ok());
  ExpectNear(found, y);
  Values found_dkernel = Values::Unset(kernel.rows, kernel.cols);
  ASSERT_TRUE(
      backend->ConvolveKernelGradient(convolution, x, dy, found_dkernel).ok());
  ExpectNear(found_dkernel, dkernel);
  Values found_dx = Values::Unset(images, w.input_size());
  ASSERT_TRUE(
      backend->ConvolveInputGradient(convolution, kernel, dy, found_dx).ok());
  ExpectNear(found_dx, dx);
}

TEST(ConvolutionTest, AgreesWithFloat64) {
  auto backend = MakeBackend();
  for (const Window& window : Windows({1, 6})) {
    for (const int64_t groups : {1, 2, 6}) {
      if (window.channels % groups != 0) continue;
      CheckConvolution(backend.get(), {window, groups, groups}, 3);
      CheckConvolution(backend.get(), {window, 2 * groups, groups}, 3);
    }
    CheckConvolution(backend.get(), {window, 5, 1}, 1);
    CheckConvolution(backend.get(), {window, 1, 1}, 0);
  }
  // A window of one pixel that does not cover all pixels.
  Window part = MakeWindow(5, 5, 3, 1, 1, 1, 1, true);
  part.output_height = 4;
  part.output_width = 3;
  CheckConvolution(backend.get(), {part, 4, 1}, 2);
}

// More columns than are made at a time, with a border inside an image; a line
// of positions that is longer than that; a product of the image itself.
TEST(ConvolutionTest, OfManyPiecesAgreesWithFloat64) {
  auto backend = MakeBackend();
  CheckConvolution(backend.get(),
                   {MakeWindow(32, 32, 16, 3, 3, 1, 1, true), 4, 2}, 5);
  CheckConvolution(backend.get(),
                   {MakeWindow(1, 1500, 10, 1, 20, 1, 1, true), 1, 1}, 2);
  CheckConvolution(backend.get(),
                   {MakeWindow(32, 32, 20, 1, 1, 1, 1, true), 4, 2}, 33);
}

// Depthwise: vectors of every length, runs of positions longer than are summed
// in float32, windows with more taps than are summed at a time, and no images.
TEST(ConvolutionTest, DepthwiseAgreesWithFloat64) {
  for (const Simd simd : SupportedSimd()) {
    SCOPED_TRACE(SimdName(simd));
    auto backend = *CpuBackend::Create({.simd = simd});
    for (const int64_t channels : {2, 31, 64, 75}) {
      for (const int64_t multiplier : {1, 3}) {
        CheckConvolution(backend.get(),
                         {MakeWindow(7, 9, channels, 3, 3, 1, 1, true),
                          channels * multiplier, channels},
                         2);
        CheckConvolution(backend.get(),
                         {MakeWindow(8, 9, channels, 5, 2, 2, 3, false),
                          channels * multiplier, channels},
                         2);
      }
    }
    CheckConvolution(backend.get(),
                     {MakeWindow(2, 500, 5, 2, 20, 1, 1, true), 5, 5}, 3);
    CheckConvolution(backend.get(),
                     {MakeWindow(40, 40, 16, 3, 3, 1, 1, true), 16, 16}, 4);
    CheckConvolution(backend.get(),
                     {MakeWindow(7, 9, 8, 3, 3, 1, 1, true), 8, 8}, 0);
  }
}

// The bits depend neither on the number of threads nor on the vectors.
TEST(ConvolutionTest, DepthwiseHasTheSameBitsOnAllThreads) {
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3, 7}) {
    for (const Simd simd : SupportedSimd()) {
      SCOPED_TRACE(absl::StrCat(threads, " threads, ", SimdName(simd)));
      auto backend = *CpuBackend::Create({.threads = threads, .simd = simd});
      std::vector<std::vector<float>> made;
      for (const int64_t multiplier : {1, 2}) {
        for (const int64_t stride : {1, 2}) {
          const Convolution convolution = {
              MakeWindow(30, 30, 21, 3, 3, stride, stride, true),
              21 * multiplier, 21};
          const int64_t m = 12;
          const Values x = Values::Random(m, 30 * 30 * 21, 1);
          const Values kernel = Values::Random(9, convolution.filters, 2);
          const Values dy = Values::Random(m, convolution.output_size(), 3);
          Values y = Values::Unset(m, convolution.output_size());
          Values dkernel = Values::Unset(9, convolution.filters);
          Values dx = Values::Unset(m, x.cols);
          ASSERT_TRUE(backend->Convolve(convolution, x, kernel, y).ok());
          ASSERT_TRUE(
              backend->ConvolveKernelGradient(convolution, x, dy, dkernel)
                  .ok());
          ASSERT_TRUE(
              backend->ConvolveInputGradient(convolution, kernel, dy, dx).ok());
          for (const Values* const values : {&y, &dkernel, &dx}) {
            made.push_back(values->values);
          }
        }
      }
      if (first.empty()) first = made;
      EXPECT_TRUE(made == first);
    }
  }
}

// A convolution that rounds factors gives the same bits as one of factors that
// were rounded before, whether the window sees one pixel or more.
TEST(ConvolutionTest, InSixteenBitsFactorsAreRounded) {
  auto exact = MakeBackend();
  auto backend = *CpuBackend::Create({.precision = Precision::kBfloat16});
  struct Case {
    int64_t size, filters, groups;
  };
  for (const auto [size, filters, groups] :
       {Case{1, 6, 2}, Case{3, 6, 2}, Case{3, 4, 4}}) {
    const Convolution convolution = {
        MakeWindow(7, 7, 4, size, size, 1, 1, true), filters, groups};
    const Values x = Values::Random(3, 7 * 7 * 4, 1);
    const Values kernel = Values::Random(convolution.kernel_rows(), filters, 2);
    const Values dy = Values::Random(3, 7 * 7 * filters, 3);
    const auto run = [&](Backend* on, const Values& x, const Values& kernel,
                         const Values& dy) {
      std::vector<Values> made = {Values::Unset(3, dy.cols),
                                  Values::Unset(kernel.rows, kernel.cols),
                                  Values::Unset(3, x.cols)};
      EXPECT_TRUE(on->Convolve(convolution, x, kernel, made[0]).ok());
      EXPECT_TRUE(on->ConvolveKernelGradient(convolution, x, dy, made[1]).ok());
      EXPECT_TRUE(
          on->ConvolveInputGradient(convolution, kernel, dy, made[2]).ok());
      return made;
    };
    const std::vector<Values> made = run(backend.get(), x, kernel, dy);
    const std::vector<Values> expected =
        run(exact.get(), Rounded(x), Rounded(kernel), Rounded(dy));
    const std::vector<Values> unlike = run(exact.get(), x, kernel, dy);
    for (size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(made[i].values, expected[i].values) << size << ", " << i;
      EXPECT_NE(made[i].values, unlike[i].values) << size << ", " << i;
    }
  }
}

TEST(ConvolutionTest, ResultsAreRoundedIfNothingElseIsWanted) {
  auto backend = *CpuBackend::Create(
      {.precision = Precision::kBfloat16, .activations = true});
  struct Case {
    int64_t size;
    int64_t filters;
    int64_t groups;
  };
  // The last one is depthwise.
  for (const Case& of : std::vector<Case>{{1, 6, 2}, {3, 6, 2}, {3, 8, 4}}) {
    const Convolution convolution = {
        MakeWindow(7, 7, 4, of.size, of.size, 1, 1, true), of.filters,
        of.groups};
    const Values x = Values::Random(3, 7 * 7 * 4, 1);
    const Values kernel =
        Values::Random(of.size * of.size * 4 / of.groups, of.filters, 2);
    const Values dy = Values::Random(3, 7 * 7 * of.filters, 3);
    Values y = Values::Unset(3, dy.cols), rounded_y = y;
    Values dx = Values::Unset(3, x.cols), rounded_dx = dx;
    ASSERT_TRUE(backend->Convolve(convolution, x, kernel, y).ok());
    ASSERT_TRUE(
        backend->Convolve(convolution, x, kernel, Alone(rounded_y)).ok());
    ASSERT_TRUE(
        backend->ConvolveInputGradient(convolution, kernel, dy, dx).ok());
    ASSERT_TRUE(
        backend
            ->ConvolveInputGradient(convolution, kernel, dy, Alone(rounded_dx))
            .ok());
    EXPECT_EQ(rounded_y.values, Rounded(y).values);
    EXPECT_EQ(rounded_dx.values, Rounded(dx).values);
    EXPECT_NE(rounded_y.values, y.values);
    EXPECT_NE(rounded_dx.values, dx.values);
  }
}

// x = [1 2 3; 4 5 6], kernel [1 10], by hand.
TEST(ConvolutionTest, ByHand) {
  auto backend = MakeBackend();
  const Values x(1, 6, {1, 2, 3, 4, 5, 6});
  const Values kernel(2, 1, {1, 10});
  Values valid = Values::Unset(1, 4);
  ASSERT_TRUE(backend
                  ->Convolve({MakeWindow(2, 3, 1, 1, 2, 1, 1, false), 1, 1}, x,
                             kernel, valid)
                  .ok());
  EXPECT_THAT(valid.values, ElementsAre(21, 32, 54, 65));
  // SAME puts a single column of padding at the end.
  Values same = Values::Unset(1, 6);
  ASSERT_TRUE(backend
                  ->Convolve({MakeWindow(2, 3, 1, 1, 2, 1, 1, true), 1, 1}, x,
                             kernel, same)
                  .ok());
  EXPECT_THAT(same.values, ElementsAre(21, 32, 3, 54, 65, 6));
}

// The bits do not depend on what the backend convolved before, nor on the
// matrices' addresses.
TEST(ConvolutionTest, BitsFollowFromTheArgumentsAlone) {
  auto backend = MakeBackend();
  const Convolution convolution = {MakeWindow(9, 9, 6, 3, 3, 1, 1, true), 5, 1};
  const int64_t m = 40;
  struct Results {
    std::vector<float> y, dkernel, dx;
    bool operator==(const Results& other) const {
      return y == other.y && dkernel == other.dkernel && dx == other.dx;
    }
  };
  const auto run = [&](int shift) {
    const auto shifted = [shift](const Values& of) {
      std::vector<float> values(shift);
      values.insert(values.end(), of.values.begin(), of.values.end());
      return values;
    };
    const auto x = shifted(Values::Random(m, 9 * 9 * 6, 1));
    const auto kernel = shifted(Values::Random(54, 5, 2));
    const auto dy = shifted(Values::Random(m, 9 * 9 * 5, 3));
    const ConstMatrix x_at = {x.data() + shift, m, 9 * 9 * 6};
    const ConstMatrix kernel_at = {kernel.data() + shift, 54, 5};
    const ConstMatrix dy_at = {dy.data() + shift, m, 9 * 9 * 5};
    Results results = {std::vector<float>(shift + dy_at.size()),
                       std::vector<float>(shift + kernel_at.size()),
                       std::vector<float>(shift + x_at.size())};
    EXPECT_TRUE(backend
                    ->Convolve(convolution, x_at, kernel_at,
                               {results.y.data() + shift, m, dy_at.cols})
                    .ok());
    EXPECT_TRUE(
        backend
            ->ConvolveKernelGradient(convolution, x_at, dy_at,
                                     {results.dkernel.data() + shift, 54, 5})
            .ok());
    EXPECT_TRUE(
        backend
            ->ConvolveInputGradient(convolution, kernel_at, dy_at,
                                    {results.dx.data() + shift, m, x_at.cols})
            .ok());
    for (auto* values : {&results.y, &results.dkernel, &results.dx}) {
      values->erase(values->begin(), values->begin() + shift);
    }
    return results;
  };
  const Results first = run(0);
  // Leaves NaNs in the backend's memory, and makes it grow.
  const Values nans = Values::Unset(50, 12 * 12 * 6);
  const Values kernel = Values::Random(54, 5, 2);
  Values y = Values::Unset(50, 12 * 12 * 5);
  ASSERT_TRUE(backend
                  ->Convolve({MakeWindow(12, 12, 6, 3, 3, 1, 1, true), 5, 1},
                             nans, kernel, y)
                  .ok());
  for (int shift = 0; shift < 4; ++shift) {
    EXPECT_TRUE(run(shift) == first) << "shifted by " << shift;
  }
}

}  // namespace
}  // namespace holdfast
