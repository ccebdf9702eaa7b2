#ifndef HOLDFAST_CLI_LOOPBACK_CLUSTER_H_
#define HOLDFAST_CLI_LOOPBACK_CLUSTER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/cluster_spec.h"

namespace holdfast {

// So many tasks on loopback, on ports that are free; with `evaluator` one more.
// Errors: those of FindFreePorts.
absl::StatusOr<ClusterSpec> ChooseLoopbackCluster(int ps, int workers,
                                                  bool evaluator = false);

// A free port that is not in `cluster`, whose tasks have not started yet.
// Errors: those of FindFreePorts.
absl::StatusOr<uint16_t> ChooseLoopbackPort(const ClusterSpec& cluster);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOOPBACK_CLUSTER_H_
