// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cpu/depthwise.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/types/span.h"
#include "worker/backend/cpu/vectors.h"
#include "worker/backend/cpu/window_range.h"

namespace holdfast {
namespace {

// A term of a sum at each position of a run: the product of a pixel and of a
// pixel of the kernel.
struct Tap {
  // The pixel that is seen at the first position of the run.
  const float* in;
  // The offset of the kernel's pixel, in values.
  int64_t at;
};

// Positions in a row at which the sums have the same taps. From one position to
// the next, the pixels that are read move by in_step values, and the pixel that
// is written by out_step values.
struct Run {
  int64_t count;
  int64_t in_step;
  int64_t out_step;
};

// Sets the pixels of kPositions positions to the sums over the taps of pixel
// times kernel, `channels` channels each. Several positions share the loads of
// the kernel.
template <typename L, int kPositions>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void SumTapsAt(
    const Tap* taps, int64_t num_taps, const float* kernel, int64_t channels,
    int64_t offset, const Run& run, float* out) {
  VisitColumns<L, 2>(channels, [&](auto range,
                                   int64_t c) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    using S = decltype(range);
    using V = typename S::Lanes;
    typename V::Vector sums[kPositions][S::kVectors] = {};
    for (int64_t t = 0; t < num_taps; ++t) {
      const float* const from = taps[t].in + offset + c;
      const float* const factors = kernel + taps[t].at + c;
      for (int k = 0; k < S::kVectors; ++k) {
        const typename V::Vector factor = At<V>(factors + k * V::kCount);
        for (int r = 0; r < kPositions; ++r) {
          sums[r][k] += At<V>(from + r * run.in_step + k * V::kCount) * factor;
        }
      }
    }
    for (int r = 0; r < kPositions; ++r) {
      for (int k = 0; k < S::kVectors; ++k) {
        At<V>(out + r * run.out_step + c + k * V::kCount) = sums[r][k];
      }
    }
  });
}

void SumTaps(Simd simd, const std::vector<Tap>& all, const float* kernel,
             int64_t channels, Run run, float* out) {
  const Tap* const taps = all.data();
  const int64_t num_taps = all.size();
  RunInVectors(simd, [=](auto lanes) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    using L = decltype(lanes);
    constexpr int kAtOnce = 4;
    int64_t j = 0;
    for (; j + kAtOnce <= run.count; j += kAtOnce) {
      SumTapsAt<L, kAtOnce>(taps, num_taps, kernel, channels, j * run.in_step,
                            run, out + j * run.out_step);
    }
    for (; j < run.count; ++j) {
      SumTapsAt<L, 1>(taps, num_taps, kernel, channels, j * run.in_step, run,
                      out + j * run.out_step);
    }
  });
}

// Adds the sums over the run's positions of tap times dy to `sums`, for kTaps
// taps.
template <typename L, int kTaps>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void SumPositionsOf(const Tap* taps,
                                                        const float* dy,
                                                        int64_t channels,
                                                        const Run& run,
                                                        double* sums) {
  VisitColumns<L, 1>(
      channels, [&](auto range, int64_t c) ABSL_ATTRIBUTE_ALWAYS_INLINE {
        using V = typename decltype(range)::Lanes;
        typename V::Vector own[kTaps] = {};
        for (int64_t j = 0; j < run.count; ++j) {
          const typename V::Vector gradient = At<V>(dy + j * run.out_step + c);
          for (int t = 0; t < kTaps; ++t) {
            own[t] += At<V>(taps[t].in + j * run.in_step + c) * gradient;
          }
        }
        for (int t = 0; t < kTaps; ++t) {
          float values[V::kCount];
          At<V>(values) = own[t];
          double* const to = sums + taps[t].at + c;
          for (int64_t l = 0; l < V::kCount; ++l) to[l] += double{values[l]};
        }
      });
}

