// SPDX-License-Identifier: Apache-2.0

// Convolutions in which each channel is a group of its own (IsDepthwise),
// computed without unfolding the images. The arguments are those of Backend's
// convolutions.
//
// Each value of a result is a sum in float32 over the positions of the window,
// or over its pixels, in their order, except that the gradient of a kernel is
// summed over parts of the images, whose sums are added in double. The parts
// follow from the shapes, so the bits do not depend on the number of threads.
//
// Thread-compatible.
#ifndef HOLDFAST_WORKER_BACKEND_CPU_DEPTHWISE_H_
#define HOLDFAST_WORKER_BACKEND_CPU_DEPTHWISE_H_

#include <cstdint>

#include "common/base/simd.h"
#include "common/base/thread_pool.h"
#include "worker/backend/backend.h"

namespace holdfast {

class Depthwise {
 public:
  // Computes with the vector instructions of `simd`, on the threads of `pool`
  // or, if it is null, on the calling thread alone. The arguments must outlive
  // the object.
  Depthwise(const Convolution& convolution, Simd simd, ThreadPool* pool)
      : convolution_(convolution), simd_(simd), pool_(pool) {}

  // Returns the size of the memory, in float32 values, that each of the
  // functions below needs as `memory`, which must be aligned to 8 bytes.
  int64_t MemorySize(int64_t images) const;

  void Convolve(ConstMatrix x, ConstMatrix kernel, Matrix y,
                float* memory) const;
  void KernelGradient(ConstMatrix x, ConstMatrix dy, Matrix kernel_gradient,
                      float* memory) const;
  void InputGradient(ConstMatrix kernel, ConstMatrix dy, Matrix dx,
                     float* memory) const;

 private:
  class Lines;

  // The number of filters per channel.
  int64_t multiplier() const {
    return convolution_.filters / convolution_.window.channels;
  }
  int64_t threads() const { return pool_ == nullptr ? 1 : pool_->threads(); }
  // The memory of one thread, in values: see Lines.
  int64_t LinesSize() const;
  // The number of parts of the lines of `images` images whose sums make up the
  // gradient of a kernel.
  int64_t Parts(int64_t images) const;
  // Calls work(part, thread), on several threads, for each part below `parts`.
  template <typename Work>
  void ForEachPart(int64_t parts, const Work& work) const;

  const Convolution& convolution_;
  const Simd simd_;
  ThreadPool* const pool_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_DEPTHWISE_H_
