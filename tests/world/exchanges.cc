// SPDX-License-Identifier: Apache-2.0
#include "tests/world/exchanges.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "ps_server/push_pull/push_pull_exchange.h"
#include "tests/world/world.h"

namespace holdfast::sim {

// Lives until its last request has been answered.
class Exchanges::Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(World* world, const PushPull& call, Reply<PushPullReply> reply)
      : world_(world), reply_(std::move(reply)), machine_(call.request) {}

  void Start(const PushPull& call) { Send(machine_.Start(call.tensors)); }

 private:
  using Machine = PushPullExchange;

  template <typename Request, typename Event>
  void Ask(Node to, const std::optional<Request>& request, Event event) {
    if (!request.has_value()) return;
    using Response = typename Rpc<Request>::Response;
    world_->Call<Request>(
        kExchanges, to, *request,
        [self = shared_from_this(), event](absl::StatusOr<Response> response) {
          self->Send((self->machine_.*event)(std::move(response)));
        });
  }

  void Send(Machine::Output out) {
    Ask(ShardNode(0), out.push, &Machine::OnPushed);
    Ask(ShardNode(0), out.apply, &Machine::OnApplied);
    Ask(kCoordinator, out.contribute, &Machine::OnContributed);
    Ask(ShardNode(0), out.pull, &Machine::OnPulled);
    if (out.answer.has_value()) reply_(*std::move(out.answer));
  }

  World* const world_;
  Reply<PushPullReply> reply_;
  Machine machine_;
};

void Exchanges::Run(const PushPull& call, Reply<PushPullReply> reply) {
  std::make_shared<Exchange>(world_, call, std::move(reply))->Start(call);
}

void Rpc<PushPull>::Serve(Exchanges* exchanges, const PushPull& call,
                          Reply<Response> reply) {
  exchanges->Run(call, std::move(reply));
}

}  // namespace holdfast::sim
