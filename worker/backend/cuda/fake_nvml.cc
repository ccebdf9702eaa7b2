// SPDX-License-Identifier: Apache-2.0

// A fake management library with two GPUs, the second of which does not report
// its utilization: for gpu_usage_test.cc.
#include <cstring>

namespace {

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct Utilization {
  unsigned int gpu;
  unsigned int memory;
};
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
int first, second;

}  // namespace

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (std::strcmp(bus_id, "0000:01:00.0") == 0) {
    *device = &first;
  } else if (std::strcmp(bus_id, "0000:02:00.0") == 0) {
    *device = &second;
  } else {
    return kNotFound;
  }
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {80000, 50000, 30000};
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(void* device, Utilization* utilization) {
  if (device == &second) return kNotSupported;
  *utilization = {75, 10};
  return kSuccess;
}

}  // extern "C"
