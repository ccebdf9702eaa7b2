// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_RPC_FIGURES_H_
#define HOLDFAST_PS_SERVER_SERVICE_RPC_FIGURES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace holdfast {

// Figures of one method's calls. Calls are counted when they have been
// answered, if their messages were read.
struct MethodFigures {
  uint64_t calls = 0;
  // The calls that were answered with an error.
  uint64_t failed = 0;
  // The sum, over the calls, of the time from the arrival of the message until
  // the answer was given: work, waits for a strand, and time parked.
  absl::Duration total_time;
  // The part of total_time in which handlers occupied a thread that serves
  // calls.
  absl::Duration handler_time;
};

// Indexed by full name, such as "/holdfast.proto.Shard/Push".
using RpcFigures = std::map<std::string, MethodFigures>;

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_RPC_FIGURES_H_
