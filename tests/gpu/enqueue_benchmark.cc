// SPDX-License-Identifier: Apache-2.0

// Counts what a training step of the models of gpu_benchmark enqueues on a GPU,
// and measures the time that the host spends on it without the driver: all of
// Holdfast's code for GPUs runs, but the device does nothing, and the calls of
// CUDA and cuBLAS are replaced by functions that count them.
//
//   kernels   kernels of ours, products of cuBLAS (one each), and fills
//   copies    to and from the GPU
//   records   events recorded on a stream
//   waits     of one stream for an event of another
//   host us   the shortest time of a step; and this by the calls above

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/process/flags.h"
#include "tests/gpu/benchmark_models.h"
#include "tests/gpu/emulation.h"
#include "worker/backend/cuda/cublas.h"
#include "worker/backend/cuda/cuda_device_math.h"
#include "worker/backend/stream/stream_backend.h"

ABSL_FLAG(int, steps, 30, "Steps of each model and type.");

namespace holdfast {
namespace {

struct Counts {
  int64_t kernels = 0;
  int64_t copies = 0;
  int64_t records = 0;
  int64_t waits = 0;

  int64_t all() const { return kernels + copies + records + waits; }
};

Counts g_counts;

// A device that has done everything as soon as it is enqueued, and does
// nothing. Its memory takes no pages until the host writes to it.
class IdleRuntime final : public DeviceRuntime {
 public:
  ~IdleRuntime() override {
    while (!sizes_.empty()) Free(sizes_.begin()->first);
  }

  absl::Status BindThread() override { return absl::OkStatus(); }
  absl::StatusOr<Event> CreateEvent() override { return events_++; }
  absl::StatusOr<Event> CreateTimedEvent() override { return events_++; }
  absl::Status Record(Event, StreamId) override {
    ++g_counts.records;
    return absl::OkStatus();
  }
  absl::Status Wait(StreamId, Event) override {
    ++g_counts.waits;
    return absl::OkStatus();
  }
  PeerEvent ForPeers(Event) override { return {}; }
  absl::Status WaitForPeer(StreamId, const PeerEvent&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Query(Event) override { return true; }
  absl::Status Synchronize(Event) override { return absl::OkStatus(); }
  absl::StatusOr<absl::Duration> Elapsed(Event, Event) override {
    return absl::ZeroDuration();
  }
  absl::StatusOr<float*> Allocate(int64_t size) override {
    const size_t bytes = size * sizeof(float);
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      return absl::ResourceExhaustedError("no address space left");
    }
    sizes_[static_cast<float*>(memory)] = bytes;
    return static_cast<float*>(memory);
  }
  void Free(float* memory) override {
    munmap(memory, sizes_[memory]);
    sizes_.erase(memory);
  }
  Memory GetMemory() override { return {}; }
  absl::StatusOr<float*> AllocatePinned(int64_t size) override {
    return Allocate(size);
  }
  void FreePinned(float* memory) override { Free(memory); }
  absl::Status RegisterPinned(const void*, size_t) override {
    return absl::OkStatus();
  }
  void UnregisterPinned(const void*) override {}
  absl::Status CopyIn(const float*, int64_t, float*) override { return Copy(); }
  absl::Status CopyOut(const float*, int64_t, float*) override {
    return Copy();
  }
  absl::Status CopyFromPeer(int, const float*, int64_t, float*) override {
    return Copy();
  }
  absl::Status CopyFromPeerOverHost(const float*, int64_t, float*,
                                    float*) override {
    return Copy();
  }

 private:
  absl::Status Copy() {
    ++g_counts.copies;
    return absl::OkStatus();
  }

  Event events_ = 0;
  // The bytes of each allocation.
  std::map<float*, size_t> sizes_;
};

absl::Status Run() {
  EmulateOn([](const std::function<void()>&) { ++g_counts.kernels; });
  const auto models = BenchmarkModels();
  if (!models.ok()) return models.status();
  std::printf("%-9s %-9s %8s %8s %8s %8s %9s %9s\n", "model", "type", "kernels",
              "copies", "records", "waits", "host us", "us each");
  for (const BenchmarkModel& model : *models) {
    for (const auto& [type, precision] :
         {std::make_pair("float32", Precision::kFloat32),
          std::make_pair("bfloat16", Precision::kBfloat16)}) {
      auto math = CudaDeviceMath::Create(nullptr, 9, {.precision = precision});
      if (!math.ok()) return math.status();
      StreamBackend backend(std::make_unique<IdleRuntime>(), *std::move(math),
                            {.name = "idle"});
      const auto steps = BenchmarkSteps::Create(model, &backend);
      if (!steps.ok()) return steps.status();
      absl::Duration least = absl::InfiniteDuration();
      Counts counts;
      // The first steps allocate memory.
      for (int i = 0; i < absl::GetFlag(FLAGS_steps) + 2; ++i) {
        g_counts = {};
        const absl::Time begin = SteadyNow();
        const absl::Status status = (*steps)->Step(i);
        if (!status.ok()) return status;
        if (i < 2) continue;
        least = std::min(least, SteadyNow() - begin);
        counts = g_counts;
      }
      const double microseconds = absl::ToDoubleMicroseconds(least);
      std::printf(
          "%-9s %-9s %8d %8d %8d %8d %9.1f %9.3f\n", model.name.c_str(), type,
          static_cast<int>(counts.kernels), static_cast<int>(counts.copies),
          static_cast<int>(counts.records), static_cast<int>(counts.waits),
          microseconds, microseconds / static_cast<double>(counts.all()));
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

template <typename... Arguments>
cublasStatus_t Count(Arguments...) {
  ++g_counts.kernels;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename... Arguments>
cublasStatus_t Succeed(Arguments...) {
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

absl::StatusOr<const Cublas*> LoadCublas() {
  static const Cublas cublas = {
      .create = Succeed,
      .destroy = Succeed,
      .set_stream = Succeed,
      .set_workspace = Succeed,
      .set_math_mode = Succeed,
      .set_atomics_mode = Succeed,
      .sgemm_strided_batched = Count,
      .sgemm = Count,
      .gemm_strided_batched_ex = Count,
      .gemm_ex = Count,
      .get_status_string = [](cublasStatus_t) { return "an error"; }};
  return &cublas;
}

absl::Status CublasStatus(const Cublas&, cublasStatus_t status,
                          absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(what);
}

}  // namespace holdfast

int main(int argc, char** argv) {
  const auto line =
      holdfast::ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
  if (!line.ok() || !line->arguments.empty()) {
    std::fprintf(stderr, "%s\n",
                 line.ok() ? "enqueue_benchmark takes only flags"
                           : std::string(line.status().message()).c_str());
    return 2;
  }
  if (line->help) {
    std::printf("%s", holdfast::FlagsHelp({}).c_str());
    return 0;
  }
  const absl::Status status = holdfast::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "failed: %s\n", std::string(status.message()).c_str());
  return 1;
}
