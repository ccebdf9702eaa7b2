// SPDX-License-Identifier: Apache-2.0
#include "worker/input/image_augmenter.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

// Keeps these keys apart from other uses of Philox under one seed ("augm").
constexpr uint32_t kPurpose = 0x6175676d;

// Uniform on [-max, max], except for a share of 2 max / 2^32.
int64_t Shift(uint32_t bits, int64_t max) {
  const uint64_t places = 2 * static_cast<uint64_t>(max) + 1;
  return static_cast<int64_t>(bits * places >> 32) - max;
}

}  // namespace

absl::StatusOr<ImageAugmenter> ImageAugmenter::Create(
    absl::Span<const int64_t> shape, const Options& options) {
  if (shape.size() != 2 && shape.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "only images can be moved and mirrored; examples of shape ",
        ShapeString(shape), " are not images"));
  }
  if (options.max_shift < 0 ||
      options.max_shift >= std::min(shape[0], shape[1])) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images of shape ", ShapeString(shape), " cannot be moved by up to ",
        options.max_shift, ": it must be less than their height and width"));
  }
  return ImageAugmenter(shape[0], shape[1], shape.size() == 3 ? shape[2] : 1,
                        options);
}

ImageAugmenter::Change ImageAugmenter::ChangeAt(int64_t position) const {
  const uint64_t p = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> bits = Philox4x32(
      {static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32), 0, kPurpose},
      {static_cast<uint32_t>(options_.seed),
       static_cast<uint32_t>(options_.seed >> 32)});
  Change change;
  change.flip = options_.horizontal_flip && bits[0] >> 31 != 0;
  change.down = Shift(bits[1], options_.max_shift);
  change.right = Shift(bits[2], options_.max_shift);
  return change;
}

void ImageAugmenter::Apply(const Change& change, absl::Span<const float> image,
                           absl::Span<float> changed) const {
  // The pixels of a row that are filled from the image.
  const int64_t begin = std::max<int64_t>(change.right, 0);
  const int64_t end = width_ + std::min<int64_t>(change.right, 0);
  const int64_t row_size = width_ * channels_;
  for (int64_t y = 0; y < height_; ++y) {
    float* const to = changed.data() + y * row_size;
    const int64_t from_y = y - change.down;
    if (from_y < 0 || from_y >= height_) {
      std::fill_n(to, row_size, options_.fill);
      continue;
    }
    const float* const from = image.data() + from_y * row_size;
    std::fill(to, to + begin * channels_, options_.fill);
    if (!change.flip) {
      std::copy(from + (begin - change.right) * channels_,
                from + (end - change.right) * channels_,
                to + begin * channels_);
    } else if (channels_ == 1) {
      // Pixel x is pixel x - right of the mirrored row.
      std::reverse_copy(from + (width_ - end + change.right),
                        from + (width_ - begin + change.right), to + begin);
    } else {
      for (int64_t x = begin; x < end; ++x) {
        std::copy_n(from + (width_ - 1 - (x - change.right)) * channels_,
                    channels_, to + x * channels_);
      }
    }
    std::fill(to + end * channels_, to + row_size, options_.fill);
  }
}

}  // namespace holdfast
