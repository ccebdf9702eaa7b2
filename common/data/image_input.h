// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_IMAGE_INPUT_H_
#define HOLDFAST_COMMON_DATA_IMAGE_INPUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/data/typed_array.h"
#include "proto/job.pb.h"

namespace holdfast {

// Turns image files into inputs [height, width, channels] of a model: decodes
// them (image_decoder.h), resizes them (image_fit.h) and scales the values like
// those of arrays.
//
// Immutable, thus thread-safe.
class ImageInput {
 public:
  ImageInput(const proto::Picture& config, const InputScaling& scaling)
      : config_(config), scaling_(scaling) {}

  std::vector<int64_t> shape() const {
    return {config_.height(), config_.width(), channels()};
  }

  // Validates the header of the file.
  // Errors: those of ReadImageHeader; INVALID_ARGUMENT for another size if
  // images are not resized.
  absl::Status CheckHeader(absl::Span<const uint8_t> file) const;

  // Writes the input of an image file. Errors: those of CheckHeader and of
  // DecodeImage.
  absl::Status Read(absl::Span<const uint8_t> file, absl::Span<float> to) const;

 private:
  int64_t channels() const {
    return config_.has_channels() ? config_.channels() : 3;
  }
  absl::Status CheckSize(int64_t height, int64_t width) const;

  const proto::Picture config_;
  const InputScaling scaling_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_IMAGE_INPUT_H_
