// SPDX-License-Identifier: Apache-2.0

// Parses numbers of text files. Pure functions.
#ifndef HOLDFAST_COMMON_DATA_PARSE_NUMBER_H_
#define HOLDFAST_COMMON_DATA_PARSE_NUMBER_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace holdfast {

// Returns whether all of `text` is a finite number. If it is, stores the number
// in *value, rounded to the nearest double. A leading plus sign is allowed.
bool ParseFinite(absl::string_view text, double* value);

// Like ParseFinite, for whole numbers in the range of the type.
bool ParseWhole(absl::string_view text, int64_t* value);
bool ParseWhole(absl::string_view text, uint64_t* value);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_PARSE_NUMBER_H_
