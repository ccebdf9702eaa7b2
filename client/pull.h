#ifndef HOLDFAST_CLIENT_PULL_H_
#define HOLDFAST_CLIENT_PULL_H_

#include <memory>

#include "client/cluster.h"
#include "client/core.h"
#include "common/ids.h"

namespace holdfast::client {

// All variables, at one version. Every shard is asked, in the parts of
// Placement::pull, some at a time. Answers of different versions are brought
// together: what is below the highest is pulled again for it [R7].

// The newest version at or above `min_version`.
std::unique_ptr<Cluster::Pull> StartPull(Core* core, GlobalStep min_version,
                                         Parameters* into);

// `version`, which must be held on every shard.
std::unique_ptr<Cluster::Pull> StartPullOfPinned(Core* core, GlobalStep version,
                                                 Parameters* into);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PULL_H_
