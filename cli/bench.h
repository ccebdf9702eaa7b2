#ifndef HOLDFAST_CLI_BENCH_H_
#define HOLDFAST_CLI_BENCH_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast bench`: measures this machine's share of what a cluster can do.
// `args` without the command itself. Returns the exit code.
int BenchCommand(const std::vector<std::string>& args);

// What may follow each verb.
std::vector<CommandWords> BenchWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_H_
