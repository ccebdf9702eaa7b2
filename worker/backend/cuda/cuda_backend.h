// SPDX-License-Identifier: Apache-2.0

// The rest of the worker's access to GPUs. A build without a CUDA toolkit has
// these functions too; they return errors that say so (no_cuda.cc).
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/pinned_ranges.h"

namespace holdfast {

struct CudaBackendOptions {
  // CUDA's index of the GPU, from 0.
  int index = 0;
  // Matrix products round their factors to TensorFloat-32, with 10 bits of
  // mantissa, on GPUs that can (from compute capability 8.0 on): several times
  // as fast.
  bool tf32 = false;
  // For precisions other than float32, tensor cores multiply, several times as
  // fast again.
  Precision precision = Precision::kFloat32;
  // Uses cuDNN for convolutions in TF32, if it is found, for those that it does
  // with the same bits in every run and faster than we do. All others, and all
  // if false, are done by our own kernels.
  bool cudnn = true;
  // Like DeviceOptions::pinned.
  std::shared_ptr<PinnedRanges> pinned;
};

// Checks that there is a usable GPU with this index, by using it. Errors, each
// saying what is wrong: UNIMPLEMENTED in a build without CUDA;
// FAILED_PRECONDITION when there is no driver, or one that is too old, or no
// cuBLAS, or the GPU is too old or does not compute; NOT_FOUND when there is no
// such GPU.
absl::Status CheckCudaDevice(int index);

// The GPU's PCI bus ID, such as "0000:65:00.0", by which NVIDIA's tools
// identify it. Empty if it is unknown.
std::string CudaBusId(int index);

// Creates a backend on that GPU. Errors: those of CheckCudaDevice;
// RESOURCE_EXHAUSTED when the GPU has no memory left; INTERNAL.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const CudaBackendOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
