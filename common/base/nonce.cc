// SPDX-License-Identifier: Apache-2.0
#include "common/base/nonce.h"

#include <random>

namespace holdfast {

uint64_t MakeNonce() {
  std::random_device random;
  const uint64_t high = random();
  return high << 32 | random() | 1;
}

}  // namespace holdfast
