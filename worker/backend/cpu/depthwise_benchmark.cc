// SPDX-License-Identifier: Apache-2.0

// Measures depthwise convolutions of 3 x 3 on the CPU, of shapes that occur in
// MobileNet (Howard et al. 2017), in milliseconds: forward, gradient of the
// kernel, gradient of the images. depthwise_benchmark.py measures PyTorch's.
//
// Usage: depthwise_benchmark [THREADS], 2 by default

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace holdfast {
namespace {

struct Shape {
  int64_t side, channels, stride;
};

constexpr int64_t kImages = 32;

// The shortest of several times.
template <typename Operation>
double Milliseconds(Operation operation) {
  absl::Duration least = absl::InfiniteDuration();
  for (int i = 0; i < 7; ++i) {
    const absl::Time begin = SteadyNow();
    operation();
    least = std::min(least, SteadyNow() - begin);
  }
  return absl::ToDoubleMilliseconds(least);
}

int Run(int threads) {
  const auto backend = CpuBackend::Create({.threads = threads});
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(backend.status().message()).c_str());
    return 1;
  }
  std::printf("%-14s %6s %9s %9s %9s\n", "images of", "stride", "forward",
              "kernel", "images");
  for (const Shape& shape :
       {Shape{112, 64, 1}, Shape{112, 64, 2}, Shape{56, 128, 1},
        Shape{28, 256, 1}, Shape{14, 512, 1}, Shape{7, 1024, 1}}) {
    Window window;
    window.height = window.width = shape.side;
    window.channels = shape.channels;
    window.window_height = window.window_width = 3;
    window.stride_height = window.stride_width = shape.stride;
    window.pad_top = window.pad_left = 1;
    window.output_height = window.output_width =
        (shape.side - 1) / shape.stride + 1;
    const Convolution convolution = {window, shape.channels, shape.channels};
    std::vector<float> x(kImages * window.input_size(), 0.5f), dx(x.size());
    std::vector<float> y(kImages * convolution.output_size()), dy(y.size(), 1);
    std::vector<float> kernel(9 * shape.channels, 0.1f), dkernel(kernel.size());
    const Matrix images = {x.data(), kImages, window.input_size()};
    const Matrix weights = {kernel.data(), 9, shape.channels};
    const Matrix gradient = {dy.data(), kImages, convolution.output_size()};
    const double forward = Milliseconds([&] {
      (*backend)
          ->Convolve(convolution, images, weights,
                     {y.data(), gradient.rows, gradient.cols})
          .IgnoreError();
    });
    const double of_kernel = Milliseconds([&] {
      (*backend)
          ->ConvolveKernelGradient(convolution, images, gradient,
                                   {dkernel.data(), 9, shape.channels})
          .IgnoreError();
    });
    const double of_images = Milliseconds([&] {
      (*backend)
          ->ConvolveInputGradient(convolution, weights, gradient,
                                  {dx.data(), images.rows, images.cols})
          .IgnoreError();
    });
    std::printf("%3d x %3d x%5d %6d %9.2f %9.2f %9.2f\n",
                static_cast<int>(shape.side), static_cast<int>(shape.side),
                static_cast<int>(shape.channels),
                static_cast<int>(shape.stride), forward, of_kernel, of_images);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  return holdfast::Run(argc > 1 ? std::atoi(argv[1]) : 2);
}
