// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "tests/gpu/delayed_runtime.h"
#include "tests/gpu/device_under_test.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_math.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceUnderTest(
    const ProductOptions& products) {
  // One CPU backend for each kind of rounding, shared by all stand-ins.
  static std::map<std::pair<Precision, bool>, std::unique_ptr<Backend>> cpus;
  std::unique_ptr<Backend>& cpu =
      cpus[{products.precision, products.activations}];
  if (cpu == nullptr) {
    cpu = *CpuBackend::Create(
        {.precision = products.precision, .activations = products.activations});
  }
  static const auto* const machine =
      new std::shared_ptr<HostRuntime::Machine>(new HostRuntime::Machine);
  auto runtime = std::make_unique<HostRuntime>(
      HostRuntime::Options{.seed = 1, .machine = *machine});
  auto math = std::make_unique<HostMath>(runtime.get(), cpu.get());
  StreamBackend::Options options;
  options.name = "stand-in";
  options.description.core = "the host's stand-in";
  return std::make_unique<StreamBackend>(std::move(runtime), std::move(math),
                                         std::move(options));
}

absl::StatusOr<std::unique_ptr<Backend>> MakeDelayedDeviceUnderTest(
    const DelayOptions& delays) {
  static CpuBackend* const cpu = CpuBackend::Create({})->release();
  auto runtime =
      std::make_unique<HostRuntime>(HostRuntime::Options{.seed = delays.seed});
  auto math = std::make_unique<HostMath>(runtime.get(), cpu);
  // The stand-in's clock counts items of work.
  const auto delay = [runtime = runtime.get()](StreamId stream,
                                               absl::Duration length) {
    constexpr absl::Duration kItem = absl::Microseconds(10);
    for (int64_t items = length / kItem; items > 0; --items) {
      runtime->Enqueue(stream, [] {});
    }
    return absl::OkStatus();
  };
  StreamBackend::Options options;
  options.name = "stand-in with delays";
  return std::make_unique<StreamBackend>(
      std::make_unique<DelayedRuntime>(std::move(runtime), delays, delay),
      std::move(math), std::move(options));
}

bool DeviceHasTheCpusBits() { return true; }

bool DeviceHasTwins() { return true; }

bool DeviceIsSlow() { return false; }

}  // namespace holdfast
