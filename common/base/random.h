// SPDX-License-Identifier: Apache-2.0

// Counter-based random numbers: Philox4x32-10, from Salmon, Moraes, Dror and
// Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
//
// A pure function of counter and key that uses integers only: the same bits on
// every machine, in any order, from any thread. There is no generator to seed,
// share or save: the value at any counter can be computed at any time.
#ifndef HOLDFAST_COMMON_BASE_RANDOM_H_
#define HOLDFAST_COMMON_BASE_RANDOM_H_

#include <array>
#include <cstdint>

namespace holdfast {

// The 128 random bits that belong to `counter` under `key`.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_RANDOM_H_
