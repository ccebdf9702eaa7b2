// SPDX-License-Identifier: Apache-2.0

// All that the rest of the worker uses of the code for GPUs. A build without a
// CUDA toolkit has these functions too; they then return errors that say so
// (no_cuda.cc).
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
  // Whether matrix products round their factors to TensorFloat-32, with 10 bits
  // of mantissa, on GPUs that can (from compute capability 8.0 on). They are
  // then several times as fast.
  bool tf32 = false;
  // The precision of the factors of products. With any other than float32,
  // tensor cores multiply, several times as fast as with TensorFloat-32.
  Precision precision = Precision::kFloat32;
  // Like DeviceOptions::activations.
  bool activations = false;
  // Whether to use cuDNN, if it is found, for those convolutions in TF32 that
  // it does with the same bits in every run and faster than we do. All other
  // convolutions are done without cuDNN.
  bool cudnn = true;
  // Like DeviceOptions::pinned.
  std::shared_ptr<PinnedRanges> pinned;
};

// Checks that there is a usable GPU with this index, by computing on it.
// Errors, each saying what is wrong: UNIMPLEMENTED in a build without CUDA;
// FAILED_PRECONDITION when there is no driver or no cuBLAS, the driver or the
// GPU is too old, or the GPU does not compute; NOT_FOUND when there is no such
// GPU.
absl::Status CheckCudaDevice(int index);

// Returns the GPU's PCI bus ID, such as "0000:65:00.0", by which NVIDIA's tools
// identify it. Empty if it is unknown.
std::string CudaBusId(int index);

// Creates a backend on the GPU with `options.index`. Errors: those of
// CheckCudaDevice; RESOURCE_EXHAUSTED when the GPU has no memory left;
// INTERNAL.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const CudaBackendOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
