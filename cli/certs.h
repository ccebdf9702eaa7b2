#ifndef HOLDFAST_CLI_CERTS_H_
#define HOLDFAST_CLI_CERTS_H_

#include <string>
#include <vector>

namespace holdfast {

// `holdfast certs`: makes certificates for the tasks of a cluster. Returns the
// exit code.
int CertsCommand(const std::vector<std::string>& args);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CERTS_H_
