// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_IMAGE_FIT_H_
#define HOLDFAST_COMMON_DATA_IMAGE_FIT_H_

#include <cstdint>

#include "common/data/image_decoder.h"

namespace holdfast {

enum class ImageFit {
  // Scaled to height and width independently.
  kStretch,
  // Scaled until it covers height and width; then the centre is cut out.
  kCrop,
};

// Writes `image` as [height, width, image.channels] to `to`.
//
// Bilinear, between the centres of pixels, without a prefilter (like
// tf.image.resize): along a dimension of n pixels that become m, pixel d of the
// result is at position ((2 d + 1) n - m) / 2 m of the image. This position is
// clamped to [0, n - 1]; let i be its integer part and f = floor(2048 x its
// fractional part). Then pixel d is the sum of 2048 - f times pixel i and f
// times pixel i + 1. With both dimensions, the result is floor((sum + 2^21) /
// 2^22).
//
// kCrop makes an image of height h and width w fill height H and width W: if h
// W <= w H, the image is scaled to height H and width floor((2 w H + h) / 2 h),
// otherwise to width W and height floor((2 h W + w) / 2 w). The excess is cut
// from both sides, floor(half) of it from the top or the left.
//
// The arithmetic is integer only: the bits are the same on any machine.
void FitImage(const ImagePixels& image, ImageFit fit, int64_t height,
              int64_t width, uint8_t* to);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_IMAGE_FIT_H_
