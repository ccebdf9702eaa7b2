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
// GPUs that can. Only those are done that cuDNN does with the same bits in
// every run, and faster than a product of unfolded images; the others are left
// to the caller.
//
// For a convolution over a given number of images, cuDNN's heuristics propose
// algorithms, the fastest first. The first proposal that is deterministic and
// needs a workspace of at most 256 MiB is taken. Nothing is timed, so the
// choice follows from the shapes, the kind of GPU and cuDNN's version.
//
// Images are in the order NHWC, which cuDNN takes as it is. Kernels are
// transposed into the workspace, because cuDNN expects [filters, rows] (KRSC).
// cuDNN pads an image by the same amount before and after. If the window's
// padding differs, the images are padded and copied into the workspace, where
// they may take another 768 MiB.
//
// Thread-compatible.
class CudnnConvolution {
 public:
  // Creates an object for the GPU that the thread is bound to. `cudnn` and
  // `stream`, on which everything is enqueued, must outlive the object.
  // Errors: those of CudnnStatus.
  static absl::StatusOr<std::unique_ptr<CudnnConvolution>> Create(
      const Cudnn* cudnn, cudaStream_t stream);
  ~CudnnConvolution();

  CudnnConvolution(const CudnnConvolution&) = delete;
  CudnnConvolution& operator=(const CudnnConvolution&) = delete;

  // Returns the workspace, in float32 values, that the operations below need
  // for `images` images; 0 if none of them is done here.
  int64_t Workspace(const Convolution& convolution, int64_t images);

  // The operations of DeviceMath. They return false if the operation is not
  // done here; its result is then undefined, and the caller must compute it.
  // This is so if cuDNN has no such algorithm, or refuses to begin it, which is
  // logged once; if a group has few channels, because cuDNN is then slower; if
  // a window sees one pixel, because cuBLAS can then multiply the images as
  // they are; and if a matrix is not aligned to 16 bytes, on which cuDNN's
  // kernels rely (a matrix at the start of a DeviceBuffer is aligned). Errors:
  // INTERNAL when an operation could not be enqueued.
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
  // Identifies a plan: all numbers of the convolution, the number of images,
  // and the direction.
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
    // Whether x, or dx, is a padded copy in the workspace, and the size of its
    // images.
    bool padded = false;
    int64_t padded_height = 0;
    int64_t padded_width = 0;
    // The parts of the workspace, each aligned to 256 bytes: the transposed
    // kernel and the padded images, in float32 values, and cuDNN's own
    // workspace, in bytes.
    int64_t kernel_size = 0;
    int64_t images_size = 0;
    size_t algorithm_bytes = 0;

    int64_t workspace() const;
  };

  CudnnConvolution(const Cudnn* cudnn, cudaStream_t stream)
      : cudnn_(cudnn), stream_(stream) {}

  // Returns a description of the operation for the log.
  static std::string Name(Direction direction, const Convolution& convolution,
                          int64_t images);
  const Cudnn::Operation& OperationOf(Direction direction) const;
  // Returns the plan for an operation, which is made when it is first asked
  // for.
  Plan& PlanOf(Direction direction, const Convolution& convolution,
               int64_t images);
  // Makes a plan, and returns OK if it is usable. Errors: why it is not;
  // UNIMPLEMENTED if cuDNN has no algorithm that we can use.
  absl::Status MakePlan(Direction direction, const Convolution& convolution,
                        int64_t images, Plan* plan);
  absl::Status ChooseFor(Direction direction, Plan* plan);

  // Returns the plan's descriptors in the order of the arguments of
  // OperationOf(direction).
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
