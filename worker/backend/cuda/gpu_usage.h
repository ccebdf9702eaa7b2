// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_GPU_USAGE_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_GPU_USAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace holdfast {

// The usage of a GPU by all processes together.
struct GpuUsage {
  uint64_t memory_used_bytes = 0;
  uint64_t memory_total_bytes = 0;
  // The fraction of the recent past (up to a second) in which a kernel ran, 0
  // to 1.
  double utilization = 0;
};

// Reads the usage of GPUs from NVIDIA's management library (NVML), which comes
// with the driver and is loaded when the monitor is created. Neither CUDA nor
// its headers are needed.
//
// Thread-compatible.
class GpuMonitor {
 public:
  // Watches the GPUs with these PCI bus IDs, such as "0000:65:00.0". `library`
  // is NVML's file.
  explicit GpuMonitor(const std::vector<std::string>& bus_ids,
                      const std::string& library = "libnvidia-ml.so.1");
  ~GpuMonitor();

  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Returns the usage of each GPU, in the order of the bus IDs; nullopt for a
  // GPU that does not answer, and for all if there is no NVML. May take a few
  // milliseconds.
  std::vector<std::optional<GpuUsage>> Read() const;

 private:
  struct Nvml;

  void* library_ = nullptr;
  Nvml* nvml_ = nullptr;
  // NVML's handles of the GPUs; null for a GPU that NVML does not know.
  std::vector<void*> devices_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_GPU_USAGE_H_
