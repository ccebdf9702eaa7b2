// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_TOP_H_
#define HOLDFAST_CLI_TOP_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast top`: shows the output of `holdfast status` live on a terminal,
// until the user ends it. `args` follow the subcommand. Returns the exit code.
int TopCommand(const std::vector<std::string>& args);

// Returns the flags of the command, for shell completion.
std::vector<CommandWords> TopWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TOP_H_