void SumPositions(Simd simd, const std::vector<Tap>& all, const float* dy,
                  int64_t channels, Run whole, double* sums) {
  const Tap* const taps = all.data();
  const int64_t num_taps = all.size();
  RunInVectors(simd, [=](auto lanes) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    using L = decltype(lanes);
    // After so many positions a sum goes on in double. Their pixels are still
    // in the nearest cache when the next channels are read.
    constexpr int64_t kAtOnce = 32;
    for (int64_t j = 0; j < whole.count; j += kAtOnce) {
      Run run = whole;
      run.count = std::min(kAtOnce, whole.count - j);
      const float* const from = dy + j * run.out_step;
      // Nine taps are as many as the registers of AVX2 hold.
      Tap some[9];
      int64_t t = 0;
      const auto sum_next = [&](auto count) ABSL_ATTRIBUTE_ALWAYS_INLINE {
        constexpr int kTaps = decltype(count)::value;
        for (; t + kTaps <= num_taps; t += kTaps) {
          for (int k = 0; k < kTaps; ++k) {
            some[k] = {taps[t + k].in + j * run.in_step, taps[t + k].at};
          }
          SumPositionsOf<L, kTaps>(some, from, channels, run, sums);
        }
      };
      sum_next(std::integral_constant<int, 9>());
      sum_next(std::integral_constant<int, 3>());
      sum_next(std::integral_constant<int, 1>());
    }
  });
}

// to[i, c multiplier + m] = from[i, c], for i below `pixels`.
void Repeat(const float* from, int64_t pixels, int64_t channels,
            int64_t multiplier, float* to) {
  for (int64_t i = 0; i < pixels * channels; ++i) {
    for (int64_t m = 0; m < multiplier; ++m) to[m] = from[i];
    to += multiplier;
  }
}

// to[i] = sum over m of from[i, m].
void AddRepeated(const float* from, int64_t size, int64_t multiplier,
                 float* to) {
  for (int64_t i = 0; i < size; ++i) {
    float sum = 0;
    for (int64_t m = 0; m < multiplier; ++m) sum += from[i * multiplier + m];
    to[i] = sum;
  }
}

}  // namespace

// Computes lines, which are rows of positions, or of pixels in InputGradient;
// lines are numbered consecutively over all images. One thread uses it.
//
// If there are several filters per channel, channels are repeated, so that
// there is one channel for each filter: `memory` has the rows that the window
// sees, or one row of the gradient.
class Depthwise::Lines {
 public:
  Lines(const Convolution& convolution, Simd simd, float* memory)
      : window_(convolution.window),
        channels_(convolution.filters),
        multiplier_(channels_ / window_.channels),
        simd_(simd),
        memory_(memory),
        repeated_(window_.window_height, int64_t{-1}) {}

  void Convolve(const float* x, const float* kernel, int64_t line, float* y) {
    VisitRuns(x, line, [&](const Run& run, int64_t first) {
      SumTaps(simd_, taps_, kernel, channels_, run, y + first);
    });
  }

  // Adds to the sums [kernel_rows, filters].
  void AddKernelGradient(const float* x, const float* dy, int64_t line,
                         double* sums) {
    VisitRuns(x, line, [&](const Run& run, int64_t first) {
      SumPositions(simd_, taps_, dy + first, channels_, run, sums);
    });
  }

