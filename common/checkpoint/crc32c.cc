// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace holdfast {

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size) {
  // ISA-L counts in int, takes its input as non-const, and leaves the inversion
  // before and after to the caller.
  constexpr size_t kMost = size_t{1} << 30;
  auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
  crc = ~crc;
  while (size > 0) {
    const size_t count = std::min(size, kMost);
    crc = crc32_iscsi(bytes, static_cast<int>(count), crc);
    bytes += count;
    size -= count;
  }
  return ~crc;
}

}  // namespace holdfast
