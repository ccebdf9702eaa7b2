// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_BASE_NONCE_H_
#define HOLDFAST_COMMON_BASE_NONCE_H_

#include <cstdint>

namespace holdfast {

// A random number that distinguishes one life of a process, or of a directory,
// from all others; never 0. It comes from the system's entropy and does not
// depend on a seed.
uint64_t MakeNonce();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_NONCE_H_
