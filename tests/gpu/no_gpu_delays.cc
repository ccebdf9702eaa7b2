// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/device_under_test.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Backend>> MakeDelayedDeviceUnderTest(
    const DelayOptions&) {
  return absl::UnimplementedError("this test was built without CUDA");
}

}  // namespace holdfast
