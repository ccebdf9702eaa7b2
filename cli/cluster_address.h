// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_CLUSTER_ADDRESS_H_
#define HOLDFAST_CLI_CLUSTER_ADDRESS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/flag_set.h"
#include "client/cluster.h"

namespace holdfast {

// The running job that a command talks to, as given by its flags. All commands
// that talk to a job have the same flags.
struct ClusterAddress {
  // The values of the flags.
  std::string ps;
  std::string cluster_spec;
  std::string run_dir;
  std::string tls_dir;
  // How long the command tries to reach ps task 0, and waits for its answers.
  absl::Duration timeout = absl::Seconds(5);

  void AddTo(FlagSet* set);
};

// Options for connecting, as a read-only operator, to the ps task 0 that
// `address` names or, if it names none, to that of `tf_config`, the value of
// the environment variable TF_CONFIG (empty if not set). Tools only talk to ps
// task 0: the cluster of the result has no other ps, and one worker, which is
// never called.
//
// Errors: INVALID_ARGUMENT when no flag, or more than one, names a cluster, and
// when the named cluster is invalid; NOT_FOUND when no run is going on in
// --run_dir. All name the flag or TF_CONFIG.
absl::StatusOr<Cluster::Options> ResolveClusterAddress(
    const ClusterAddress& address, absl::string_view tf_config);

// Connects, using TF_CONFIG of the environment. If this takes long, says on
// standard error what it is waiting for. Errors, within address.timeout: those
// of ResolveClusterAddress; those of Cluster::Connect, which name the address.
absl::StatusOr<std::unique_ptr<Cluster>> ConnectAsOperator(
    const ClusterAddress& address);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CLUSTER_ADDRESS_H_
