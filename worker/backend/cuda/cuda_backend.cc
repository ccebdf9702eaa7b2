// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"
#include "worker/backend/cuda/cublas.h"
#include "worker/backend/cuda/cuda_device_math.h"
#include "worker/backend/cuda/cuda_device_runtime.h"
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/cudnn.h"
#include "worker/backend/proof.h"
#include "worker/backend/stream/stream_backend.h"

namespace holdfast {
namespace {

// Turing: the oldest architecture that the compiler generates code for.
constexpr int kOldestMajor = 7;
constexpr int kOldestMinor = 5;

// Ampere: the oldest architecture that multiplies in TF32.
constexpr int kTf32Major = 8;

struct Gpu {
  std::string name;
  int major = 0;
  int minor = 0;
};

absl::StatusOr<Gpu> FindGpu(int index) {
  int count = 0;
  HOLDFAST_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceCount(&count), "looking for GPUs"));
  if (index < 0 || index >= count) {
    return absl::NotFoundError(
        absl::StrCat("there is no GPU ", index, ": this machine has ", count,
                     count == 1 ? " GPU" : " GPUs", ", counted from 0"));
  }
  cudaDeviceProp properties;
  HOLDFAST_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, index),
                 "reading the GPU's properties"));
  Gpu gpu = {properties.name, properties.major, properties.minor};
  if (std::make_pair(gpu.major, gpu.minor) <
      std::make_pair(kOldestMajor, kOldestMinor)) {
    return absl::FailedPreconditionError(absl::StrCat(
        gpu.name, " has compute capability ", gpu.major, ".", gpu.minor,
        "; this program needs ", kOldestMajor, ".", kOldestMinor, " or later"));
  }
  return gpu;
}

// Returns null if cuDNN is not used for convolutions. If cuDNN is not found,
// the first call logs why.
const Cudnn* FindCudnn(const CudaBackendOptions& options, const Gpu& gpu) {
  if (!options.cudnn || !options.tf32 || gpu.major < kTf32Major ||
      options.precision != Precision::kFloat32) {
    return nullptr;
  }
  const absl::StatusOr<const Cudnn*> cudnn = LoadCudnn();
  if (cudnn.ok()) return *cudnn;
  LOG_FIRST_N(INFO, 1) << "convolutions by im2col: no cuDNN found: "
                       << cudnn.status().message();
  return nullptr;
}

}  // namespace

absl::Status CheckCudaDevice(int index) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto gpu, FindGpu(index));
  HOLDFAST_RETURN_IF_ERROR(LoadCublas().status());
  const absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCudaBackend({.index = index});
  const absl::Status works =
      backend.ok() ? ProveBackend(backend->get()) : backend.status();
  if (works.ok()) return works;
  return absl::FailedPreconditionError(absl::StrCat(
      gpu.name, " was found, but does not compute: ", works.message()));
}

std::string CudaBusId(int index) {
  char id[16] = "";
  if (cudaDeviceGetPCIBusId(id, sizeof(id), index) != cudaSuccess) return "";
  return id;
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const CudaBackendOptions& options) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto gpu, FindGpu(options.index));
  HOLDFAST_ASSIGN_OR_RETURN(auto runtime,
                            CudaDeviceRuntime::Create(options.index));
  const Cudnn* const cudnn = FindCudnn(options, gpu);
  absl::StatusOr<std::unique_ptr<CudaDeviceMath>> math =
      CudaDeviceMath::Create(runtime->stream(StreamId::kCompute), gpu.major,
                             {.tf32 = options.tf32,
                              .precision = options.precision,
                              .activations = options.activations,
                              .cudnn = cudnn});
  if (!math.ok()) return math.status();
  StreamBackend::Options stream_options;
  stream_options.name = absl::StrCat("cuda:", options.index);
  stream_options.description.core =
      absl::StrCat(gpu.name, ", compute capability ", gpu.major, ".", gpu.minor,
                   options.tf32 ? ", TF32" : "",
                   (*math)->has_cudnn() ? ", cuDNN " + cudnn->Version() : "");
  stream_options.pinned = options.pinned;
  return std::make_unique<StreamBackend>(std::move(runtime), *std::move(math),
                                         std::move(stream_options));
}

}  // namespace holdfast
