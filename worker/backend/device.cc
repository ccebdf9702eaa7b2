// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/device.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace holdfast {

namespace {

// A batch is not usefully divided among more.
constexpr size_t kMaxReplicas = 64;

absl::Status NoDevice(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--device=", text, ": ", why));
}

// Parses "cpu,cpu" or "cuda:0,1".
absl::StatusOr<std::vector<Place>> ParsePlaces(absl::string_view text) {
  absl::string_view list = text;
  const bool on_gpus = absl::ConsumePrefix(&list, "cuda:");
  std::vector<Place> places;
  for (const absl::string_view item : absl::StrSplit(list, ',')) {
    int index = 0;
    if (!on_gpus && item == "cpu") {
      places.push_back(std::nullopt);
    } else if (!on_gpus) {
      return NoDevice(text,
                      "it must be auto, cpu, cuda:0, cuda:0,1 or the like");
    } else if (!absl::SimpleAtoi(item, &index) || index < 0) {
      return NoDevice(
          text,
          "\"cuda:\" must be followed by numbers from 0 on, separated "
          "by commas");
    } else {
      places.push_back(index);
    }
  }
  if (places.size() > kMaxReplicas) {
    return NoDevice(
        text, absl::StrCat("at most ", kMaxReplicas, " replicas are possible"));
  }
  return places;
}

}  // namespace

absl::StatusOr<Device> ChooseDevice(
    absl::string_view text, absl::FunctionRef<absl::Status(int)> check_gpu) {
  if (text == "auto") {
    const absl::Status first = check_gpu(0);
    if (first.ok()) {
      return Device{{0}, "computing on cuda:0, the first GPU", false};
    }
    // Users of a build without CUDA do not expect a GPU to be used.
    return Device{{std::nullopt},
                  absl::StrCat("computing on the CPU: ", first.message()),
                  !absl::IsUnimplemented(first)};
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto places, ParsePlaces(text));
  for (const Place& place : places) {
    if (!place.has_value()) continue;
    const absl::Status usable = check_gpu(*place);
    if (!usable.ok()) {
      return absl::Status(
          usable.code(), absl::StrCat("--device=", text, ": ", usable.message(),
                                      "; use cpu, or auto, the default"));
    }
  }
  return Device{std::move(places), "", false};
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const Place& place, const DeviceOptions& options) {
  if (place.has_value()) {
    return CreateCudaBackend({.index = *place,
                              .tf32 = options.tf32,
                              .precision = options.precision,
                              .activations = options.activations,
                              .pinned = options.pinned});
  }
  absl::StatusOr<std::unique_ptr<CpuBackend>> cpu =
      CpuBackend::Create({.threads = options.threads,
                          .precision = options.precision,
                          .activations = options.activations});
  if (!cpu.ok()) return cpu.status();
  return *std::move(cpu);
}

}  // namespace holdfast
