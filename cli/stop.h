#ifndef HOLDFAST_CLI_STOP_H_
#define HOLDFAST_CLI_STOP_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast stop`: ends a running job in order, so that it can go on later.
// `args` follow the subcommand. Returns the exit code.
int StopCommand(const std::vector<std::string>& args);

// What may follow it.
std::vector<CommandWords> StopWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_STOP_H_
