#ifndef HOLDFAST_CLI_COMPLETION_H_
#define HOLDFAST_CLI_COMPLETION_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cli/flag_set.h"

namespace holdfast {

// A script for bash that completes the command line of `holdfast`: commands,
// their verbs, their flags, and the values of flags that are files, folders or
// one of some words.
std::string BashCompletion(absl::Span<const CommandWords> commands);

// `holdfast completion bash`: prints it. `args` follow the subcommand;
// `commands` are all of the program's, without this one. Returns the exit code.
int CompletionCommand(const std::vector<std::string>& args,
                      absl::Span<const CommandWords> commands);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_COMPLETION_H_
