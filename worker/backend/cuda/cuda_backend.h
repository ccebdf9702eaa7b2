// The way to GPUs for the rest of the worker. A build without a CUDA toolkit
// has it too, and says so: no_cuda.cc.
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
  // As CUDA counts GPUs, from 0.
  int index = 0;
  // Matrix products round their factors to TensorFloat-32, with 10 bits of
  // mantissa, on GPUs that can (from compute capability 8.0 on): several times
  // as fast.
  bool tf32 = false;
  // Other than float32: tensor cores multiply, several times as fast again.
  Precision precision = Precision::kFloat32;
  // Convolutions in TF32 by cuDNN, where it is found, does them with the same
  // bits in every run, and is faster; else, and with false, by our own way.
  bool cudnn = true;
  // As DeviceOptions::pinned.
  std::shared_ptr<PinnedRanges> pinned;
};

// Tests that there is a GPU with this index that we can use, by using it.
// Errors, all with what is wrong: UNIMPLEMENTED in a build without CUDA;
// FAILED_PRECONDITION when there is no driver, or one that is too old, or no
// cuBLAS, or the GPU is too old or does not compute; NOT_FOUND when there is no
// such GPU.
absl::Status CheckCudaDevice(int index);

// Where the GPU is on the PCI bus, as "0000:65:00.0", by which NVIDIA's tools
// know it. Empty where that cannot be told.
std::string CudaBusId(int index);

// A backend on that GPU. Errors: as CheckCudaDevice; RESOURCE_EXHAUSTED when
// the GPU has no memory left; INTERNAL.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const CudaBackendOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
