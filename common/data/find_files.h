#ifndef HOLDFAST_COMMON_DATA_FIND_FILES_H_
#define HOLDFAST_COMMON_DATA_FIND_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

// The files that `patterns` name, in their order. In one, * stands for any
// characters but a slash, ? for one, [abc] for one of these; those that it
// matches come in the order of their names' bytes.
// Errors: NOT_FOUND for a pattern that matches nothing; INVALID_ARGUMENT when a
// file is found twice.
absl::StatusOr<std::vector<std::string>> FindFiles(
    const std::vector<std::string>& patterns);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_FIND_FILES_H_
