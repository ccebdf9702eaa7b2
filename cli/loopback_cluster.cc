// SPDX-License-Identifier: Apache-2.0
#include "cli/loopback_cluster.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace holdfast {

absl::StatusOr<ClusterSpec> ChooseLoopbackCluster(int ps, int workers,
                                                  bool evaluator,
                                                  HeldPorts* held) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto ports,
                            held->Take(ps + workers + (evaluator ? 1 : 0)));
  std::vector<std::string> addresses;
  for (const uint16_t port : ports) {
    addresses.push_back(absl::StrCat("\"127.0.0.1:", port, "\""));
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

}  // namespace holdfast
