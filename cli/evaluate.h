#ifndef HOLDFAST_CLI_EVALUATE_H_
#define HOLDFAST_CLI_EVALUATE_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast eval` and `holdfast predict`: what the model of a checkpoint is
// worth on data, and what it predicts, without a cluster. The worker program
// does it, in place of this one. `args` follow the subcommand. Each returns the
// exit code.
int EvalCommand(const std::vector<std::string>& args);
int PredictCommand(const std::vector<std::string>& args);

// What may follow them.
std::vector<CommandWords> EvaluateWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_EVALUATE_H_
