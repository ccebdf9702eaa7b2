// What moves a window over images. All gather: a thread makes one value of the
// result and reads what it is made of, so that no two write to the same place.
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.cuh"

namespace holdfast {
namespace kernels {
namespace {

// A value's place in images of [height, width, channels].
struct Place {
  int64_t image;
  int y, x, channel;
};

__device__ Place FindPlace(int64_t i, int height, int width, int channels) {
  const Quotient pixel = Divide(i, channels);
  const Quotient row = Divide(pixel.quotient, width);
  const Quotient image = Divide(row.quotient, height);
  return {image.quotient, image.remainder, row.remainder, pixel.remainder};
}

__device__ int64_t IndexOf(const Place& place, int height, int width,
                           int channels) {
  return ((place.image * height + place.y) * width + place.x) * channels +
         place.channel;
}

// A stretch [begin, end).
struct Range {
  int begin, end;
};

// What a window at place p sees along one axis of an image.
__device__ Range Seen(int p, int stride, int pad, int window, int size) {
  const int begin = p * stride - pad;
  return {max(begin, 0), min(begin + window, size)};
}

// The places of the window that see the pixel at y, along one axis.
__device__ Range SeenFrom(int y, int stride, int pad, int window, int places) {
  const int last = (y + pad) / stride;
  const int before = y + pad - window;
  const int first = before < 0 ? 0 : before / stride + 1;
  return {first, min(last + 1, places)};
}

__device__ Range RowsSeen(const WindowShape& window, int p) {
  return Seen(p, window.stride_height, window.pad_top, window.window_height,
              window.height);
}

__device__ Range ColumnsSeen(const WindowShape& window, int q) {
  return Seen(q, window.stride_width, window.pad_left, window.window_width,
              window.width);
}

__device__ Range RowsThatSee(const WindowShape& window, int y) {
  return SeenFrom(y, window.stride_height, window.pad_top, window.window_height,
                  window.output_height);
}

__device__ Range ColumnsThatSee(const WindowShape& window, int x) {
  return SeenFrom(x, window.stride_width, window.pad_left, window.window_width,
                  window.output_width);
}

int64_t InputSize(const WindowShape& window) {
  return int64_t{window.height} * window.width * window.channels;
}

int64_t OutputSize(const WindowShape& window) {
  return int64_t{window.output_height} * window.output_width * window.channels;
}

}  // namespace

cudaError_t ImagesToColumns(cudaStream_t stream, const float* x,
                            const WindowShape& window, int groups,
                            int64_t images, float* columns) {
  const int group_channels = window.channels / groups;
  const int group_cols =
      window.window_height * window.window_width * group_channels;
  const int cols = groups * group_cols;
  const int64_t rows = images * window.output_height * window.output_width;
  return ForEach(stream, rows * cols, [=] __device__(int64_t i) {
    const Quotient row = Divide(i, cols);
    const Quotient image_row = Divide(row.quotient, window.output_width);
    const Quotient image = Divide(image_row.quotient, window.output_height);
    const int group = row.remainder / group_cols;
    const int in_group = row.remainder - group * group_cols;
    const int tap = in_group / group_channels;
    const int v = tap / window.window_width;
    const int u = tap - v * window.window_width;
    const Place place = {
        image.quotient,
        image.remainder * window.stride_height - window.pad_top + v,
        image_row.remainder * window.stride_width - window.pad_left + u,
        group * group_channels + in_group - tap * group_channels};
    const bool inside = place.y >= 0 && place.y < window.height &&
                        place.x >= 0 && place.x < window.width;
    columns[i] =
        inside ? x[IndexOf(place, window.height, window.width, window.channels)]
               : 0.0f;
  });
}

cudaError_t ColumnsToImages(cudaStream_t stream, const float* columns,
                            const WindowShape& window, int groups,
                            int64_t images, float* dx) {
  const int group_channels = window.channels / groups;
  const int group_cols =
      window.window_height * window.window_width * group_channels;
  const int64_t cols = int64_t{groups} * group_cols;
  return ForEach(stream, images * InputSize(window), [=] __device__(int64_t i) {
    const Place to = FindPlace(i, window.height, window.width, window.channels);
    const int group = to.channel / group_channels;
    const int first_col =
        group * group_cols + to.channel - group * group_channels;
    const Range rows = RowsThatSee(window, to.y);
    const Range places = ColumnsThatSee(window, to.x);
    float sum = 0;
    for (int p = rows.begin; p < rows.end; ++p) {
      const int v = to.y + window.pad_top - p * window.stride_height;
      for (int q = places.begin; q < places.end; ++q) {
        const int u = to.x + window.pad_left - q * window.stride_width;
        const int64_t row =
            (to.image * window.output_height + p) * window.output_width + q;
        const int tap = v * window.window_width + u;
        sum += columns[row * cols + first_col + tap * group_channels];
      }
    }
    dx[i] = sum;
  });
}

cudaError_t MaxPool(cudaStream_t stream, const float* x,
                    const WindowShape& window, int64_t images, float* y) {
  return ForEach(
      stream, images * OutputSize(window), [=] __device__(int64_t i) {
        const Place out = FindPlace(i, window.output_height,
                                    window.output_width, window.channels);
        const Range rows = RowsSeen(window, out.y);
        const Range cols = ColumnsSeen(window, out.x);
        float greatest = -INFINITY;
        for (int h = rows.begin; h < rows.end; ++h) {
          for (int w = cols.begin; w < cols.end; ++w) {
            const float value =
                x[IndexOf({out.image, h, w, out.channel}, window.height,
                          window.width, window.channels)];
            // Not a number is greater than all, and stays.
            if (value > greatest || isnan(value)) greatest = value;
            if (isnan(greatest)) break;
          }
          if (isnan(greatest)) break;
        }
        y[i] = greatest;
      });
}

cudaError_t MaxPoolGradient(cudaStream_t stream, const float* x, const float* y,
                            const float* dy, const WindowShape& window,
                            int64_t images, float* dx) {
  return ForEach(stream, images * InputSize(window), [=] __device__(int64_t i) {
    const Place at = FindPlace(i, window.height, window.width, window.channels);
    const float own = x[i];
    const Range rows = RowsThatSee(window, at.y);
    const Range cols = ColumnsThatSee(window, at.x);
    float sum = 0;
    for (int p = rows.begin; p < rows.end; ++p) {
      for (int q = cols.begin; q < cols.end; ++q) {
        const int64_t out =
            IndexOf({at.image, p, q, at.channel}, window.output_height,
                    window.output_width, window.channels);
        const float greatest = y[out];
        const bool is_nan = isnan(greatest);
        if (is_nan ? !isnan(own) : own != greatest) continue;
        // The first of those in the window gets it.
        const Range rows_seen = RowsSeen(window, p);
        const Range cols_seen = ColumnsSeen(window, q);
        bool first = true;
        for (int h = rows_seen.begin; h <= at.y && first; ++h) {
          const int end = h < at.y ? cols_seen.end : at.x;
          for (int w = cols_seen.begin; w < end && first; ++w) {
            const float other =
                x[IndexOf({at.image, h, w, at.channel}, window.height,
                          window.width, window.channels)];
            first = is_nan ? !isnan(other) : other != greatest;
          }
        }
        if (first) sum += dy[out];
      }
    }
    dx[i] = sum;
  });
}

cudaError_t AveragePool(cudaStream_t stream, const float* x,
                        const WindowShape& window, int64_t images, float* y) {
  return ForEach(
      stream, images * OutputSize(window), [=] __device__(int64_t i) {
        const Place out = FindPlace(i, window.output_height,
                                    window.output_width, window.channels);
        const Range rows = RowsSeen(window, out.y);
        const Range cols = ColumnsSeen(window, out.x);
        float sum = 0;
        for (int h = rows.begin; h < rows.end; ++h) {
          for (int w = cols.begin; w < cols.end; ++w) {
            sum += x[IndexOf({out.image, h, w, out.channel}, window.height,
                             window.width, window.channels)];
          }
        }
        y[i] = sum / static_cast<float>((rows.end - rows.begin) *
                                        (cols.end - cols.begin));
      });
}

cudaError_t AveragePoolGradient(cudaStream_t stream, const float* dy,
                                const WindowShape& window, int64_t images,
                                float* dx) {
  return ForEach(stream, images * InputSize(window), [=] __device__(int64_t i) {
    const Place at = FindPlace(i, window.height, window.width, window.channels);
    const Range rows = RowsThatSee(window, at.y);
    const Range cols = ColumnsThatSee(window, at.x);
    float sum = 0;
    for (int p = rows.begin; p < rows.end; ++p) {
      const Range rows_seen = RowsSeen(window, p);
      for (int q = cols.begin; q < cols.end; ++q) {
        const Range cols_seen = ColumnsSeen(window, q);
        const int count = (rows_seen.end - rows_seen.begin) *
                          (cols_seen.end - cols_seen.begin);
        sum += dy[IndexOf({at.image, p, q, at.channel}, window.output_height,
                          window.output_width, window.channels)] /
               static_cast<float>(count);
      }
    }
    dx[i] = sum;
  });
}

}  // namespace kernels
}  // namespace holdfast
