// SPDX-License-Identifier: Apache-2.0

// Runs the PushPull calls at the only ps of a job.
#ifndef HOLDFAST_TESTS_WORLD_EXCHANGES_H_
#define HOLDFAST_TESTS_WORLD_EXCHANGES_H_

#include "ps_server/protocol/tensor_messages.h"
#include "ps_server/reply/reply.h"
#include "tests/world/message.h"

namespace holdfast::sim {

// Works as ps_server/service/push_pull.h does in a daemon. The messages that an
// exchange sends to the shard and the coordinator, and their answers, stay
// within ps 0.
class Exchanges {
 public:
  // `world` must outlive this object.
  explicit Exchanges(World* world) : world_(world) {}

  void Run(const PushPull& call, Reply<PushPullReply> reply);

 private:
  class Exchange;

  World* const world_;
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_EXCHANGES_H_
