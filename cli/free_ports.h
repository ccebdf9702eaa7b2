#ifndef HOLDFAST_CLI_FREE_PORTS_H_
#define HOLDFAST_CLI_FREE_PORTS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

// Ports from which daemons on this machine may choose: below those that Linux
// hands to outgoing connections (32768 and up unless set otherwise), so that
// none of these takes a port between the test and its use.
inline constexpr uint16_t kFirstPort = 10000;
inline constexpr uint16_t kLastPort = 31999;

// `count` different ports for which `is_free` says true: those that follow
// `start`, in [kFirstPort, kLastPort], around the range. A random start keeps
// runs that begin at the same time apart.
// Errors: RESOURCE_EXHAUSTED when there are not as many.
absl::StatusOr<std::vector<uint16_t>> FindFreePorts(
    int count, uint16_t start, const std::function<bool(uint16_t)>& is_free);

// Whether a socket can be bound to `port` on 127.0.0.1.
bool LoopbackPortIsFree(uint16_t port);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_FREE_PORTS_H_
