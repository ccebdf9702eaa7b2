// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_DATAGEN_H_
#define HOLDFAST_CLI_DATAGEN_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast datagen`: generates training files from a known model. `args`
// follow the subcommand. Returns the exit code.
int DatagenCommand(const std::vector<std::string>& args);

// Returns the verbs of the command and their flags, for shell completion.
std::vector<CommandWords> DatagenWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_DATAGEN_H_
