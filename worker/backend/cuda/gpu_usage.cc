// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/gpu_usage.h"

#include <dlfcn.h>

#include <memory>

namespace holdfast {

// The part of nvml.h that is used here. Its functions, structures and constants
// do not change: newer versions get new names.
struct GpuMonitor::Nvml {
  struct Memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
  };
  struct Utilization {
    unsigned int gpu;  // percent
    unsigned int memory;
  };
  static constexpr int kSuccess = 0;

  int (*init)();
  int (*shutdown)();
  int (*handle_by_bus_id)(const char* bus_id, void** device);
  int (*memory)(void* device, Memory* memory);
  int (*utilization)(void* device, Utilization* utilization);
};

namespace {

template <typename Function>
bool Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

GpuMonitor::GpuMonitor(const std::vector<std::string>& bus_ids,
                       const std::string& library)
    : devices_(bus_ids.size(), nullptr) {
  if (bus_ids.empty()) return;
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return;
  auto nvml = std::make_unique<Nvml>();
  if (!Find(library_, "nvmlInit_v2", &nvml->init) ||
      !Find(library_, "nvmlShutdown", &nvml->shutdown) ||
      !Find(library_, "nvmlDeviceGetHandleByPciBusId_v2",
            &nvml->handle_by_bus_id) ||
      !Find(library_, "nvmlDeviceGetMemoryInfo", &nvml->memory) ||
      !Find(library_, "nvmlDeviceGetUtilizationRates", &nvml->utilization) ||
      nvml->init() != Nvml::kSuccess) {
    return;
  }
  nvml_ = nvml.release();
  for (size_t i = 0; i < bus_ids.size(); ++i) {
    if (nvml_->handle_by_bus_id(bus_ids[i].c_str(), &devices_[i]) !=
        Nvml::kSuccess) {
      devices_[i] = nullptr;
    }
  }
}

GpuMonitor::~GpuMonitor() {
  if (nvml_ != nullptr) nvml_->shutdown();
  delete nvml_;
  if (library_ != nullptr) dlclose(library_);
}

std::vector<std::optional<GpuUsage>> GpuMonitor::Read() const {
  std::vector<std::optional<GpuUsage>> usage;
  for (void* device : devices_) {
    Nvml::Memory memory = {};
    Nvml::Utilization utilization = {};
    if (device == nullptr || nvml_->memory(device, &memory) != Nvml::kSuccess ||
        nvml_->utilization(device, &utilization) != Nvml::kSuccess) {
      usage.push_back(std::nullopt);
      continue;
    }
    usage.push_back(
        GpuUsage{memory.used, memory.total, utilization.gpu / 100.0});
  }
  return usage;
}

}  // namespace holdfast
