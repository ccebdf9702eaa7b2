// SPDX-License-Identifier: Apache-2.0
#include "tests/slow_worker/step_delay.h"

#include <cmath>

#include "common/base/random.h"

namespace holdfast {

absl::Duration StepDelay(absl::Duration max, uint64_t seed, uint32_t replica,
                         GlobalStep step) {
  // Keeps these numbers apart from other uses of Philox under one seed
  // ("slow").
  constexpr uint32_t kPurpose = 0x736c6f77;
  const uint32_t bits = Philox4x32(
      {static_cast<uint32_t>(step.value()),
       static_cast<uint32_t>(step.value() >> 32), replica, kPurpose},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[0];
  return max * std::ldexp(static_cast<double>(bits), -32);
}

}  // namespace holdfast
