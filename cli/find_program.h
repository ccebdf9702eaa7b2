// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_FIND_PROGRAM_H_
#define HOLDFAST_CLI_FIND_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Finds a daemon's program: `given`, or the program called `name` next to this
// program or in `build_folder` of the build's output, in which this program is
// in cli. Errors: NOT_FOUND, with the places searched and the flag (`flag`)
// that sets another path.
absl::StatusOr<std::string> FindProgram(absl::string_view flag,
                                        const std::string& given,
                                        const std::string& build_folder,
                                        const std::string& name);

// The file that a shell would run for `command`: a program in $PATH or, if it
// contains a slash, a file. Errors: NOT_FOUND, naming the places searched.
absl::StatusOr<std::string> FindCommand(const std::string& command);

// The executable of this process.
std::string ThisProgram();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_FIND_PROGRAM_H_
