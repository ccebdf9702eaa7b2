// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_CHECKPOINT_H_
#define HOLDFAST_CLI_CHECKPOINT_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast checkpoint list|inspect|verify|export|delta|save`: inspects a
// checkpoint directory, or makes a running job save its state. `args` follow
// the subcommand. Returns the exit code.
int CheckpointCommand(const std::vector<std::string>& args);

// Returns the verbs of the command and their flags, for shell completion.
std::vector<CommandWords> CheckpointWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CHECKPOINT_H_
