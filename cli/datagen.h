#ifndef HOLDFAST_CLI_DATAGEN_H_
#define HOLDFAST_CLI_DATAGEN_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast datagen`: makes files to train on, of a model that is known. `args`
// follow the subcommand. Returns the exit code.
int DatagenCommand(const std::vector<std::string>& args);

// What may follow each verb.
std::vector<CommandWords> DatagenWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_DATAGEN_H_
