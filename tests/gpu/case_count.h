// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_GPU_CASE_COUNT_H_
#define HOLDFAST_TESTS_GPU_CASE_COUNT_H_

#include <cstdint>

namespace holdfast {

// The number of comparisons of device and CPU so far, for the program's last
// line of output.
inline int64_t g_cases = 0;

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_CASE_COUNT_H_
