// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_INPUT_IMAGE_AUGMENTER_H_
#define HOLDFAST_WORKER_INPUT_IMAGE_AUGMENTER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

// Changes images of the training set at random: mirrors them, then moves them.
//
// The change of an image follows from the seed and the image's position in the
// training stream (example_order.h), which determines the step and the example.
// So the change is the same on every worker, in every batch and on every
// thread, and differs each time that the example recurs.
//
// Immutable, and so thread-safe.
class ImageAugmenter {
 public:
  struct Options {
    uint64_t seed = 0;
    // An image is moved by a random number of rows and a random number of
    // columns, each uniform on the integers of [-max_shift, max_shift].
    int64_t max_shift = 0;
    // Whether half of the images, chosen at random, are mirrored left to right.
    bool horizontal_flip = false;
    // The value of pixels that the moved image does not cover.
    float fill = 0;
  };

  // The change of one image: whether it is mirrored, and by how many rows down
  // and columns to the right it is then moved.
  struct Change {
    bool flip = false;
    int64_t down = 0;
    int64_t right = 0;
  };

  // Creates an augmenter for images of this shape: [height, width] or [height,
  // width, channels]. Errors: INVALID_ARGUMENT when the shape is another one,
  // or when a shift might leave nothing of an image.
  static absl::StatusOr<ImageAugmenter> Create(absl::Span<const int64_t> shape,
                                               const Options& options);

  // Returns the change of the image at `position` in the training stream.
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