  void InputGradient(const float* kernel, const float* dy, int64_t line,
                     float* dx) {
    const int64_t image = line / window_.height;
    const int64_t row = line % window_.height;
    const int64_t row_size = window_.width * window_.channels;
    float* const to = multiplier_ == 1 ? dx + line * row_size : memory_;
    const float* const from = dy + image * window_.output_places() * channels_;
    const Places rows = SeenFrom(row, window_.stride_height, window_.pad_top,
                                 window_.window_height, window_.output_height);
    // Pixels that are a stride apart are seen in the same way, one position
    // apart.
    const int64_t step = window_.stride_width;
    for (int64_t phase = 0; phase < std::min(step, window_.width); ++phase) {
      for (int64_t w = phase; w < window_.width;) {
        const Places cols = ColumnsSeenFrom(w);
        Run run = {1, channels_, step * channels_};
        for (int64_t next = w + step; next < window_.width; next += step) {
          if (!ColumnsSeenFrom(next).IsLike(cols)) break;
          ++run.count;
        }
        taps_.clear();
        for (int64_t p = rows.begin; p < rows.begin + rows.size; ++p) {
          const int64_t v =
              rows.in_window - (p - rows.begin) * window_.stride_height;
          for (int64_t k = 0; k < cols.size; ++k) {
            const int64_t q = cols.begin + k;
            const int64_t u = cols.in_window - k * step;
            taps_.push_back({from + (p * window_.output_width + q) * channels_,
                             (v * window_.window_width + u) * channels_});
          }
        }
        SumTaps(simd_, taps_, kernel, channels_, run, to + w * channels_);
        w += run.count * step;
      }
    }
    if (multiplier_ > 1) {
      AddRepeated(memory_, row_size, multiplier_, dx + line * row_size);
    }
  }

 private:
  // The positions at which the window sees a pixel, along one dimension, and
  // the pixel's index in the window at the first of them.
  struct Places {
    int64_t begin;
    int64_t size;
    int64_t in_window;

    bool IsLike(const Places& other) const {
      return size == other.size && in_window == other.in_window;
    }
  };

  static Places SeenFrom(int64_t pixel, int64_t stride, int64_t pad,
                         int64_t window_size, int64_t places) {
    const int64_t at = pixel + pad;
    const int64_t begin =
        at < window_size ? 0 : (at - window_size) / stride + 1;
    const int64_t end = std::min(at / stride + 1, places);
    return {begin, std::max<int64_t>(end - begin, 0), at - begin * stride};
  }

  Places ColumnsSeenFrom(int64_t w) const {
    return SeenFrom(w, window_.stride_width, window_.pad_left,
                    window_.window_width, window_.output_width);
  }

  // Returns row h of an image, with repeated channels.
  const float* Row(const float* x, int64_t image, int64_t h) {
    const int64_t row = image * window_.height + h;
    const float* const from = x + row * window_.width * window_.channels;
    if (multiplier_ == 1) return from;
    const int64_t slot = h % window_.window_height;
    float* const to = memory_ + slot * window_.width * channels_;
    if (repeated_[slot] != row) {
      Repeat(from, window_.width, window_.channels, multiplier_, to);
      repeated_[slot] = row;
    }
    return to;
  }

  // Calls visit(run, first) for the runs of positions of a line, with taps_ set
  // for the run. `first` is the offset of its first position in y.
  template <typename Visitor>
  void VisitRuns(const float* x, int64_t line, Visitor visit) {
    const int64_t image = line / window_.output_height;
    const WindowRange rows = RowRange(window_, line % window_.output_height);
    for (int64_t q = 0; q < window_.output_width;) {
      const WindowRange cols = ColumnRange(window_, q);
      Run run = {1, window_.stride_width * channels_, channels_};
      for (int64_t next = q + 1; next < window_.output_width; ++next) {
        const WindowRange other = ColumnRange(window_, next);
        if (other.skipped != cols.skipped || other.size != cols.size) break;
        ++run.count;
      }
      taps_.clear();
      for (int64_t v = 0; v < rows.size; ++v) {
        const float* const row = Row(x, image, rows.begin + v);
        const int64_t in_window =
            (rows.skipped + v) * window_.window_width + cols.skipped;
        for (int64_t u = 0; u < cols.size; ++u) {
          taps_.push_back({row + (cols.begin + u) * channels_,
                           (in_window + u) * channels_});
        }
      }
      visit(run, (line * window_.output_width + q) * channels_);
      q += run.count;
    }
  }

  const Window& window_;
  // Those of the result: the number of filters.
  const int64_t channels_;
  const int64_t multiplier_;
  const Simd simd_;
  float* const memory_;
  // The row of x that each row of memory_ repeats, -1 if none.
  std::vector<int64_t> repeated_;
  std::vector<Tap> taps_;
};

