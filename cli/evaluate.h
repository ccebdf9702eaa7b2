// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_EVALUATE_H_
#define HOLDFAST_CLI_EVALUATE_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast eval` and `holdfast predict`: evaluate the model of a checkpoint on
// data, and print its predictions, without a cluster. This process is replaced
// by the worker program, which does the work. `args` follow the subcommand.
// Each returns the exit code.
int EvalCommand(const std::vector<std::string>& args);
int PredictCommand(const std::vector<std::string>& args);

// Returns these commands and their flags, for shell completion.
std::vector<CommandWords> EvaluateWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_EVALUATE_H_
