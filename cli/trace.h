// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_TRACE_H_
#define HOLDFAST_CLI_TRACE_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast trace`: records a few steps of a running job. `args` follow the
// subcommand. Returns the exit code.
int TraceCommand(const std::vector<std::string>& args);

// Returns the flags of the command, for shell completion.
std::vector<CommandWords> TraceWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TRACE_H_
