// SPDX-License-Identifier: Apache-2.0

// Images, and windows over them, as kernels see them.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_WINDOWS_CUH_
#define HOLDFAST_WORKER_BACKEND_CUDA_WINDOWS_CUH_

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.cuh"

namespace holdfast {
namespace kernels {

// The number of channels that a thread takes if alignment allows it.
inline constexpr int kChannels = 4;

// A range [begin, end).
struct Range {
  int begin, end;

  __device__ int size() const { return end - begin; }
};

// A vector's index in images of [height, width, channels].
struct Place {
  int64_t image;
  int y, x, channel;
};

// Images whose pixels have `vectors` vectors of channels each.
class Images {
 public:
  Images(int height, int width, int vectors)
      : height_(height), width_(width), vectors_(vectors) {}

  int64_t size() const {
    return int64_t{height_.value()} * width_.value() * vectors_.value();
  }
  __device__ Place Find(int64_t i) const {
    const auto pixel = vectors_.Divide(i);
    const auto row = width_.Divide(pixel.quotient);
    const auto image = height_.Divide(row.quotient);
    return {image.quotient, image.remainder, row.remainder, pixel.remainder};
  }
  __device__ int64_t IndexOf(const Place& place) const {
    return ((place.image * height_.value() + place.y) * width_.value() +
            place.x) *
               vectors_.value() +
           place.channel;
  }

 private:
  Divisor height_, width_, vectors_;
};

// A window along one axis of an image.
class Axis {
 public:
  Axis(int size, int window, int stride, int pad, int places)
      : size_(size),
        window_(window),
        pad_(pad),
        places_(places),
        stride_(stride) {}

  // The pixels that the window sees at position p.
  __device__ Range Seen(int p) const {
    const int begin = p * stride_.value() - pad_;
    return {max(begin, 0), min(begin + window_, size_)};
  }
  // The positions at which the window sees the pixel y.
  __device__ Range SeenFrom(int y) const {
    const int last = stride_.Divide(y + pad_).quotient;
    const int before = y + pad_ - window_;
    const int first = before < 0 ? 0 : stride_.Divide(before).quotient + 1;
    return {first, min(last + 1, places_)};
  }
  // The index of pixel y within the window at position p.
  __device__ int InWindow(int y, int p) const {
    return y + pad_ - p * stride_.value();
  }

 private:
  int size_, window_, pad_, places_;
  Divisor stride_;
};

inline Axis RowsOf(const WindowShape& window) {
  return Axis(window.height, window.window_height, window.stride_height,
              window.pad_top, window.output_height);
}

inline Axis ColumnsOf(const WindowShape& window) {
  return Axis(window.width, window.window_width, window.stride_width,
              window.pad_left, window.output_width);
}

// A window over images, with `width` channels in a vector.
struct Windows {
  Windows(const WindowShape& window, int width)
      : inputs(window.height, window.width, window.channels / width),
        outputs(window.output_height, window.output_width,
                window.channels / width),
        rows(RowsOf(window)),
        cols(ColumnsOf(window)) {}

  Images inputs, outputs;
  Axis rows, cols;
};

// Whether a thread can take kChannels channels at a time.
template <typename... Pointers>
bool InVectors(int channels, Pointers... pointers) {
  return channels % kChannels == 0 && AreAligned(pointers...);
}

}  // namespace kernels
}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_WINDOWS_CUH_
