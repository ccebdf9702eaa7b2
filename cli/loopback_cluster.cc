#include "cli/loopback_cluster.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/free_ports.h"

namespace holdfast {

absl::StatusOr<ClusterSpec> ChooseLoopbackCluster(int ps, int workers) {
  const auto random_start = static_cast<uint16_t>(
      kFirstPort + std::random_device()() % (kLastPort - kFirstPort + 1));
  const auto ports =
      FindFreePorts(ps + workers, random_start, LoopbackPortIsFree);
  if (!ports.ok()) return ports.status();
  std::vector<std::string> addresses;
  for (const uint16_t port : *ports) {
    addresses.push_back(absl::StrCat("127.0.0.1:", port));
  }
  const auto first_worker = addresses.begin() + ps;
  return ClusterSpec::FromHosts(
      absl::StrJoin(addresses.begin(), first_worker, ","),
      absl::StrJoin(first_worker, addresses.end(), ","), "");
}

}  // namespace holdfast
