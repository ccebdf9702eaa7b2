#ifndef HOLDFAST_COMMON_PROCESS_PROCESS_NAME_H_
#define HOLDFAST_COMMON_PROCESS_PROCESS_NAME_H_

#include <string>

namespace holdfast {

// "host:pid", by which messages to people tell processes apart.
std::string ProcessName();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_PROCESS_NAME_H_
