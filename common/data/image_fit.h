#ifndef HOLDFAST_COMMON_DATA_IMAGE_FIT_H_
#define HOLDFAST_COMMON_DATA_IMAGE_FIT_H_

#include <cstdint>

#include "common/data/image_decoder.h"

namespace holdfast {

enum class ImageFit {
  // To height and width, each by itself.
  kStretch,
  // As far as it covers height and width; then its centre is cut out.
  kCrop,
};

// Writes `image` as [height, width, image.channels] to `to`.
//
// Bilinear, between the centres of pixels, without a filter before (as
// tf.image.resize has it): along a dimension of n pixels that become m, pixel d
// of the result lies at ((2 d + 1) n - m) / 2 m of the image. With that held
// within [0, n - 1], i its whole part and f = floor(2048 x its fraction), the
// pixel is that of i times 2048 - f plus that of i + 1 times f; and of both
// dimensions together floor((sum + 2^21) / 2^22).
//
// kCrop: with H, W wanted of h, w, the image becomes H high and
// floor((2 w H + h) / 2 h) wide if h W <= w H, or else W wide and
// floor((2 h W + w) / 2 w) high; what is beyond is cut from both sides, from
// the first floor(half) of it.
//
// Only integers are calculated with: the bits are the same on any machine.
void FitImage(const ImagePixels& image, ImageFit fit, int64_t height,
              int64_t width, uint8_t* to);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_IMAGE_FIT_H_
