#ifndef HOLDFAST_CLIENT_PULL_H_
#define HOLDFAST_CLIENT_PULL_H_

#include <memory>
#include <vector>

#include "client/cluster.h"
#include "client/core.h"
#include "common/ids.h"

namespace holdfast::client {

// All variables. Every shard is asked, in the parts of Placement::pull, some at
// a time.

// The newest version at or above `min_version`. In synchronous jobs answers of
// different versions are brought together: what is below the highest is pulled
// again for it [R7]. In asynchronous ones they stay as they come.
std::unique_ptr<Cluster::Pull> StartPull(const Core& core,
                                         GlobalStep min_version,
                                         Parameters* into);

std::unique_ptr<Cluster::Pull> StartPull(std::shared_ptr<Generation> generation,
                                         GlobalStep min_version,
                                         Parameters* into);

// By ps, the version that is held there.
std::unique_ptr<Cluster::Pull> StartPullOfPinned(
    std::shared_ptr<Generation> generation,
    const std::vector<GlobalStep>& versions, Parameters* into);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PULL_H_
