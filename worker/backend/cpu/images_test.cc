// SPDX-License-Identifier: Apache-2.0

// Compares the CPU backend's operations on images with the formulas of
// backend.h in double.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/simd.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/halves.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsNan;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::unique_ptr<CpuBackend> MakeBackend() { return *CpuBackend::Create({}); }

// Values in [-1, 1), the same in every run.
std::vector<float> RandomValues(int64_t size, uint32_t key) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    const uint32_t bits = Philox4x32({static_cast<uint32_t>(i)}, {key})[0];
    values[i] = static_cast<float>(bits >> 8) / (1 << 23) - 1;
  }
  return values;
}

// A matrix with its memory.
struct Values {
  Values(int64_t rows, int64_t cols, std::vector<float> values)
      : rows(rows), cols(cols), values(std::move(values)) {}
  // For results, filled with NaN.
  static Values Unset(int64_t rows, int64_t cols) {
    return {rows, cols, std::vector<float>(rows * cols, kNan)};
  }
  static Values Random(int64_t rows, int64_t cols, uint32_t key) {
    return {rows, cols, RandomValues(rows * cols, key)};
  }
  operator Matrix() { return {values.data(), rows, cols}; }
  operator ConstMatrix() const { return {values.data(), rows, cols}; }

  int64_t rows;
  int64_t cols;
  std::vector<float> values;
};

// Sums in double, and the sums of the terms' magnitudes.
struct Sums {
  explicit Sums(int64_t size) : values(size), magnitudes(size) {}
  void Add(int64_t i, double term) {
    values[i] += term;
    magnitudes[i] += std::abs(term);
  }

  std::vector<double> values;
  std::vector<double> magnitudes;
};

// float32 has 24 bits: a sum in any order has a relative error of at most 6e-8
// for each addition that a term takes part in; products are summed in blocks.
void ExpectNear(const Values& found, const Sums& expected,
                double tolerance = 2e-6) {
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (size_t i = 0; i < found.values.size(); ++i) {
    // Written so that a NaN is an error too.
    if (!(std::abs(found.values[i] - expected.values[i]) <=
          tolerance * expected.magnitudes[i])) {
      ADD_FAILURE() << "value " << i << " is " << found.values[i] << ", not "
                    << expected.values[i];
      return;
    }
  }
}

// The window of a size and stride over an image, padded as TensorFlow's SAME
// and VALID are; output_height is 0 if the window fits nowhere.
Window MakeWindow(int64_t height, int64_t width, int64_t channels,
                  int64_t window_height, int64_t window_width,
                  int64_t stride_height, int64_t stride_width, bool same) {
  Window window;
  window.height = height;
  window.width = width;
  window.channels = channels;
  window.window_height = window_height;
  window.window_width = window_width;
  window.stride_height = stride_height;
  window.stride_width = stride_width;
  const auto places = [same](int64_t size, int64_t window, int64_t stride) {
    return same            ? (size + stride - 1) / stride
           : size < window ? 0
                           : (size - window) / stride + 1;
  };
  const auto pad = [same](int64_t size, int64_t window, int64_t stride,
                          int64_t places) {
    return same
               ? std::max<int64_t>((places - 1) * stride + window - size, 0) / 2
               : 0;
  };
  window.output_height = places(height, window_height, stride_height);
  window.output_width = places(width, window_width, stride_width);
  if (window.output_height == 0 || window.output_width == 0) return Window();
  window.pad_top =
      pad(height, window_height, stride_height, window.output_height);
  window.pad_left = pad(width, window_width, stride_width, window.output_width);
  return window;
}

std::string Describe(const Window& w) {
  return absl::StrCat("image ", w.height, "x", w.width, "x", w.channels,
                      ", window ", w.window_height, "x", w.window_width,
                      ", stride ", w.stride_height, "x", w.stride_width,
                      ", padding ", w.pad_top, " and ", w.pad_left);
}

// Odd and even sizes, windows of one pixel, as large as the image and larger,
// strides up to beyond the window, both paddings.
std::vector<Window> Windows(const std::vector<int64_t>& channels) {
  struct Size {
    int64_t height, width;
  };
  std::vector<Window> windows;
  for (const Size image : {Size{1, 1}, Size{5, 7}, Size{8, 4}}) {
    for (const int64_t c : channels) {
      for (const Size size : {Size{1, 1}, Size{2, 3}, Size{5, 4}}) {
        for (const Size stride : {Size{1, 1}, Size{2, 1}, Size{3, 6}}) {
          for (const bool same : {false, true}) {
            const Window window =
                MakeWindow(image.height, image.width, c, size.height,
                           size.width, stride.height, stride.width, same);
            if (window.output_height > 0) windows.push_back(window);
          }
        }
      }
    }
  }
  return windows;
}

