// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_INPUT_IMAGE_AUGMENTER_H_
#define HOLDFAST_WORKER_INPUT_IMAGE_AUGMENTER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

// Changes images of the training set at random: mirrors them, then moves them.
//
// How an image is changed follows from the seed and its position in the
// training stream (example_order.h), which determines the step and the example:
// the change is the same on every worker, in every batch and on every thread,
// and differs each time that the example recurs.
//
// Immutable, and so thread-safe.
class ImageAugmenter {
 public:
  struct Options {
    uint64_t seed = 0;
    // An image is moved by a whole number of rows and of columns, each uniform
    // on [-max_shift, max_shift].
    int64_t max_shift = 0;
    // Half of the images are mirrored, left to right.
    bool horizontal_flip = false;
    // The value of pixels that the moved image does not cover.
    float fill = 0;
  };

  // What is done to one image.
  struct Change {
    bool flip = false;
    int64_t down = 0;
    int64_t right = 0;
  };

  // For images of this shape: [height, width] or [height, width, channels].
  // Errors: INVALID_ARGUMENT when the shape is another one, or when a shift
  // might leave nothing of an image.
  static absl::StatusOr<ImageAugmenter> Create(absl::Span<const int64_t> shape,
                                               const Options& options);

  // The change of the image at `position` in the training stream.
  Change ChangeAt(int64_t position) const;

  // Applies `change` to `image`, row-major, and writes the result to `changed`,
  // which has the same size and must not overlap it.
  void Apply(const Change& change, absl::Span<const float> image,
             absl::Span<float> changed) const;

 private:
  ImageAugmenter(int64_t height, int64_t width, int64_t channels,
                 const Options& options)
      : height_(height),
        width_(width),
        channels_(channels),
        options_(options) {}

  int64_t height_;
  int64_t width_;
  int64_t channels_;
  Options options_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_IMAGE_AUGMENTER_H_
