// Somebody who is not the coordinator, and says that it is.
#ifndef HOLDFAST_TESTS_EXPLORATION_STRANGER_H_
#define HOLDFAST_TESTS_EXPLORATION_STRANGER_H_

#include <cstdint>
#include <vector>

#include "proto/shard.pb.h"
#include "ps_server/protocol/shard_messages.h"
#include "tests/world/world.h"

namespace holdfast::exploration {

// What would change shard `ps` if it were believed [P5]. The stranger knows all
// but the number that this life of the shard has registered with. `restore`:
// what the coordinator told that shard last.
std::vector<ShardRequest> Forgeries(const sim::World& world, uint32_t ps,
                                    const proto::RestoreRequest& restore);

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_STRANGER_H_