// Calls visit(index in the window, index in the image), by the formula, for the
// pixels that the window covers at the position (p, q).
template <typename Visitor>
void VisitCovered(const Window& w, int64_t p, int64_t q, Visitor visit) {
  for (int64_t v = 0; v < w.window_height; ++v) {
    for (int64_t u = 0; u < w.window_width; ++u) {
      const int64_t y = p * w.stride_height - w.pad_top + v;
      const int64_t x = q * w.stride_width - w.pad_left + u;
      if (y < 0 || y >= w.height || x < 0 || x >= w.width) continue;
      visit(v * w.window_width + u, y * w.width + x);
    }
  }
}

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
  const auto rounded = [](Values values) {
    for (float& value : values.values) value = halves::RoundToBfloat16(value);
    return values;
  };
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
        run(exact.get(), rounded(x), rounded(kernel), rounded(dy));
    const std::vector<Values> unlike = run(exact.get(), x, kernel, dy);
    for (size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(made[i].values, expected[i].values) << size << ", " << i;
      EXPECT_NE(made[i].values, unlike[i].values) << size << ", " << i;
    }
  }
}

// Rounds all values to bfloat16.
Values Rounded(Values values) {
  for (float& value : values.values) value = halves::RoundToBfloat16(value);
  return values;
}

// A result of which only the rounded values are wanted.
Matrix Alone(Values& values) {
  Matrix matrix = values;
  matrix.rounded_alone = true;
  return matrix;
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

TEST(PoolingTest, AgreesWithFloat64) {
  auto backend = MakeBackend();
  // Includes more channels than a gradient processes at a time.
  for (const Window& w : Windows({1, 3, 70})) {
    for (const int64_t images : {0, 1, 3}) {
      SCOPED_TRACE(absl::StrCat(Describe(w), ", ", images, " images"));
      const int64_t outputs = w.output_places() * w.channels;
      const Values x = Values::Random(images, w.input_size(), 1);
      const Values dy = Values::Random(images, outputs, 3);
      Sums max(images * outputs), mean(images * outputs);
      Sums dmax(x.values.size()), dmean(x.values.size());
      for (int64_t i = 0; i < images; ++i) {
        for (int64_t o = 0; o < outputs; ++o) {
          const int64_t place = o / w.channels;
          const double d = dy.values[i * outputs + o];
          std::vector<int64_t> covered;
          VisitCovered(w, place / w.output_width, place % w.output_width,
                       [&](int64_t, int64_t in_image) {
                         covered.push_back(i * w.input_size() +
                                           in_image * w.channels +
                                           o % w.channels);
                       });
          int64_t greatest = covered[0];
          for (const int64_t at : covered) {
            if (x.values[at] > x.values[greatest]) greatest = at;
            mean.Add(i * outputs + o, x.values[at] / double(covered.size()));
            dmean.Add(at, d / double(covered.size()));
          }
          max.Add(i * outputs + o, x.values[greatest]);
          dmax.Add(greatest, d);
        }
      }
      Values found = Values::Unset(images, outputs);
      Values found_dx = Values::Unset(images, w.input_size());
      backend->MaxPool(w, x, found);
      ExpectNear(found, max, 0);
      backend->MaxPoolGradient(w, x, found, dy, found_dx);
      ExpectNear(found_dx, dmax);
      found = Values::Unset(images, outputs);
      found_dx = Values::Unset(images, w.input_size());
      backend->AveragePool(w, x, found);
      ExpectNear(found, mean);
      backend->AveragePoolGradient(w, dy, found_dx);
      ExpectNear(found_dx, dmean);
    }
  }
}

// Two windows, side by side, over two channels.
TEST(PoolingTest, OfEqualsTheFirstGetsTheGradient) {
  auto backend = MakeBackend();
  const Window window = MakeWindow(1, 4, 2, 1, 2, 1, 2, false);
  const Values x(1, 8, {5, -0.0f, 5, 0, 1, 7, 2, 7});
  const Values dy(1, 4, {10, 20, 30, 40});
  Values y = Values::Unset(1, 4);
  backend->MaxPool(window, x, y);
  EXPECT_THAT(y.values, ElementsAre(5, 0, 2, 7));
  Values dx = Values::Unset(1, 8);
  backend->MaxPoolGradient(window, x, y, dy, dx);
  EXPECT_THAT(dx.values, ElementsAre(10, 20, 0, 0, 0, 40, 30, 0));
}

TEST(PoolingTest, WhatIsNotANumberIsTheGreatest) {
  auto backend = MakeBackend();
  const Window window = MakeWindow(1, 3, 1, 1, 3, 1, 1, false);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& values :
       {std::vector<float>{kNan, 1, kInfinity},
        std::vector<float>{kInfinity, kNan, 2},
        std::vector<float>{0, kNan, kNan}}) {
    const Values x(1, 3, values);
    Values y = Values::Unset(1, 1);
    y.values = {0};
    backend->MaxPool(window, x, y);
    EXPECT_THAT(y.values, ElementsAre(IsNan()));
    Values dx = Values::Unset(1, 3);
    backend->MaxPoolGradient(window, x, y, Values(1, 1, {3}), dx);
    const size_t first = std::isnan(values[0]) ? 0 : 1;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(dx.values[i], i == first ? 3 : 0) << i;
    }
  }
}

