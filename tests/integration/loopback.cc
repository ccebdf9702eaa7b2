// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

std::string RandomLoopbackHost() {
  std::random_device random;
  // Not 127.0.x.y, which other programs use.
  return absl::StrCat("127.", 1 + random() % 254, ".", random() % 256, ".",
                      1 + random() % 254);
}

std::string UnusedAddresses(uint32_t count) {
  std::vector<std::string> addresses;
  for (uint32_t i = 0; i < count; ++i) addresses.push_back(UnusedAddress());
  return absl::StrJoin(addresses, ",");
}

}  // namespace

const std::string& LoopbackHost() {
  static const std::string* const host = new std::string(RandomLoopbackHost());
  return *host;
}

uint16_t PickUnusedPort() {
  // A port that was returned may not be in use yet, but must not be returned
  // again.
  static std::set<uint16_t>* const given = new std::set<uint16_t>;
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PCHECK(fd >= 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    PCHECK(inet_pton(AF_INET, LoopbackHost().c_str(), &address.sin_addr) == 1);
    socklen_t length = sizeof(address);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    PCHECK(bind(fd, plain, length) == 0);
    PCHECK(getsockname(fd, plain, &length) == 0);
    close(fd);
    const uint16_t port = ntohs(address.sin_port);
    if (given->insert(port).second) return port;
  }
}

std::string UnusedAddress() {
  return HostPort{LoopbackHost(), PickUnusedPort()}.ToString();
}

ClusterSpec MakeLoopbackCluster(uint32_t num_ps, uint32_t num_workers,
                                bool has_chief) {
  const std::string ps = UnusedAddresses(num_ps);
  const std::string workers = UnusedAddresses(num_workers);
  const absl::StatusOr<ClusterSpec> cluster =
      ClusterSpec::FromHosts(ps, workers, has_chief ? UnusedAddress() : "");
  CHECK(cluster.ok()) << cluster.status();
  return *cluster;
}

}  // namespace holdfast
