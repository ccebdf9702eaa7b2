// SPDX-License-Identifier: Apache-2.0

// The commands that show a running job without changing it. `args` follow the
// subcommand; each returns the exit code.
#ifndef HOLDFAST_CLI_STATUS_H_
#define HOLDFAST_CLI_STATUS_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast status`: one screen of text, or the coordinator's answer as JSON.
int StatusCommand(const std::vector<std::string>& args);

// `holdfast events`: what has happened to the job, the newest last.
int EventsCommand(const std::vector<std::string>& args);

// `holdfast history`: loss, scores and rate over the job's whole life.
int HistoryCommand(const std::vector<std::string>& args);

// Returns these commands and their flags, for shell completion.
std::vector<CommandWords> StatusWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_STATUS_H_