// Values around 5, so that sums of squares that do not subtract the mean would
// show.
Values AroundFive(int64_t rows, int64_t cols) {
  Values x = Values::Random(rows, cols, 1);
  for (float& value : x.values) value += 5;
  return x;
}

constexpr float kEpsilon = 1e-3f;

struct Shape {
  int64_t rows, cols;
};
const std::vector<Shape>& Shapes() {
  static const auto& shapes = *new std::vector<Shape>{
      {1, 1}, {1, 7}, {2, 1}, {5, 3}, {64, 64}, {33, 65}, {700, 130}};
  return shapes;
}

TEST(NormalizationTest, OfColumnsAgreesWithFloat64) {
  auto backend = MakeBackend();
  for (const auto& [m, n] : Shapes()) {
    SCOPED_TRACE(absl::StrCat("[", m, ",", n, "]"));
    const Values x = AroundFive(m, n);
    const Values scale = Values::Random(1, n, 2);
    const Values offset = Values::Random(1, n, 3);
    const Values dy = Values::Random(m, n, 4);
    Sums mean(n), variance(n), y(m * n), dscale(n), doffset(n), dx(m * n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i)
        mean.Add(j, x.values[i * n + j] / double(m));
      for (int64_t i = 0; i < m; ++i) {
        const double distance = x.values[i * n + j] - mean.values[j];
        variance.Add(j, distance * distance / double(m));
      }
      // The mean is rounded.
      variance.magnitudes[j] += 1e-6;
      const double inverse = 1 / std::sqrt(variance.values[j] + kEpsilon);
      const auto h = [&, j = j, n = n](int64_t i) {
        return (x.values[i * n + j] - mean.values[j]) * inverse;
      };
      for (int64_t i = 0; i < m; ++i) {
        y.Add(i * n + j, h(i) * scale.values[j]);
        y.Add(i * n + j, offset.values[j]);
        // The rounding of two numbers around 5.
        y.magnitudes[i * n + j] += 5 * inverse;
        dscale.Add(j, dy.values[i * n + j] * h(i));
        dscale.magnitudes[j] += 5 * inverse;
        doffset.Add(j, dy.values[i * n + j]);
      }
      for (int64_t i = 0; i < m; ++i) {
        const double factor = scale.values[j] * inverse;
        dx.Add(i * n + j, factor * dy.values[i * n + j]);
        dx.Add(i * n + j, -factor * doffset.values[j] / m);
        dx.Add(i * n + j, -factor * h(i) * dscale.values[j] / m);
        dx.magnitudes[i * n + j] += 5 * inverse * inverse;
      }
    }
    Values found_mean = Values::Unset(1, n);
    Values found_variance = Values::Unset(1, n);
    backend->ColumnMoments(x, found_mean, found_variance);
    ExpectNear(found_mean, mean, 2e-7);
    ExpectNear(found_variance, variance, 1e-6);
    Values found = Values::Unset(m, n);
    const ColumnNorm norm = {found_mean, found_variance, kEpsilon, scale,
                             offset};
    backend->NormalizeColumns(x, norm, {}, false, found);
    ExpectNear(found, y);
    Values found_dscale = Values::Unset(1, n), found_doffset = found_dscale;
    Values found_dx = Values::Unset(m, n);
    backend->NormalizeColumnsGradient(x, norm, false, dy, found_dscale,
                                      found_doffset, found_dx);
    ExpectNear(found_dscale, dscale);
    ExpectNear(found_doffset, doffset);
    ExpectNear(found_dx, dx);

    // In place, and without dx.
    Values in_place = x;
    backend->NormalizeColumns(in_place, norm, {}, false, in_place);
    EXPECT_EQ(in_place.values, found.values);
    in_place = dy;
    backend->NormalizeColumnsGradient(x, norm, false, in_place, found_dscale,
                                      found_doffset, in_place);
    EXPECT_EQ(in_place.values, found_dx.values);
    Values same_dscale = Values::Unset(1, n), same_doffset = same_dscale;
    backend->NormalizeColumnsGradient(x, norm, false, dy, same_dscale,
                                      same_doffset, {nullptr, m, n});
    EXPECT_EQ(same_dscale.values, found_dscale.values);
    EXPECT_EQ(same_doffset.values, found_doffset.values);

    // With an addend and a relu: the same as Add and Relu afterwards.
    Values expected = found, ended = Values::Unset(m, n);
    backend->Add(expected, dy, expected);
    backend->NormalizeColumns(x, norm, dy, false, ended);
    EXPECT_EQ(ended.values, expected.values);
    backend->Relu(expected, expected);
    backend->NormalizeColumns(x, norm, dy, true, ended);
    EXPECT_EQ(ended.values, expected.values);
    expected = found;
    backend->Relu(expected, expected);
    backend->NormalizeColumns(x, norm, {}, true, ended);
    EXPECT_EQ(ended.values, expected.values);
    // The gradient is the same as with ReluGradient before it.
    Values passed = dy;
    backend->ReluGradient(ended, passed, passed);
    backend->NormalizeColumnsGradient(x, norm, false, passed, found_dscale,
                                      found_doffset, found_dx);
    Values ended_dx = dy;
    backend->NormalizeColumnsGradient(x, norm, true, ended_dx, same_dscale,
                                      same_doffset, ended_dx);
    EXPECT_EQ(ended_dx.values, found_dx.values);
    EXPECT_EQ(same_dscale.values, found_dscale.values);
    EXPECT_EQ(same_doffset.values, found_doffset.values);
  }
}

