// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_TESTING_IMAGE_TESTING_H_
#define HOLDFAST_COMMON_DATA_TESTING_IMAGE_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

namespace holdfast {

// The contents of a PNG file: samples of `bits` bits, packed and big-endian as
// in the format. `color_type` is one of libpng's PNG_COLOR_TYPE_....
struct PngImage {
  uint32_t height = 1;
  uint32_t width = 1;
  int bits = 8;
  int color_type = 2;
  bool interlaced = false;
  // The samples, row by row.
  std::string samples;
  // Red, green, blue and alpha of each palette colour.
  std::vector<std::vector<uint8_t>> palette;
};
std::string EncodePng(const PngImage& image);

// A JPEG file with RGB (channels: 3), grey (1) or CMYK (4) pixels.
std::string EncodeJpeg(uint32_t height, uint32_t width, int channels,
                       const std::string& pixels, bool progressive = false);

// Random pixels that depend only on the seed.
std::string RandomPixels(int64_t size, uint32_t seed);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_TESTING_IMAGE_TESTING_H_
