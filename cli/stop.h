// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_STOP_H_
#define HOLDFAST_CLI_STOP_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast stop`: stops a running job in an orderly way, so that it can go on
// later. `args` follow the subcommand. Returns the exit code.
int StopCommand(const std::vector<std::string>& args);

// Returns the flags of the command, for shell completion.
std::vector<CommandWords> StopWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_STOP_H_
