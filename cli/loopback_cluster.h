#ifndef HOLDFAST_CLI_LOOPBACK_CLUSTER_H_
#define HOLDFAST_CLI_LOOPBACK_CLUSTER_H_

#include "absl/status/statusor.h"
#include "cli/free_ports.h"
#include "common/job/cluster_spec.h"

namespace holdfast {

// So many tasks on loopback, on ports that were free and are `held` for them;
// with `evaluator` one more.
// Errors: those of HeldPorts::Take.
absl::StatusOr<ClusterSpec> ChooseLoopbackCluster(int ps, int workers,
                                                  bool evaluator,
                                                  HeldPorts* held);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOOPBACK_CLUSTER_H_
