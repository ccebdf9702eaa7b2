// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_INSPECT_LIBSVM_H_
#define HOLDFAST_CLI_INSPECT_LIBSVM_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace holdfast {

// Prints what labels and features the lines of libsvm `files` (patterns) have,
// found in one pass over them, and a schema to start from. Errors: those of
// FindFiles and ReadFileBytes; INVALID_ARGUMENT for a line that is not an
// example, and for files without examples.
absl::Status InspectLibsvm(const std::vector<std::string>& files);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_INSPECT_LIBSVM_H_
