// SPDX-License-Identifier: Apache-2.0

// Pooling of images. The inner loops are over channels, which are independent:
// they are vectorized without changing the order of addition.

#include <algorithm>
#include <cstdint>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/window_range.h"

namespace holdfast {
namespace {

// The part of an image that the window covers at one position.
struct Place {
  // Calls visit(offset) with the offset in the image of each pixel covered, in
  // the order of the image.
  template <typename Visitor>
  void Visit(Visitor visit) const {
    for (int64_t v = rows.begin; v < rows.begin + rows.size; ++v) {
      for (int64_t u = cols.begin; u < cols.begin + cols.size; ++u) {
        visit((v * window.width + u) * window.channels);
      }
    }
  }
  int64_t size() const { return rows.size * cols.size; }

  const Window& window;
  WindowRange rows;
  WindowRange cols;
};

// Calls visit(place, image, result) for each position of the window in each of
// `images`: `image` is the offset of the image, and `result` that of the
// position's channels in the result.
template <typename Visitor>
void VisitPlaces(const Window& window, int64_t images, Visitor visit) {
  int64_t result = 0;
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t p = 0; p < window.output_height; ++p) {
      for (int64_t q = 0; q < window.output_width; ++q) {
        visit(Place{window, RowRange(window, p), ColumnRange(window, q)},
              i * window.input_size(), result);
        result += window.channels;
      }
    }
  }
}

}  // namespace

void CpuBackend::MaxPool(const Window& window, ConstMatrix x, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  VisitPlaces(window, x.rows,
              [&](const Place& place, int64_t image, int64_t result) {
                float* const max = y.data + result;
                bool is_first = true;
                place.Visit([&](int64_t offset) {
                  const float* const value = x.data + image + offset;
                  if (is_first) {
                    std::copy_n(value, window.channels, max);
                    is_first = false;
                    return;
                  }
                  for (int64_t c = 0; c < window.channels; ++c) {
                    // No value is greater than a NaN, so a NaN stays.
                    const bool is_greater = value[c] > max[c];
                    const bool is_nan = value[c] != value[c];
                    max[c] = is_greater | is_nan ? value[c] : max[c];
                  }
                });
              });
}

void CpuBackend::MaxPoolGradient(const Window& window, ConstMatrix x,
                                 ConstMatrix y, ConstMatrix dy, Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  // The number of channels that are processed at a time.
  constexpr int64_t kBlock = 64;
  std::fill_n(dx.data, dx.size(), 0.0f);
  VisitPlaces(
      window, x.rows, [&](const Place& place, int64_t image, int64_t result) {
        for (int64_t begin = 0; begin < window.channels; begin += kBlock) {
          const int64_t size = std::min(kBlock, window.channels - begin);
          const float* const max = y.data + result + begin;
          // The gradients that have not been assigned to a pixel yet.
          float left[kBlock];
          std::copy_n(dy.data + result + begin, size, left);
          place.Visit([&](int64_t offset) {
            const float* const value = x.data + image + offset + begin;
            float* const gradient = dx.data + image + offset + begin;
            // Two loops, each of which GCC vectorises.
            int32_t is_it[kBlock];
            for (int64_t c = 0; c < size; ++c) {
              // A NaN counts as the greatest.
              is_it[c] = (value[c] == max[c]) | (value[c] != value[c]);
            }
            for (int64_t c = 0; c < size; ++c) {
              const float given = is_it[c] != 0 ? left[c] : 0.0f;
              left[c] = is_it[c] != 0 ? 0.0f : left[c];
              gradient[c] += given;
            }
          });
        }
      });
}

void CpuBackend::AveragePool(const Window& window, ConstMatrix x, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  VisitPlaces(window, x.rows,
              [&](const Place& place, int64_t image, int64_t result) {
                float* const mean = y.data + result;
                std::fill_n(mean, window.channels, 0.0f);
                place.Visit([&](int64_t offset) {
                  const float* const value = x.data + image + offset;
                  for (int64_t c = 0; c < window.channels; ++c)
                    mean[c] += value[c];
                });
                const float count = static_cast<float>(place.size());
                for (int64_t c = 0; c < window.channels; ++c) mean[c] /= count;
              });
}

void CpuBackend::AveragePoolGradient(const Window& window, ConstMatrix dy,
                                     Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  std::fill_n(dx.data, dx.size(), 0.0f);
  VisitPlaces(window, dx.rows,
              [&](const Place& place, int64_t image, int64_t result) {
                const float* const share = dy.data + result;
                const float count = static_cast<float>(place.size());
                place.Visit([&](int64_t offset) {
                  float* const gradient = dx.data + image + offset;
                  for (int64_t c = 0; c < window.channels; ++c) {
                    gradient[c] += share[c] / count;
                  }
                });
              });
}

}  // namespace holdfast
