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

// Which running job a command talks to, as its flags say. All commands that
// talk to a job take the same ones.
struct ClusterAddress {
  // The flags as they were given.
  std::string ps;
  std::string cluster_spec;
  std::string run_dir;
  std::string tls_dir;
  // How long to try to reach ps task 0, and to wait for its answers.
  absl::Duration timeout = absl::Seconds(5);

  void AddTo(FlagSet* set);
};

// How to connect, as an operator who only reads, with the ps task 0 that
// `address` names, or else `tf_config`, the value of TF_CONFIG in the
// environment (empty: not set). Tools ask ps task 0 alone: the cluster of the
// result has no other ps, and a worker that nobody calls.
//
// Errors: INVALID_ARGUMENT when no flag, or more than one, names a cluster, and
// for what is wrong with what it names; NOT_FOUND when no run is going on in
// --run_dir. All name the flag or TF_CONFIG.
absl::StatusOr<Cluster::Options> ResolveClusterAddress(
    const ClusterAddress& address, absl::string_view tf_config);

// Connects, with TF_CONFIG of the environment. Tells on standard error what it
// waits for when that takes long.
// Errors: those of ResolveClusterAddress; of Cluster::Connect, which name the
// address, within address.timeout.
absl::StatusOr<std::unique_ptr<Cluster>> ConnectAsOperator(
    const ClusterAddress& address);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CLUSTER_ADDRESS_H_
