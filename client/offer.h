#ifndef HOLDFAST_CLIENT_OFFER_H_
#define HOLDFAST_CLIENT_OFFER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/cluster.h"
#include "client/generation_state.h"

namespace holdfast::client {

// docs/life_of_a_step.md, step 3, and the wait for step 6: Contribute, asked
// again until there is a verdict.
std::unique_ptr<Cluster::Offer> StartContribute(
    absl::StatusOr<std::shared_ptr<GenerationState>> ready,
    const Contribution& offer);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_OFFER_H_
