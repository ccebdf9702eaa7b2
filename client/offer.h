#ifndef HOLDFAST_CLIENT_OFFER_H_
#define HOLDFAST_CLIENT_OFFER_H_

#include <memory>

#include "client/cluster.h"
#include "client/core.h"

namespace holdfast::client {

// docs/life_of_a_step.md, step 3, and the wait for step 6: Contribute, asked
// again until there is a verdict.
std::unique_ptr<Cluster::Offer> StartContribute(const Core& core,
                                                const Contribution& offer);
std::unique_ptr<Cluster::Offer> StartContribute(
    std::shared_ptr<Generation> generation, const Contribution& offer);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_OFFER_H_
