// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_LOOPBACK_CLUSTER_H_
#define HOLDFAST_CLI_LOOPBACK_CLUSTER_H_

#include "absl/status/statusor.h"
#include "cli/free_ports.h"
#include "common/job/cluster_spec.h"

namespace holdfast {

// A cluster of `ps` and `workers` tasks, and an evaluator if `evaluator`, on
// free loopback ports, which are reserved in `held`. Errors: those of
// HeldPorts::Take.
absl::StatusOr<ClusterSpec> ChooseLoopbackCluster(int ps, int workers,
                                                  bool evaluator,
                                                  HeldPorts* held);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOOPBACK_CLUSTER_H_
