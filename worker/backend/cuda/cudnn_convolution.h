// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_CUDNN_CONVOLUTION_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_CUDNN_CONVOLUTION_H_

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/cudnn.h"

namespace holdfast {

// Convolutions of float32 by cuDNN, which rounds factors to TensorFloat-32 on
// GPUs that can: those that it does with the same bits in every run and faster
// than a product of unfolded images. The others are left to the caller.
//
// cuDNN's heuristics propose algorithms for a convolution over a number of
// images, the fastest first, and the first deterministic one with a workspace
// of at most 256 MiB is taken. Nothing is timed: the choice follows from the
// shapes, the kind of GPU and cuDNN's version.
//
// Images are NHWC, as ours are. cuDNN expects a kernel as [filters, rows]
// (KRSC), the transpose of ours, which is made in the workspace. It pads an
// image by the same amount before and after; if the window's padding differs,
// the images are copied, padded, into the workspace, where they may take
// another 768 MiB.
//
// Thread-compatible.
class CudnnConvolution {
 public:
  // For the GPU that the thread is bound to. `cudnn` and `stream`, on which
  // everything is enqueued, must outlive this.
  // Errors: those of CudnnStatus.
  static absl::StatusOr<std::unique_ptr<CudnnConvolution>> Create(
      const Cudnn* cudnn, cudaStream_t stream);
  ~CudnnConvolution();

  CudnnConvolution(const CudnnConvolution&) = delete;
  CudnnConvolution& operator=(const CudnnConvolution&) = delete;

  // The workspace, in values, that the operations below need for `images`
  // images; 0 if none of them is done here.
  int64_t Workspace(const Convolution& convolution, int64_t images);

  // The operations of DeviceMath. They return false if the operation is not
  // done here; nothing that was enqueued then matters. This is so if cuDNN has
  // no such algorithm, or refuses to begin it, which is logged once; if a group
  // has few channels, which cuDNN does more slowly; if a window sees one pixel,
  // which cuBLAS multiplies as it is; and if a matrix is not aligned to 16
  // bytes, on which cuDNN's kernels rely (a matrix at the start of a
  // DeviceBuffer is aligned). Errors: INTERNAL when an operation could not be
  // enqueued.
  absl::StatusOr<bool> Convolve(const Convolution& convolution, ConstMatrix x,
                                ConstMatrix kernel, Matrix y, float* workspace);
  absl::StatusOr<bool> KernelGradient(const Convolution& convolution,
                                      ConstMatrix x, ConstMatrix dy,
                                      Matrix kernel_gradient, float* workspace);
  absl::StatusOr<bool> InputGradient(const Convolution& convolution,
                                     ConstMatrix kernel, ConstMatrix dy,
                                     Matrix dx, float* workspace);

 private:
  enum class Direction { kForward, kKernelGradient, kInputGradient };
  // All numbers of a convolution, the number of images and the direction.
  using Key = std::array<int64_t, 15>;

  // What cuDNN needs for one operation.
  struct Plan {
    explicit Plan(const Cudnn* cudnn) : cudnn(cudnn) {}
    ~Plan();
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;

    const Cudnn* const cudnn;
    Cudnn::Descriptor x = nullptr;
    Cudnn::Descriptor kernel = nullptr;
    Cudnn::Descriptor convolution = nullptr;
    Cudnn::Descriptor y = nullptr;
    // Whether cuDNN does the operation.
    bool usable = false;
    int algorithm = 0;
    // Whether x, or dx, is a padded copy in the workspace, of this size.
    bool padded = false;
    int64_t padded_height = 0;
    int64_t padded_width = 0;
    // The workspace, in values: the transposed kernel, the padded images, and
    // cuDNN's own, each aligned to 256 bytes.
    int64_t kernel_size = 0;
    int64_t images_size = 0;
    size_t algorithm_bytes = 0;

    int64_t workspace() const;
  };

  CudnnConvolution(const Cudnn* cudnn, cudaStream_t stream)
      : cudnn_(cudnn), stream_(stream) {}

  // For the log.
  static std::string Name(Direction direction, const Convolution& convolution,
                          int64_t images);
  const Cudnn::Operation& OperationOf(Direction direction) const;
  // Makes the plan when it is first asked for.
  Plan& PlanOf(Direction direction, const Convolution& convolution,
               int64_t images);
  // Returns OK if the plan is usable. Errors: why it is not; UNIMPLEMENTED if
  // cuDNN has no algorithm that we can use.
  absl::Status MakePlan(Direction direction, const Convolution& convolution,
                        int64_t images, Plan* plan);
  absl::Status ChooseFor(Direction direction, Plan* plan);

  // Descriptors in the order of the arguments of OperationOf(direction).
  std::array<Cudnn::Descriptor, 3> Descriptors(Direction direction,
                                               const Plan& plan) const;
  // Enqueues OperationOf(direction) on a, b and c. Returns false if cuDNN
  // refuses after all; the plan is then no longer usable.
  absl::StatusOr<bool> Compute(Direction direction,
                               const Convolution& convolution, int64_t images,
                               const float* a, const float* b, float* c,
                               float* workspace, Plan* plan);
  absl::Status Transpose(const float* x, int64_t rows, int64_t cols, float* y);
  absl::Status PadImages(const Window& window, const Plan& plan, int64_t images,
                         const float* x, float* padded);

  const Cudnn* const cudnn_;
  const cudaStream_t stream_;
  Cudnn::Handle handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDNN_CONVOLUTION_H_
