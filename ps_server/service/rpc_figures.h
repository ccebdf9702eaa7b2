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
  // Of these, with an error.
  uint64_t failed = 0;
  // From when a call's message was here until its answer was given: work, waits
  // for a strand, and the time for which it was parked.
  absl::Duration total_time;
  // Of that, the time for which its handler kept a thread that serves calls.
  absl::Duration handler_time;
};

// By full name, "/holdfast.proto.Shard/Push".
using RpcFigures = std::map<std::string, MethodFigures>;

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_RPC_FIGURES_H_
