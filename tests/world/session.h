// SPDX-License-Identifier: Apache-2.0

// The membership of a process, maintained as common/rpc/session.h does.
#ifndef HOLDFAST_TESTS_WORLD_SESSION_H_
#define HOLDFAST_TESTS_WORLD_SESSION_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "tests/world/message.h"

namespace holdfast::sim {

class Session {
 public:
  struct Hooks {
    // The incarnation or the generation may have changed.
    std::function<void(const proto::Sender&)> on_sender;
    std::function<void(const proto::RenewLeaseResponse&)> on_news;
    // The process has no place in the cluster, or has lost it. Not called while
    // another process still holds the place.
    std::function<void(const absl::Status&)> on_refused;
  };

  // Registers with `request`. Ends with the life of `node`.
  Session(World* world, Node node, const proto::RegisterRequest& request,
          Hooks hooks);

  void Start() { Register(); }
  const proto::Sender& sender() const { return sender_; }
  proto::JobPhase phase() const { return phase_; }

 private:
  void Register();
  void OnRegistered(const absl::StatusOr<proto::RegisterResponse>& response);
  void Renew();
  void OnRenewed(const absl::StatusOr<proto::RenewLeaseResponse>& response);

  World* const world_;
  const Node node_;
  proto::RegisterRequest request_;
  const Hooks hooks_;
  proto::Sender sender_;
  absl::Duration lease_;
  proto::JobPhase phase_ = proto::STARTING;
};

// The registration of a worker or a ps of `world`.
proto::RegisterRequest RegisterRequestOf(const World& world, const char* job,
                                         uint32_t index, uint64_t nonce);

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_SESSION_H_
