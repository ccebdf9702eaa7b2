// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_RPC_FIGURES_H_
#define HOLDFAST_PS_SERVER_SERVICE_RPC_FIGURES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace holdfast {

// The calls of one method whose messages were read and that have been answered.
struct MethodFigures {
  uint64_t calls = 0;
  // The calls that were answered with an error.
  uint64_t failed = 0;
  // The time from the arrival of each call's message until its answer was
  // given: work, waits for a strand, and time parked.
  absl::Duration total_time;
  // The part of that time for which its handler occupied a thread that serves
  // calls.
  absl::Duration handler_time;
};

// Indexed by full name, such as "/holdfast.proto.Shard/Push".
using RpcFigures = std::map<std::string, MethodFigures>;

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_RPC_FIGURES_H_
