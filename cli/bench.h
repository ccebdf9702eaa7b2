// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_H_
#define HOLDFAST_CLI_BENCH_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast bench`: measures what a cluster on this machine can do. `args`
// follow the subcommand. Returns the exit code.
int BenchCommand(const std::vector<std::string>& args);

// Returns the verbs of the command and their flags, for shell completion.
std::vector<CommandWords> BenchWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_H_
