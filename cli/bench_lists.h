// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_LISTS_H_
#define HOLDFAST_CLI_BENCH_LISTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Parsers of flags, most of which are comma-separated lists. Errors of all of
// them: INVALID_ARGUMENT, naming the flag and the item, also for an empty list
// and for a duplicate item.

// Whole numbers from 1 to `most`.
absl::StatusOr<std::vector<int>> ParseNumbers(absl::string_view flag,
                                              const std::string& text,
                                              int most);

// Sizes of float32 tensors, such as 16 or 64MB: multiples of 4 B, up to 4 GB.
absl::StatusOr<std::vector<uint64_t>> ParseSizes(absl::string_view flag,
                                                 const std::string& text);

// A subset of `words`.
absl::StatusOr<std::vector<std::string>> ParseWords(
    absl::string_view flag, const std::string& text,
    const std::vector<std::string>& words);

// Checks that `text` is one of `words`.
absl::Status CheckWord(absl::string_view flag, const std::string& text,
                       const std::vector<std::string>& words);

// Checks that `seconds` is above 0 and at most an hour.
absl::Status CheckSeconds(double seconds);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_LISTS_H_
