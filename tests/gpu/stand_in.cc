#include <utility>

#include "tests/gpu/device_under_test.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_math.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceUnderTest(bool) {
  // Shared by all stand-ins, and without state of its own.
  static CpuBackend* const cpu = CpuBackend::Create({})->release();
  static const auto* const machine =
      new std::shared_ptr<HostRuntime::Machine>(new HostRuntime::Machine);
  auto runtime = std::make_unique<HostRuntime>(
      HostRuntime::Options{.seed = 1, .machine = *machine});
  auto math = std::make_unique<HostMath>(runtime.get(), cpu);
  StreamBackend::Options options;
  options.name = "stand-in";
  options.description.core = "the host's stand-in";
  return std::make_unique<StreamBackend>(std::move(runtime), std::move(math),
                                         std::move(options));
}

bool DeviceHasTheCpusBits() { return true; }

bool DeviceHasTwins() { return true; }

bool DeviceIsSlow() { return false; }

}  // namespace holdfast
