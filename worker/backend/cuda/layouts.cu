// SPDX-License-Identifier: Apache-2.0

// Kernels that bring matrices into the layout that cuDNN expects. They compute
// nothing.
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.cuh"

namespace holdfast {
namespace kernels {
namespace {

// A block moves a square with sides of kTile through shared memory, so that
// both reads and writes of a warp coalesce. Each row of threads takes every
// eighth row.
constexpr int kTile = 32;
constexpr int kLanes = 8;
// The limit of a grid's second dimension.
constexpr int64_t kMaxTileRows = 65535;

__global__ void __launch_bounds__(kTile* kLanes)
    TransposeKernel(const float* x, int64_t rows, int64_t cols, float* y) {
  // One extra column, so that the threads of a warp read from different banks.
  __shared__ float tile[kTile][kTile + 1];
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t step = static_cast<int64_t>(gridDim.y) * kTile;
  for (int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
       first_row < rows; first_row += step) {
    for (int lane = threadIdx.y; lane < kTile; lane += kLanes) {
      const int64_t row = first_row + lane;
      const int64_t col = first_col + threadIdx.x;
      if (row < rows && col < cols) {
        tile[lane][threadIdx.x] = x[row * cols + col];
      }
    }
    __syncthreads();
    for (int lane = threadIdx.y; lane < kTile; lane += kLanes) {
      const int64_t col = first_col + lane;
      const int64_t row = first_row + threadIdx.x;
      if (row < rows && col < cols) {
        y[col * rows + row] = tile[threadIdx.x][lane];
      }
    }
    // The next square overwrites the same shared memory.
    __syncthreads();
  }
}

}  // namespace

cudaError_t Transpose(cudaStream_t stream, const float* x, int64_t rows,
                      int64_t cols, float* y) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  const auto tiles = [](int64_t size) { return CeilOfRatio(size, kTile); };
  return Launch(
      stream, TransposeKernel,
      dim3(static_cast<unsigned>(tiles(cols)),
           static_cast<unsigned>(std::min(tiles(rows), kMaxTileRows))),
      dim3(kTile, kLanes), x, rows, cols, y);
}

cudaError_t ShiftImages(cudaStream_t stream, const float* x,
                        const ImageShift& shift, int64_t images, float* y) {
  const int64_t size =
      images * shift.to_height * shift.to_width * shift.channels;
  const Divisor by_channels(shift.channels);
  const Divisor by_width(shift.to_width);
  const Divisor by_height(shift.to_height);
  return ForEach(stream, size, [=] __device__(int64_t i) {
    const auto pixel = by_channels.Divide(i);
    const auto row = by_width.Divide(pixel.quotient);
    const auto image = by_height.Divide(row.quotient);
    const int from_y = image.remainder + shift.down;
    const int from_x = row.remainder + shift.right;
    const bool inside = from_y >= 0 && from_y < shift.height && from_x >= 0 &&
                        from_x < shift.width;
    y[i] = inside ? x[((image.quotient * shift.height + from_y) * shift.width +
                       from_x) *
                          shift.channels +
                      pixel.remainder]
                  : 0.0f;
  });
}

}  // namespace kernels
}  // namespace holdfast
