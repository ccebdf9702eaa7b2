// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/push_pull.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/tensor_codec.h"
#include "proto/coordinator.pb.h"
#include "ps_server/push_pull/push_pull_exchange.h"
#include "ps_server/shard/light_update.h"

namespace holdfast {
namespace {

// One exchange. Each pending reply of a machine keeps it alive; when the last
// is destroyed without an answer, so is the caller's Reply.
//
// Its events come from the strands of both machines.
class PushPullCall : public std::enable_shared_from_this<PushPullCall> {
 public:
  PushPullCall(const Machines& machines, proto::PushPullRequest request,
               Reply<PushPullReply> reply)
      : machines_(machines),
        reply_(std::move(reply)),
        exchange_(std::move(request)) {}

  // Called on the shard's strand.
  void Start(std::vector<TensorPiece> tensors) ABSL_LOCKS_EXCLUDED(mutex_) {
    Tell(&PushPullExchange::Start, std::move(tensors));
  }

 private:
  using Output = PushPullExchange::Output;

  template <typename Event, typename Message>
  void Tell(Event event, Message&& message) ABSL_LOCKS_EXCLUDED(mutex_) {
    Send(OutputOf(event, std::forward<Message>(message)));
  }
  template <typename Event, typename Message>
  Output OutputOf(Event event, Message&& message) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return (exchange_.*event)(std::forward<Message>(message));
  }

  // A reply that passes its answer to the exchange.
  template <typename Response, typename Event>
  Reply<Response> Telling(Event event) {
    return [self = shared_from_this(), event](absl::StatusOr<Response> reply) {
      self->Tell(event, std::move(reply));
    };
  }

  // The shard's messages are sent on its strand: events on the coordinator's
  // strand produce none.
  void Send(Output out) {
    if (out.push.has_value()) {
      machines_.shard->Push(
          *std::move(out.push),
          Telling<proto::PushResponse>(&PushPullExchange::OnPushed));
    }
    if (out.apply.has_value()) {
      machines_.shard->Apply(*out.apply, Telling<proto::ApplyResponse>(
                                             &PushPullExchange::OnApplied));
    }
    if (out.contribute.has_value()) {
      machines_.coordinator_strand->RunOrPost(
          [coordinator = machines_.coordinator,
           request = *std::move(out.contribute),
           reply = Telling<proto::ContributeResponse>(
               &PushPullExchange::OnContributed)]() mutable {
            coordinator->Contribute(request, std::move(reply));
          });
    }
    if (out.pull.has_value()) {
      machines_.shard->Pull(*out.pull,
                            Telling<PullReply>(&PushPullExchange::OnPulled));
    }
    // There is one.
    if (out.answer.has_value()) reply_(*std::move(out.answer));
  }

  const Machines machines_;
  Reply<PushPullReply> reply_;

  absl::Mutex mutex_;
  PushPullExchange exchange_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void PushPull(const Machines& machines, proto::PushPullRequest request,
              std::vector<TensorPiece> tensors, Reply<PushPullReply> reply) {
  const auto hand = IsLightUpdate(request, EncodedBytes(tensors))
                        ? &Strand::RunOrPost
                        : &Strand::Post;
  auto call = std::make_shared<PushPullCall>(machines, std::move(request),
                                             std::move(reply));
  (machines.shard_strand->*hand)(
      [call, tensors = std::move(tensors)]() mutable {
        call->Start(std::move(tensors));
      });
}

}  // namespace holdfast
