// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_PROCESS_PROCESS_NAME_H_
#define HOLDFAST_COMMON_PROCESS_PROCESS_NAME_H_

#include <string>

namespace holdfast {

// "host:pid", which identifies a process in messages to people.
std::string ProcessName();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_PROCESS_NAME_H_
