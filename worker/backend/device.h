// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_DEVICE_H_
#define HOLDFAST_WORKER_BACKEND_DEVICE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/backend/backend.h"
#include "worker/backend/pinned_ranges.h"

namespace holdfast {

// CUDA's index of a GPU. Absent: the CPU.
using Place = std::optional<int>;

// What a model is computed on.
struct Device {
  // The place of each replica of the model. Either all are GPUs, or all are the
  // CPU.
  std::vector<Place> places = {std::nullopt};
  // For the log: why this device was chosen. Empty if it was asked for by name.
  std::string why;
  // Whether the device is worse than users may expect, so that `why` is logged
  // as a warning.
  bool second_choice = false;
};

// Returns the device that `text` names:
//
//   cpu          the CPU
//   cuda:N       the GPU with CUDA's index N, from 0
//   cuda:N,M     GPUs, each for a replica of the model; a GPU may be named
//                twice, and "cpu,cpu" is two replicas on the CPU
//   auto         the first GPU, or the CPU if that GPU cannot be used
//
// check_gpu(N) returns OK if GPU N can be used (CheckCudaDevice).
// Errors: INVALID_ARGUMENT when `text` is none of these; for cuda:N, those of
// `check_gpu`, with `text` added.
absl::StatusOr<Device> ChooseDevice(
    absl::string_view text, absl::FunctionRef<absl::Status(int)> check_gpu);

struct DeviceOptions {
  // On the CPU: the number of threads that compute one operation.
  int threads = 1;
  // On a GPU: whether matrix products round their factors to TensorFloat-32
  // (CudaBackendOptions).
  bool tf32 = false;
  Precision precision = Precision::kFloat32;
  // Whether activations between products and batch norms are rounded, too
  // (Backend::ReserveRounded). No effect if `precision` is float32.
  bool activations = false;
  // On a GPU: the ranges of pinned memory, which all backends of a process may
  // share. Null: this backend has its own.
  std::shared_ptr<PinnedRanges> pinned;
};

// Creates a backend at `place`. Errors: those of CpuBackend::Create and
// CreateCudaBackend.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const Place& place, const DeviceOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_DEVICE_H_
