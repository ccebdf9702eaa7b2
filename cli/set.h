// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_SET_H_
#define HOLDFAST_CLI_SET_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast set`: changes the learning rate of a running job. `args` follow the
// subcommand. Returns the exit code.
int SetCommand(const std::vector<std::string>& args);

// Returns the flags of the command, for shell completion.
std::vector<CommandWords> SetWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_SET_H_
