// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_IMAGE_DECODER_H_
#define HOLDFAST_COMMON_DATA_IMAGE_DECODER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

// Pixels with 8 bits per channel, row-major, [height, width, channels].
struct ImagePixels {
  int64_t height = 0;
  int64_t width = 0;
  // 1: grey; 3: red, green, blue.
  int64_t channels = 0;
  std::unique_ptr<uint8_t[]> bytes;
};

// The contents of an image file's header.
struct ImageHeader {
  int64_t height = 0;
  int64_t width = 0;
  // "PNG, 8 bits, RGBA" or "JPEG, YCbCr"; for people.
  std::string description;
};

// Images with more pixels are refused, because decoded images are in memory.
constexpr int64_t kMostImagePixels = int64_t{1} << 26;

// Reads the header of a PNG or JPEG file, whose first bytes say which of the
// two it is.
// Errors: INVALID_ARGUMENT for other files and for images that DecodeImage()
// does not decode: JPEG with four inks, or too many pixels; DATA_LOSS for a
// damaged header.
absl::StatusOr<ImageHeader> ReadImageHeader(absl::Span<const uint8_t> file);

// Decodes a PNG or JPEG file into `channels` channels, 1 or 3. The arithmetic
// is integer only, so the same file gives the same pixels on any machine.
//
//   PNG   a sample v of b bits (1, 2, 4, 8 or 16) becomes
//         round(255 v / (2^b - 1)). Gamma and colour profiles are ignored.
//   JPEG  baseline or progressive, by the accurate integer transform, with
//         interpolated chroma. An EXIF orientation is ignored.
//   alpha v becomes round((v x alpha + background x (255 - alpha)) / 255)
//   grey  if 3 channels are wanted, becomes v, v, v; if 1, R, G, B become
//         floor((19595 R + 38470 G + 7471 B + 32768) / 65536)
//
// Errors: those of ReadImageHeader; DATA_LOSS for a file that is damaged or
// truncated.
absl::StatusOr<ImagePixels> DecodeImage(absl::Span<const uint8_t> file,
                                        int64_t channels, uint8_t background);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_IMAGE_DECODER_H_
