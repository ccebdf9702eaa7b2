#ifndef HOLDFAST_CLIENT_PULL_H_
#define HOLDFAST_CLIENT_PULL_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cluster.h"
#include "client/generation_state.h"
#include "common/job/ids.h"

namespace holdfast::client {

// All variables, and the rows that `into` wants. Every shard is asked, in the
// parts of Placement::pull, then in those of rows, some at a time.

// The newest version at or above `min_version`. In synchronous jobs answers of
// different versions are brought together: what is below the highest is pulled
// again for it [R7]. In asynchronous ones they stay as they come.
// `ready`: the generation to read in, or why the pull fails.
std::unique_ptr<Cluster::Pull> StartPull(
    absl::StatusOr<std::shared_ptr<GenerationState>> ready,
    GlobalStep min_version, Parameters* into);

// By ps, the version that is held there.
std::unique_ptr<Cluster::Pull> StartPullOfPinned(
    std::shared_ptr<GenerationState> generation,
    const std::vector<GlobalStep>& versions, Parameters* into);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PULL_H_
