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

absl::StatusOr<ClusterSpec> ChooseLoopbackCluster(int ps, int workers,
                                                  bool evaluator) {
  const auto ports = FindFreePorts(ps + workers + (evaluator ? 1 : 0),
                                   RandomPort(), LoopbackPortIsFree);
  if (!ports.ok()) return ports.status();
  std::vector<std::string> addresses;
  for (const uint16_t port : *ports) {
    addresses.push_back(absl::StrCat("\"", AddressOf(port), "\""));
  }
  const auto list = [&](int first, int count) {
    return absl::StrJoin(addresses.begin() + first,
                         addresses.begin() + first + count, ",");
  };
  std::string jobs = absl::StrCat("\"ps\":[", list(0, ps), "],\"worker\":[",
                                  list(ps, workers), "]");
  if (evaluator) {
    absl::StrAppend(&jobs, ",\"evaluator\":[", list(ps + workers, 1), "]");
  }
  return ClusterSpec::FromJson(absl::StrCat("{", jobs, "}"));
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
