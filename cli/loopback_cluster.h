#ifndef HOLDFAST_CLI_LOOPBACK_CLUSTER_H_
#define HOLDFAST_CLI_LOOPBACK_CLUSTER_H_

#include "absl/status/statusor.h"
#include "common/cluster_spec.h"

namespace holdfast {

// So many tasks on loopback, on ports that are free.
// Errors: those of FindFreePorts.
absl::StatusOr<ClusterSpec> ChooseLoopbackCluster(int ps, int workers);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOOPBACK_CLUSTER_H_
