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

// A GPU, as CUDA counts them. Absent: the CPU.
using Place = std::optional<int>;

// What a model is computed on.
struct Device {
  // One for each replica of the model; all GPUs, or all the CPU.
  std::vector<Place> places = {std::nullopt};
  // For the log: why this one was taken. Empty: it was asked for by name.
  std::string why;
  // Whether that is less than somebody might expect.
  bool second_choice = false;
};

// The device that `text` names:
//
//   cpu          the CPU
//   cuda:N       the GPU that CUDA counts as N, from 0
//   cuda:N,M     GPUs, each for a replica of the model; the same may be there
//                twice, and "cpu,cpu" is two replicas on the CPU
//   auto         the first GPU, or the CPU where that cannot be used
//
// check_gpu(N) tells whether a GPU can be used (CheckCudaDevice).
// Errors: INVALID_ARGUMENT when `text` is none of these; with cuda:N, those of
// `check_gpu`, which name `text`.
absl::StatusOr<Device> ChooseDevice(
    absl::string_view text, absl::FunctionRef<absl::Status(int)> check_gpu);

struct DeviceOptions {
  // Of the CPU: threads within an operation.
  int threads = 1;
  // Of a GPU: matrix products in TensorFloat-32 (CudaBackendOptions).
  bool tf32 = false;
  Precision precision = Precision::kFloat32;
  // Of a GPU: what is pinned, as all backends of a process may share it. Null:
  // this backend's own.
  std::shared_ptr<PinnedRanges> pinned;
};

// A backend there. Errors: those of CpuBackend::Create and
// CreateCudaBackend.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const Place& place, const DeviceOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_DEVICE_H_
