// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_PIN_H_
#define HOLDFAST_CLIENT_PIN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "client/generation_state.h"

namespace holdfast::client {

// A pin that is being taken. In synchronous jobs every shard pins its newest
// version; if these versions differ, the shards with lower ones are asked again
// once they have reached the highest.
class PinRequest : public Cluster::Handle {
 public:
  virtual absl::StatusOr<std::unique_ptr<Cluster::Pin>> Await(
      absl::Time deadline) = 0;
};

// See Cluster::PinVersion. `ready`: the generation to read in, or why the pin
// fails.
std::unique_ptr<PinRequest> StartPin(
    absl::StatusOr<std::shared_ptr<GenerationState>> ready,
    absl::Duration hold);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PIN_H_
