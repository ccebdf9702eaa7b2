#include "worker/backend/device.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace holdfast {

absl::StatusOr<Device> ChooseDevice(
    absl::string_view text, absl::FunctionRef<absl::Status(int)> check_gpu) {
  if (text == "cpu") return Device{};
  if (text == "auto") {
    const absl::Status first = check_gpu(0);
    if (first.ok()) {
      return Device{0, "computing on cuda:0, the first GPU", false};
    }
    // Whoever builds without CUDA expects no GPU to be used.
    return Device{std::nullopt,
                  absl::StrCat("computing on the CPU: ", first.message()),
                  !absl::IsUnimplemented(first)};
  }
  absl::string_view number = text;
  int index = 0;
  if (!absl::ConsumePrefix(&number, "cuda:")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device=", text, ": there are auto, cpu, cuda:0, cuda:1 and so on"));
  }
  if (absl::StrContains(number, ",")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", text,
                     ": a worker computes on one GPU; start one for each"));
  }
  if (!absl::SimpleAtoi(number, &index) || index < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device=", text, ": behind \"cuda:\" stands a number from 0 on"));
  }
  const absl::Status usable = check_gpu(index);
  if (!usable.ok()) {
    return absl::Status(
        usable.code(), absl::StrCat("--device=", text, ": ", usable.message()));
  }
  return Device{index, "", false};
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const Device& device, const DeviceOptions& options) {
  if (device.gpu.has_value()) {
    return CreateCudaBackend({.index = *device.gpu, .tf32 = options.tf32});
  }
  absl::StatusOr<std::unique_ptr<CpuBackend>> cpu =
      CpuBackend::Create({.threads = options.threads});
  if (!cpu.ok()) return cpu.status();
  return *std::move(cpu);
}

}  // namespace holdfast
