#ifndef HOLDFAST_CLIENT_PUSH_H_
#define HOLDFAST_CLIENT_PUSH_H_

#include <memory>

#include "client/cluster.h"
#include "client/core.h"
#include "common/ids.h"

namespace holdfast::client {

// docs/life_of_a_step.md, steps 1 and 2, as the worker does them: the gradient
// leaves in the parts of Placement::push, each as soon as all its variables
// were handed in, some of them at a time; and every shard acknowledges all of
// its own.
std::unique_ptr<Cluster::Push> StartPush(Core* core, GlobalStep step);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PUSH_H_
