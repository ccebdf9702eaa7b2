// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_COMPLETION_H_
#define HOLDFAST_CLI_COMPLETION_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cli/flag_set.h"

namespace holdfast {

// A bash script that completes the command line of `holdfast`: commands, their
// verbs and flags, and values of flags that are files, folders or one of a few
// words.
std::string BashCompletion(absl::Span<const CommandWords> commands);

// `holdfast completion bash`: prints the script. `args` follow the subcommand;
// `commands` are all other commands of the program. Returns the exit code.
int CompletionCommand(const std::vector<std::string>& args,
                      absl::Span<const CommandWords> commands);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_COMPLETION_H_
