// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_FIND_FILES_H_
#define HOLDFAST_COMMON_DATA_FIND_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

// The files that match `patterns`, in the order of the patterns. In a pattern,
// * stands for any characters but a slash, ? for any one character but a slash,
// and [abc] for one of the listed characters. The matches of a pattern are
// sorted by the bytes of their names.
// Errors: NOT_FOUND for a pattern that matches nothing; INVALID_ARGUMENT when a
// file is found twice.
absl::StatusOr<std::vector<std::string>> FindFiles(
    const std::vector<std::string>& patterns);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_FIND_FILES_H_
