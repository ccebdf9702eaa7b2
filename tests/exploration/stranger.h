// SPDX-License-Identifier: Apache-2.0

// A party that claims to be the coordinator but is not.
#ifndef HOLDFAST_TESTS_EXPLORATION_STRANGER_H_
#define HOLDFAST_TESTS_EXPLORATION_STRANGER_H_

#include <cstdint>
#include <vector>

#include "proto/shard.pb.h"
#include "ps_server/protocol/shard_messages.h"
#include "tests/world/world.h"

namespace holdfast::exploration {

// Requests that would change shard `ps` if they were believed [P5]. The
// stranger knows everything except the nonce with which this life of the shard
// has registered. `restore`: the last Restore that the coordinator sent to the
// shard.
std::vector<ShardRequest> Forgeries(const sim::World& world, uint32_t ps,
                                    const proto::RestoreRequest& restore);

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_STRANGER_H_
