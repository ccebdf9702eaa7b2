#ifndef HOLDFAST_CLI_DATA_H_
#define HOLDFAST_CLI_DATA_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast data`: says what is in files to train on, or cuts them in two.
// `args` follow the subcommand. Returns the exit code.
int DataCommand(const std::vector<std::string>& args);

// What may follow each verb.
std::vector<CommandWords> DataWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_DATA_H_
