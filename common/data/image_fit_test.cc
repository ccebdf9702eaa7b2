// SPDX-License-Identifier: Apache-2.0
#include "common/data/image_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/data/testing/image_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

ImagePixels Image(int64_t height, int64_t width, int64_t channels,
                  const std::string& pixels) {
  ImagePixels image;
  image.height = height;
  image.width = width;
  image.channels = channels;
  image.bytes.reset(new uint8_t[pixels.size()]);
  std::copy(pixels.begin(), pixels.end(), image.bytes.get());
  return image;
}

std::vector<int> Fit(const ImagePixels& image, ImageFit fit, int64_t height,
                     int64_t width) {
  std::vector<uint8_t> to(height * width * image.channels);
  FitImage(image, fit, height, width, to.data());
  return {to.begin(), to.end()};
}

// Pixel d of 4 is at (2 d + 1) / 4 - 1/2 of 2: -1/4 (clamped to 0), 1/4, 3/4,
// 5/4 (clamped to 1). tf.image.resize([[0, 100]], [1, 4]) gives 0, 25, 75, 100.
TEST(ImageFitTest, LiesBetweenTheCentresOfPixels) {
  EXPECT_THAT(
      Fit(Image(1, 2, 1, std::string("\0\x64", 2)), ImageFit::kStretch, 1, 4),
      ElementsAre(0, 25, 75, 100));
  EXPECT_THAT(
      Fit(Image(2, 1, 1, std::string("\0\x64", 2)), ImageFit::kStretch, 4, 1),
      ElementsAre(0, 25, 75, 100));
  // 4 become 2: the means of pairs.
  EXPECT_THAT(Fit(Image(1, 4, 1, std::string("\0\x0a\x14\x28", 4)),
                  ImageFit::kStretch, 1, 2),
              ElementsAre(5, 30));
}

TEST(ImageFitTest, OfTheSameSizeNothingChanges) {
  const std::string pixels = RandomPixels(5 * 7 * 3, 1);
  const std::vector<int> same =
      Fit(Image(5, 7, 3, pixels), ImageFit::kStretch, 5, 7);
  for (size_t i = 0; i < pixels.size(); ++i) {
    EXPECT_EQ(same[i], static_cast<uint8_t>(pixels[i])) << i;
  }
}

// 2 x 4 covers 2 x 2 unscaled: the middle remains. 2 x 3: one column is cut,
// from the right.
TEST(ImageFitTest, CutsTheMiddleOut) {
  EXPECT_THAT(Fit(Image(2, 4, 1, "\1\2\3\4\5\6\7\x08"), ImageFit::kCrop, 2, 2),
              ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(Fit(Image(2, 3, 1, "\1\2\3\4\5\6"), ImageFit::kCrop, 2, 2),
              ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Fit(Image(4, 2, 1, "\1\2\3\4\5\6\7\x08"), ImageFit::kCrop, 2, 2),
              ElementsAre(3, 4, 5, 6));
}

// The formula of the header in floating point. Weights are rounded down to
// 1/2048, an error of at most 255 x 2 / 2048 in a pixel's value, and rounding
// adds one half.
TEST(ImageFitTest, IsBilinear) {
  const int64_t h = 23, w = 31;
  const std::string pixels = RandomPixels(h * w * 3, 2);
  const ImagePixels image = Image(h, w, 3, pixels);
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{
           {9, 40}, {64, 64}, {23, 7}, {1, 1}}) {
    const std::vector<int> fit = Fit(image, ImageFit::kStretch, height, width);
    const auto place = [](int64_t d, int64_t from, int64_t to) {
      return std::clamp((d + 0.5) * from / to - 0.5, 0.0, from - 1.0);
    };
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const double at_y = place(y, h, height);
        const double at_x = place(x, w, width);
        const int64_t y0 = std::floor(at_y), x0 = std::floor(at_x);
        const int64_t y1 = std::min(y0 + 1, h - 1),
                      x1 = std::min(x0 + 1, w - 1);
        for (int64_t c = 0; c < 3; ++c) {
          const auto at = [&](int64_t y, int64_t x) {
            return static_cast<double>(image.bytes[(y * w + x) * 3 + c]);
          };
          const double top =
              at(y0, x0) + (at(y0, x1) - at(y0, x0)) * (at_x - x0);
          const double bottom =
              at(y1, x0) + (at(y1, x1) - at(y1, x0)) * (at_x - x0);
          EXPECT_NEAR(fit[(y * width + x) * 3 + c],
                      top + (bottom - top) * (at_y - y0), 0.5 + 0.25)
              << y << " " << x;
        }
      }
    }
  }
}

}  // namespace
}  // namespace holdfast
