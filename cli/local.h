// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_LOCAL_H_
#define HOLDFAST_CLI_LOCAL_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast local`: trains a job on this machine, with ps and workers as
// separate processes on loopback. `args` follow the subcommand. Returns the
// exit code.
int LocalCommand(const std::vector<std::string>& args);

// Returns the flags of the command, for shell completion.
std::vector<CommandWords> LocalWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOCAL_H_
