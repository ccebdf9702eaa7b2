// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_DATA_H_
#define HOLDFAST_CLI_DATA_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast data`: describes training data files, or splits them in two. `args`
// follow the subcommand. Returns the exit code.
int DataCommand(const std::vector<std::string>& args);

// Returns the verbs of the command and their flags, for shell completion.
std::vector<CommandWords> DataWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_DATA_H_
