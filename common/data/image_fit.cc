// SPDX-License-Identifier: Apache-2.0
#include "common/data/image_fit.h"

#include <algorithm>
#include <vector>

namespace holdfast {
namespace {

constexpr int kBits = 11;
constexpr int32_t kOne = 1 << kBits;

// The position of a pixel of the result: `far` of the way from pixel `low` to
// the next one, `high`.
struct Place {
  int64_t low = 0;
  int64_t high = 0;
  int32_t far = 0;
};

// The places of `count` pixels from `first` on, when `from` pixels become `to`.
std::vector<Place> PlacesOf(int64_t from, int64_t to, int64_t first,
                            int64_t count) {
  std::vector<Place> places(count);
  for (int64_t i = 0; i < count; ++i) {
    // The position in units of 1 / (2 to).
    const int64_t at = std::clamp<int64_t>((2 * (first + i) + 1) * from - to, 0,
                                           (from - 1) * 2 * to);
    places[i].low = at / (2 * to);
    places[i].high = std::min(places[i].low + 1, from - 1);
    places[i].far = static_cast<int32_t>(at % (2 * to) * kOne / (2 * to));
  }
  return places;
}

// Interpolates a row of the image at the columns' places, times kOne.
void BlendRow(const uint8_t* row, const std::vector<Place>& columns,
              int64_t channels, int32_t* to) {
  for (const Place& place : columns) {
    const uint8_t* const low = row + place.low * channels;
    const uint8_t* const high = row + place.high * channels;
    for (int64_t c = 0; c < channels; ++c) {
      *to++ = low[c] * (kOne - place.far) + high[c] * place.far;
    }
  }
}

}  // namespace

void FitImage(const ImagePixels& image, ImageFit fit, int64_t height,
              int64_t width, uint8_t* to) {
  // The size of the whole scaled image; with kCrop, its middle is cut out.
  int64_t whole_height = height;
  int64_t whole_width = width;
  if (fit == ImageFit::kCrop) {
    if (image.height * width <= image.width * height) {
      whole_width =
          (2 * image.width * height + image.height) / (2 * image.height);
    } else {
      whole_height =
          (2 * image.height * width + image.width) / (2 * image.width);
    }
  }
  const int64_t row_size = width * image.channels;
  const int64_t image_row = image.width * image.channels;
  const std::vector<Place> columns =
      PlacesOf(image.width, whole_width, (whole_width - width) / 2, width);
  const std::vector<Place> rows =
      PlacesOf(image.height, whole_height, (whole_height - height) / 2, height);
  // The last two rows of the image that were needed. No earlier row is needed
  // again, because places are ascending.
  std::vector<int32_t> low(row_size), high(row_size);
  int64_t low_is = -1;
  int64_t high_is = -1;
  for (const Place& place : rows) {
    if (place.low == high_is) {
      low.swap(high);
      std::swap(low_is, high_is);
    }
    if (place.low != low_is) {
      BlendRow(image.bytes.get() + place.low * image_row, columns,
               image.channels, low.data());
      low_is = place.low;
    }
    if (place.high != high_is) {
      BlendRow(image.bytes.get() + place.high * image_row, columns,
               image.channels, high.data());
      high_is = place.high;
    }
    for (int64_t x = 0; x < row_size; ++x) {
      *to++ =
          static_cast<uint8_t>((low[x] * (kOne - place.far) +
                                high[x] * place.far + (1 << (2 * kBits - 1))) >>
                               (2 * kBits));
    }
  }
}

}  // namespace holdfast
