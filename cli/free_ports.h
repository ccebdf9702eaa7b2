// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_FREE_PORTS_H_
#define HOLDFAST_CLI_FREE_PORTS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

// The range of ports for daemons on this machine: below the ports that Linux
// assigns to outgoing connections (32768 and up by default), so that no
// outgoing connection takes a port between the check and its use.
inline constexpr uint16_t kFirstPort = 10000;
inline constexpr uint16_t kLastPort = 31999;

// Returns `count` different ports for which `is_free` is true: the first such
// ports from `start` on, wrapping around in [kFirstPort, kLastPort]. Errors:
// RESOURCE_EXHAUSTED when there are fewer.
absl::StatusOr<std::vector<uint16_t>> FindFreePorts(
    int count, uint16_t start, const std::function<bool(uint16_t)>& is_free);

// Ports of 127.0.0.1 that are reserved for daemons: while this exists, no other
// HeldPorts takes them, but a daemon can listen on them.
//
// Thread-compatible.
class HeldPorts {
 public:
  HeldPorts() = default;
  HeldPorts(const HeldPorts&) = delete;
  HeldPorts& operator=(const HeldPorts&) = delete;
  ~HeldPorts();

  // Reserves `count` more ports, searched from a random port on. Errors: those
  // of FindFreePorts.
  absl::StatusOr<std::vector<uint16_t>> Take(int count);

  // Reserves the port if it is free, and returns whether it was. A port with
  // lingering connections is not free.
  bool TakeIfFree(uint16_t port);

 private:
  std::vector<int> sockets_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_FREE_PORTS_H_
