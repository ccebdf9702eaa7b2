// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_CERTS_H_
#define HOLDFAST_CLI_CERTS_H_

#include <string>
#include <vector>

#include "cli/flag_set.h"

namespace holdfast {

// `holdfast certs`: makes certificates for the tasks of a cluster. Returns the
// exit code.
int CertsCommand(const std::vector<std::string>& args);

// Returns the flags of the command, for shell completion.
std::vector<CommandWords> CertsWords();

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CERTS_H_
