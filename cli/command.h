// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_COMMAND_H_
#define HOLDFAST_CLI_COMMAND_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cli/flag_set.h"

namespace holdfast {

// Runs a subcommand `name` that takes only flags: with --help, prints `usage`
// and the flags; otherwise sets the flags and calls `run`. Errors go to
// standard error, prefixed with the command's name. Returns the exit code
// (common/process/exit_code.h): kExitUsage for INVALID_ARGUMENT, whether from
// the flags or from `run`, kExitInterrupted for CANCELLED, kExitFailed for
// other errors.
int RunCommand(const std::string& name, const char* usage, const FlagSet& flags,
               const std::vector<std::string>& args,
               absl::FunctionRef<absl::Status()> run);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_COMMAND_H_