int64_t Depthwise::LinesSize() const {
  if (multiplier() == 1) return 0;
  const Window& window = convolution_.window;
  return window.window_height * window.width * convolution_.filters;
}

int64_t Depthwise::Parts(int64_t images) const {
  // Enough for many threads. More parts need more memory.
  constexpr int64_t kMost = 32;
  // A part should take much longer than adding up its sums.
  constexpr int64_t kLeastValues = 1 << 16;
  const int64_t lines = images * convolution_.window.output_height;
  return std::clamp<int64_t>(images * convolution_.output_size() / kLeastValues,
                             1, std::max<int64_t>(std::min(kMost, lines), 1));
}

int64_t Depthwise::MemorySize(int64_t images) const {
  constexpr int64_t kPerDouble = sizeof(double) / sizeof(float);
  return threads() * LinesSize() + kPerDouble * Parts(images) *
                                       convolution_.kernel_rows() *
                                       convolution_.filters;
}

template <typename Work>
void Depthwise::ForEachPart(int64_t parts, const Work& work) const {
  if (pool_ == nullptr || parts == 1) {
    for (int64_t part = 0; part < parts; ++part) work(part, 0);
    return;
  }
  std::atomic<int64_t> next = 0;
  pool_->ParallelFor(threads(), [&](size_t thread) {
    for (int64_t part; (part = next.fetch_add(1)) < parts;) work(part, thread);
  });
}

namespace {

// The first of the lines of a part.
int64_t FirstLine(int64_t lines, int64_t parts, int64_t part) {
  return lines * part / parts;
}

}  // namespace

void Depthwise::Convolve(ConstMatrix x, ConstMatrix kernel, Matrix y,
                         float* memory) const {
  const int64_t lines = x.rows * convolution_.window.output_height;
  const int64_t parts = Parts(x.rows);
  ForEachPart(parts, [&](int64_t part, int64_t thread) {
    Lines made(convolution_, simd_, memory + thread * LinesSize());
    const int64_t end = FirstLine(lines, parts, part + 1);
    for (int64_t i = FirstLine(lines, parts, part); i < end; ++i) {
      made.Convolve(x.data, kernel.data, i, y.data);
    }
  });
}

void Depthwise::KernelGradient(ConstMatrix x, ConstMatrix dy,
                               Matrix kernel_gradient, float* memory) const {
  const int64_t lines = x.rows * convolution_.window.output_height;
  const int64_t parts = Parts(x.rows);
  const int64_t size = kernel_gradient.size();
  double* const sums = reinterpret_cast<double*>(memory);
  float* const for_lines = reinterpret_cast<float*>(sums + parts * size);
  ForEachPart(parts, [&](int64_t part, int64_t thread) {
    double* const own = sums + part * size;
    std::fill_n(own, size, 0.0);
    Lines made(convolution_, simd_, for_lines + thread * LinesSize());
    const int64_t end = FirstLine(lines, parts, part + 1);
    for (int64_t i = FirstLine(lines, parts, part); i < end; ++i) {
      made.AddKernelGradient(x.data, dy.data, i, own);
    }
  });
  for (int64_t i = 0; i < size; ++i) {
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += sums[part * size + i];
    kernel_gradient.data[i] = static_cast<float>(sum);
  }
}

void Depthwise::InputGradient(ConstMatrix kernel, ConstMatrix dy, Matrix dx,
                              float* memory) const {
  const int64_t lines = dx.rows * convolution_.window.height;
  const int64_t parts = Parts(dx.rows);
  ForEachPart(parts, [&](int64_t part, int64_t thread) {
    Lines made(convolution_, simd_, memory + thread * LinesSize());
    const int64_t end = FirstLine(lines, parts, part + 1);
    for (int64_t i = FirstLine(lines, parts, part); i < end; ++i) {
      made.InputGradient(kernel.data, dy.data, i, dx.data);
    }
  });
}

}  // namespace holdfast
