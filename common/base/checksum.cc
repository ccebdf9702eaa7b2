// SPDX-License-Identifier: Apache-2.0
#include "common/base/checksum.h"

// All of xxHash (0.8) is in its header; nothing has to be linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace holdfast {

uint64_t Checksum(const void* data, size_t size) {
  return XXH3_64bits(data, size);
}

}  // namespace holdfast
