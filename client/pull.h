// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_PULL_H_
#define HOLDFAST_CLIENT_PULL_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cluster.h"
#include "client/generation_state.h"
#include "common/job/ids.h"

namespace holdfast::client {

// Pulls read all variables, and the rows that `into` wants. They ask every
// shard, several parts at a time: first the parts of Placement::pull, then
// those of rows.

// Pulls the newest version at or above `min_version`. In synchronous jobs,
// parts that arrive with a version below the highest one are pulled again [R7].
// In asynchronous jobs, parts are taken as they arrive.
// `ready`: the generation to read in, or why the pull fails.
std::unique_ptr<Cluster::Pull> StartPull(
    absl::StatusOr<std::shared_ptr<GenerationState>> ready,
    GlobalStep min_version, Parameters* into);

// Pulls the version that is pinned at each ps. `versions`: indexed by ps.
std::unique_ptr<Cluster::Pull> StartPullOfPinned(
    std::shared_ptr<GenerationState> generation,
    const std::vector<GlobalStep>& versions, Parameters* into);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PULL_H_
