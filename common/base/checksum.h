// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_BASE_CHECKSUM_H_
#define HOLDFAST_COMMON_BASE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

namespace holdfast {

// Returns the XXH3-64 of `size` bytes at `data`, which is the same on every
// machine and in every version: whether memory has changed, or whether two
// processes have the same. Nobody is kept from making two with one checksum.
uint64_t Checksum(const void* data, size_t size);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_CHECKSUM_H_
