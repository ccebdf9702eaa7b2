#ifndef HOLDFAST_CLI_BENCH_LISTS_H_
#define HOLDFAST_CLI_BENCH_LISTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Flags; most are lists, separated by commas. Errors of all: INVALID_ARGUMENT,
// naming flag and item, also for an empty list and for an item that is there
// twice.

// Whole numbers from 1 to `most`.
absl::StatusOr<std::vector<int>> ParseNumbers(absl::string_view flag,
                                              const std::string& text,
                                              int most);

// Sizes of tensors in float32, as 16 or 64MB: from 4 B, multiples of it, to
// 4 GB.
absl::StatusOr<std::vector<uint64_t>> ParseSizes(absl::string_view flag,
                                                 const std::string& text);

// Some of `words`.
absl::StatusOr<std::vector<std::string>> ParseWords(
    absl::string_view flag, const std::string& text,
    const std::vector<std::string>& words);

// One of `words`.
absl::Status CheckWord(absl::string_view flag, const std::string& text,
                       const std::vector<std::string>& words);

// Above 0, and at most an hour.
absl::Status CheckSeconds(double seconds);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_LISTS_H_
