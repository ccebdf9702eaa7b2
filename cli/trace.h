#ifndef HOLDFAST_CLI_TRACE_H_
#define HOLDFAST_CLI_TRACE_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// holdfast trace. Returns the exit code.
int TraceCommand(const std::vector<std::string>& args);

// For completion.
std::vector<CommandWords> TraceWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TRACE_H_
