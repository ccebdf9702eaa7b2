// SPDX-License-Identifier: Apache-2.0
#include "cli/free_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

absl::StatusOr<std::vector<uint16_t>> FindFreePorts(
    int count, uint16_t start, const std::function<bool(uint16_t)>& is_free) {
  constexpr int kPorts = kLastPort - kFirstPort + 1;
  std::vector<uint16_t> ports;
  for (int i = 0; i < kPorts && static_cast<int>(ports.size()) < count; ++i) {
    const uint16_t port = kFirstPort + (start - kFirstPort + i) % kPorts;
    if (is_free(port)) ports.push_back(port);
  }
  if (static_cast<int>(ports.size()) < count) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "only ", ports.size(), " of the ", count,
        " ports wanted are free between ", kFirstPort, " and ", kLastPort));
  }
  return ports;
}

HeldPorts::~HeldPorts() {
  for (const int fd : sockets_) close(fd);
}

absl::StatusOr<std::vector<uint16_t>> HeldPorts::Take(int count) {
  const auto start = static_cast<uint16_t>(
      kFirstPort + std::random_device()() % (kLastPort - kFirstPort + 1));
  return FindFreePorts(count, start,
                       [this](uint16_t port) { return TakeIfFree(port); });
}

bool HeldPorts::TakeIfFree(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Binding without SO_REUSEADDR requires that no other socket is bound to the
  // port. With the option set afterwards, servers, which set it too, may bind
  // to the port while this socket does not listen.
  const int on = 1;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
          0 ||
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) {
    close(fd);
    return false;
  }
  sockets_.push_back(fd);
  return true;
}

}  // namespace holdfast
