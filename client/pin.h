#ifndef HOLDFAST_CLIENT_PIN_H_
#define HOLDFAST_CLIENT_PIN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "client/core.h"

namespace holdfast::client {

// A version held on every shard. In asynchronous jobs step 1 is all, and each
// shard's is its own; in synchronous ones all are of one version:
//
//   1. PinNewest: each shard pins its newest version.
//   2. Those below the highest are let go; AwaitVersion: once these shards have
//      reached the highest, they pin again, until all pins are of one version.
//
// A pin whose answer was lost is held at its shard until `hold` has passed.
absl::StatusOr<std::unique_ptr<Cluster::Pin>> PinVersion(const Core& core,
                                                         absl::Duration hold,
                                                         absl::Time deadline);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PIN_H_
