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
// `start`, in [kFirstPort, kLastPort], around the range.
// Errors: RESOURCE_EXHAUSTED when there are not as many.
absl::StatusOr<std::vector<uint16_t>> FindFreePorts(
    int count, uint16_t start, const std::function<bool(uint16_t)>& is_free);

// Ports of 127.0.0.1 that are kept for daemons to be started: as long as this
// lives, nobody else gets them by HeldPorts, and a daemon can listen.
//
// Thread-compatible.
class HeldPorts {
 public:
  HeldPorts() = default;
  HeldPorts(const HeldPorts&) = delete;
  HeldPorts& operator=(const HeldPorts&) = delete;
  ~HeldPorts();

  // So many more, from a random place on. Errors: those of FindFreePorts.
  absl::StatusOr<std::vector<uint16_t>> Take(int count);

  // Whether the port was free, and is held now. One whose last connections
  // linger counts as taken.
  bool TakeIfFree(uint16_t port);

 private:
  std::vector<int> sockets_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_FREE_PORTS_H_
