#ifndef HOLDFAST_CLIENT_PUSH_H_
#define HOLDFAST_CLIENT_PUSH_H_

#include <memory>

#include "client/cluster.h"
#include "client/generation_state.h"
#include "common/ids.h"

namespace holdfast::client {

// docs/life_of_a_step.md, steps 1 and 2, or docs/asynchronous.md, step A2, as
// the worker does them: the gradient leaves in the parts of Placement::push,
// each as soon as all its variables were handed in, some of them at a time; and
// every shard acknowledges all of its own. In asynchronous jobs the push is
// applied then (Applier).
//
// A shard without room refuses a push before it keeps anything of it. One part
// then asks, with pauses, until it is kept, and the others follow: many would
// take the network from those that are to make room.

// `ready`: the generation to work in, or why the push fails.
std::unique_ptr<Cluster::Push> StartPush(
    const absl::StatusOr<std::shared_ptr<GenerationState>>& ready,
    GlobalStep step);

std::unique_ptr<Cluster::Push> StartPush(
    const absl::StatusOr<std::shared_ptr<GenerationState>>& ready,
    const Ticket& ticket, const Parameters& at);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PUSH_H_
