#include "cli/loopback_cluster.h"

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/free_ports.h"

namespace holdfast {

namespace {

uint16_t RandomPort() {
  return static_cast<uint16_t>(kFirstPort + std::random_device()() %
                                                (kLastPort - kFirstPort + 1));
}

std::string AddressOf(uint16_t port) {
  return absl::StrCat("127.0.0.1:", port);
}

}  // namespace

absl::StatusOr<ClusterSpec> ChooseLoopbackCluster(int ps, int workers) {
  const auto ports =
      FindFreePorts(ps + workers, RandomPort(), LoopbackPortIsFree);
  if (!ports.ok()) return ports.status();
  std::vector<std::string> addresses;
  for (const uint16_t port : *ports) {
    addresses.push_back(AddressOf(port));
  }
  const auto first_worker = addresses.begin() + ps;
  return ClusterSpec::FromHosts(
      absl::StrJoin(addresses.begin(), first_worker, ","),
      absl::StrJoin(first_worker, addresses.end(), ","), "");
}

absl::StatusOr<uint16_t> ChooseLoopbackPort(const ClusterSpec& cluster) {
  std::set<std::string> taken;
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [index, address] : tasks) taken.insert(address);
  }
  const auto ports = FindFreePorts(1, RandomPort(), [&](uint16_t port) {
    return taken.count(AddressOf(port)) == 0 && LoopbackPortIsFree(port);
  });
  if (!ports.ok()) return ports.status();
  return ports->front();
}

}  // namespace holdfast