TEST(NormalizationTest, ResultsAreRoundedIfNothingElseIsWanted) {
  auto backend = *CpuBackend::Create(
      {.precision = Precision::kBfloat16, .activations = true});
  Values x = Values::Random(5, 3, 1), dy = Values::Random(5, 3, 2);
  const Values row(1, 3, {0.7f, 0.8f, 0.9f});
  const ColumnNorm norm = {row, row, kEpsilon, row, row};
  Values y = Values::Unset(5, 3), dx = y;
  Values dscale = Values::Unset(1, 3), doffset = dscale;
  // In place, from values that have been rounded before.
  for (Values* const values : {&x, &dy}) *values = Rounded(*values);
  backend->NormalizeColumns(x, norm, {}, true, y);
  backend->NormalizeColumnsGradient(x, norm, true, dy, dscale, doffset, dx);
  Values same_dscale = Values::Unset(1, 3), same_doffset = same_dscale;
  backend->NormalizeColumnsGradient(Alone(x), norm, true, Alone(dy),
                                    same_dscale, same_doffset, Alone(dy));
  backend->NormalizeColumns(Alone(x), norm, {}, true, Alone(x));
  EXPECT_EQ(x.values, Rounded(y).values);
  EXPECT_EQ(dy.values, Rounded(dx).values);
  EXPECT_NE(dy.values, dx.values);
  EXPECT_EQ(same_dscale.values, dscale.values);
  EXPECT_EQ(same_doffset.values, doffset.values);
}

