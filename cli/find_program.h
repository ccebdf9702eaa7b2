#ifndef HOLDFAST_CLI_FIND_PROGRAM_H_
#define HOLDFAST_CLI_FIND_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// A daemon's program: the one `given`, or that called `name` beside this
// program, or in `build_folder` of the build's output, where this program is in
// cli. Errors: NOT_FOUND, with the places and the flag (`flag`) that says
// another.
absl::StatusOr<std::string> FindProgram(absl::string_view flag,
                                        const std::string& given,
                                        const std::string& build_folder,
                                        const std::string& name);

// The file that a shell runs for `command`, which names a program of $PATH, or,
// with a slash, a file. Errors: NOT_FOUND, saying where it was looked for.
absl::StatusOr<std::string> FindCommand(const std::string& command);

// The file of the program that runs.
std::string ThisProgram();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_FIND_PROGRAM_H_
