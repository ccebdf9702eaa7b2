// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_BASE_BYTE_SIZE_H_
#define HOLDFAST_COMMON_BASE_BYTE_SIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Parses a number of bytes such as "8GiB", "500MB" or "4096": a number above 0,
// with or without a decimal point, followed by B, kB (or KB), KiB, MB, MiB, GB,
// GiB, TB, TiB or nothing. Errors: INVALID_ARGUMENT, naming the text.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_BYTE_SIZE_H_