TEST(NormalizationTest, OfRowsAgreesWithFloat64) {
  auto backend = MakeBackend();
  for (const auto& [m, n] : Shapes()) {
    SCOPED_TRACE(absl::StrCat("[", m, ",", n, "]"));
    const Values x = AroundFive(m, n);
    const Values scale = Values::Random(1, n, 2);
    const Values offset = Values::Random(1, n, 3);
    const Values dy = Values::Random(m, n, 4);
    Sums moments(2 * m), y(m * n), dscale(n), doffset(n), dx(m * n);
    for (int64_t i = 0; i < m; ++i) {
      double mean = 0, variance = 0;
      for (int64_t j = 0; j < n; ++j) mean += x.values[i * n + j] / double(n);
      for (int64_t j = 0; j < n; ++j) {
        const double distance = x.values[i * n + j] - mean;
        variance += distance * distance / double(n);
      }
      const double inverse = 1 / std::sqrt(variance + kEpsilon);
      moments.Add(2 * i, mean);
      moments.Add(2 * i + 1, inverse);
      double mean_g = 0, mean_gh = 0;
      const auto h = [&, i = i, n = n](int64_t j) {
        return (x.values[i * n + j] - mean) * inverse;
      };
      for (int64_t j = 0; j < n; ++j) {
        y.Add(i * n + j, h(j) * scale.values[j]);
        y.Add(i * n + j, offset.values[j]);
        y.magnitudes[i * n + j] += 5 * inverse;
        dscale.Add(j, dy.values[i * n + j] * h(j));
        dscale.magnitudes[j] += 5 * inverse;
        doffset.Add(j, dy.values[i * n + j]);
        const double g = dy.values[i * n + j] * scale.values[j];
        mean_g += g / n;
        mean_gh += g * h(j) / n;
      }
      for (int64_t j = 0; j < n; ++j) {
        dx.Add(i * n + j, inverse * dy.values[i * n + j] * scale.values[j]);
        dx.Add(i * n + j, -inverse * mean_g);
        dx.Add(i * n + j, -inverse * h(j) * mean_gh);
        dx.magnitudes[i * n + j] += 5 * inverse * inverse;
      }
    }
    Values found_moments = Values::Unset(m, 2);
    Values found = Values::Unset(m, n);
    backend->NormalizeRows(x, kEpsilon, scale, offset, found_moments, found);
    ExpectNear(found_moments, moments, 1e-6);
    ExpectNear(found, y);
    Values found_dscale = Values::Unset(1, n), found_doffset = found_dscale;
    Values found_dx = Values::Unset(m, n);
    backend->NormalizeRowsGradient(x, scale, found_moments, dy, found_dscale,
                                   found_doffset, found_dx);
    ExpectNear(found_dscale, dscale);
    ExpectNear(found_doffset, doffset);
    ExpectNear(found_dx, dx);

    Values in_place = dy;
    backend->NormalizeRowsGradient(x, scale, found_moments, in_place,
                                   found_dscale, found_doffset, in_place);
    EXPECT_EQ(in_place.values, found_dx.values);
    Values same_dscale = Values::Unset(1, n), same_doffset = same_dscale;
    backend->NormalizeRowsGradient(x, scale, found_moments, dy, same_dscale,
                                   same_doffset, {nullptr, m, n});
    EXPECT_EQ(same_dscale.values, found_dscale.values);
    EXPECT_EQ(same_doffset.values, found_doffset.values);
  }
}

// In float32 2^24 + 1 is 2^24: a sum in float32 would stay there.
TEST(NormalizationTest, ManyRowsCostNoAccuracy) {
  auto backend = MakeBackend();
  const int64_t m = (1 << 24) + 1000;
  const Values x(m, 1, std::vector<float>(m, 1.0f));
  Values mean = Values::Unset(1, 1), variance = Values::Unset(1, 1);
  backend->ColumnMoments(x, mean, variance);
  EXPECT_THAT(mean.values, ElementsAre(1));
  EXPECT_THAT(variance.values, ElementsAre(0));
}

TEST(NormalizationTest, WithoutRows) {
  auto backend = MakeBackend();
  const Values none(0, 3, {}), row(1, 3, {1, 1, 1});
  Values empty(0, 3, {}), moments(0, 2, {});
  const ColumnNorm norm = {row, row, kEpsilon, row, row};
  backend->NormalizeColumns(none, norm, none, true, empty);
  backend->NormalizeRows(none, kEpsilon, row, row, moments, empty);
  Values dscale = Values::Unset(1, 3), doffset = Values::Unset(1, 3);
  backend->NormalizeColumnsGradient(none, norm, true, none, dscale, doffset,
                                    empty);
  EXPECT_THAT(dscale.values, Each(0));
  EXPECT_THAT(doffset.values, Each(0));
  dscale = doffset = Values::Unset(1, 3);
  backend->NormalizeRowsGradient(none, row, moments, none, dscale, doffset,
                                 empty);
  EXPECT_THAT(dscale.values, Each(0));
  EXPECT_THAT(doffset.values, Each(0));
}

TEST(AddTest, AddsAndCopies) {
  auto backend = MakeBackend();
  Values a(1, 3, {1, 2, kNan});
  const Values b(1, 3, {10, 20, 30});
  backend->Add(a, b, a);
  EXPECT_THAT(a.values, ElementsAre(11, 22, IsNan()));
  Values c = Values::Unset(1, 3);
  backend->Add(b, b, c);
  EXPECT_THAT(c.values, ElementsAre(20, 40, 60));
  backend->Copy(b, c);
  EXPECT_EQ(c.values, b.values);
}

}  // namespace
}  // namespace holdfast
