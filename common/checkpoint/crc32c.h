// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_CHECKPOINT_CRC32C_H_
#define HOLDFAST_COMMON_CHECKPOINT_CRC32C_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace holdfast {

// CRC32C (Castagnoli; RFC 3720, appendix B.4), by ISA-L.
//
// Returns the CRC32C of bytes whose first part has the CRC32C `crc` and is
// followed by the `size` bytes at `data`. The CRC32C of no bytes is 0.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size);

inline uint32_t Crc32c(absl::string_view data) {
  return ExtendCrc32c(0, data.data(), data.size());
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_CRC32C_H_
