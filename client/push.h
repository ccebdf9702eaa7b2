// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_PUSH_H_
#define HOLDFAST_CLIENT_PUSH_H_

#include <memory>

#include "client/cluster.h"
#include "client/generation_state.h"
#include "common/job/ids.h"

namespace holdfast::client {

// Starts a push, the worker's side of docs/protocol/life_of_a_step.md, steps 1
// to 3, or docs/protocol/asynchronous.md, A2 and A3. `ready`: the generation to
// work in, or why the push fails.
std::unique_ptr<Cluster::Push> StartPush(
    const absl::StatusOr<std::shared_ptr<GenerationState>>& ready,
    GlobalStep step);

std::unique_ptr<Cluster::Push> StartPush(
    const absl::StatusOr<std::shared_ptr<GenerationState>>& ready,
    const Ticket& ticket, const Parameters& at);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PUSH_H_
