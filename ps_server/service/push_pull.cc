#include "ps_server/service/push_pull.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "common/rpc/tensor_codec.h"
#include "proto/coordinator.pb.h"
#include "ps_server/service/light_update.h"

namespace holdfast {
namespace {

// One call, from its push to its answer. Each reply of a machine keeps it
// alive; when the last is gone without an answer, so is the caller's Reply.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(const Machines& machines, proto::PushPullRequest request,
           Reply<PushPullReply> reply)
      : machines_(machines),
        request_(std::move(request)),
        reply_(std::move(reply)) {}

  // All below but OnContributed run on the shard's strand.
  void Start(std::vector<TensorPiece> tensors) {
    const bool empty = request_.has_contribution()
                           ? request_.contribution().examples() == 0
                           : request_.application().examples() == 0;
    if (empty) return OnPushed(proto::PushResponse());
    PushPart part;
    part.sender = request_.sender();
    part.sequence = PushSequence(request_.sequence());
    part.step = GlobalStep(request_.step());
    part.acked_through = PushSequence(request_.acked_through());
    part.tensors = std::move(tensors);
    machines_.shard->Push(
        std::move(part),
        [self = shared_from_this()](
            const absl::StatusOr<proto::PushResponse>& pushed) {
          self->OnPushed(pushed);
        });
  }

 private:
  void OnPushed(const absl::StatusOr<proto::PushResponse>& pushed) {
    if (!pushed.ok()) return Fail(pushed.status());
    if (pushed->verdict() == proto::ABORTED) {
      PushPullReply aborted;
      aborted.response.set_generation(pushed->generation());
      aborted.response.set_verdict(proto::ABORTED);
      aborted.response.set_version(pushed->version());
      return Answer(std::move(aborted));
    }
    // Another verdict is the next one's to tell, as it is without this call.
    if (request_.has_application()) return Apply();
    Contribute(pushed->receipt());
    Pull(request_.step() + 1);
  }

  void Contribute(uint64_t receipt) {
    const auto& contribution = request_.contribution();
    proto::ContributeRequest request;
    *request.mutable_sender() = request_.sender();
    request.set_step(request_.step());
    request.set_seat(contribution.seat());
    request.set_sequence(request_.sequence());
    request.set_examples(contribution.examples());
    if (contribution.has_clip_factor()) {
      request.set_clip_factor(contribution.clip_factor());
    }
    request.set_loss(contribution.loss());
    request.set_not_finite(contribution.not_finite());
    request.set_acked_through(request_.acked_through());
    request.set_wait_ms(request_.wait_ms());
    request.add_receipts(receipt);
    machines_.coordinator_strand->RunOrPost([self = shared_from_this(),
                                             request = std::move(request)] {
      self->machines_.coordinator->Contribute(
          request,
          [self](const absl::StatusOr<proto::ContributeResponse>& response) {
            self->OnContributed(response);
          });
    });
  }

  void OnContributed(
      const absl::StatusOr<proto::ContributeResponse>& response) {
    if (!response.ok()) return Fail(response.status());
    {
      absl::MutexLock lock(&mutex_);
      proto::PushPullResponse& to = answer_.response;
      to.set_generation(response->generation());
      *to.mutable_state() = response->state();
      to.set_verdict(response->verdict());
      to.set_global_step(response->global_step());
      to.set_waiting_for(response->waiting_for());
      to.set_durable_step(response->durable_step());
      decided_ = true;
    }
    AnswerWhenComplete();
  }

  void Apply() {
    const auto& application = request_.application();
    proto::ApplyRequest request;
    *request.mutable_sender() = request_.sender();
    request.set_sequence(request_.sequence());
    *request.mutable_scalars() = application.scalars();
    if (application.has_clip_factor()) {
      request.set_clip_factor(application.clip_factor());
    }
    request.set_examples(application.examples());
    request.set_not_finite(application.not_finite());
    request.set_acked_through(request_.acked_through());
    request.set_wait_ms(request_.wait_ms());
    request.set_ticket_receipt(application.ticket_receipt());
    machines_.shard->Apply(
        request, [self = shared_from_this()](
                     const absl::StatusOr<proto::ApplyResponse>& response) {
          self->OnApplied(response);
        });
  }

  void OnApplied(const absl::StatusOr<proto::ApplyResponse>& response) {
    if (!response.ok()) return Fail(response.status());
    const bool applied = response->verdict() == proto::ACCEPTED;
    {
      absl::MutexLock lock(&mutex_);
      proto::PushPullResponse& to = answer_.response;
      to.set_generation(response->generation());
      *to.mutable_state() = response->state();
      to.set_verdict(response->verdict());
      to.set_waiting_for(response->waiting_for());
      to.set_staleness(response->staleness());
      to.set_receipt(response->receipt());
      to.set_version(response->version());
      decided_ = true;
      // One that waits for another's application would read too early.
      read_ = !applied;
    }
    if (applied) return Pull(0);
    AnswerWhenComplete();
  }

  void Pull(uint64_t min_version) {
    if (request_.ranges().empty()) return OnRead(std::nullopt);
    proto::PullRequest request;
    *request.mutable_sender() = request_.sender();
    request.set_min_version(min_version);
    *request.mutable_ranges() = request_.ranges();
    request.set_wait_ms(request_.wait_ms());
    machines_.shard->Pull(
        request, [self = shared_from_this()](absl::StatusOr<PullReply> values) {
          // Without them the caller pulls by itself, and hears the error then.
          if (!values.ok()) return self->OnRead(std::nullopt);
          self->OnRead(*std::move(values));
        });
  }

  void OnRead(std::optional<PullReply> values) {
    {
      absl::MutexLock lock(&mutex_);
      if (values.has_value()) values_ = std::move(values);
      read_ = true;
    }
    AnswerWhenComplete();
  }

  // Both strands may find it complete at once; one of them answers.
  void AnswerWhenComplete() {
    std::optional<Reply<PushPullReply>> reply;
    PushPullReply answer;
    {
      absl::MutexLock lock(&mutex_);
      if (!decided_ || !read_ || !reply_.has_value()) return;
      reply.swap(reply_);
      answer = std::move(answer_);
      if (values_.has_value()) {
        answer.response.set_version(values_->version.value());
        answer.response.set_loss_scale(values_->loss_scale);
        answer.tensors = std::move(values_->tensors);
        if (values_->state.phase() == proto::DONE ||
            values_->state.phase() == proto::FAILED) {
          *answer.response.mutable_state() = std::move(values_->state);
        }
      }
    }
    (*reply)(std::move(answer));
  }

  void Fail(const absl::Status& error) { Answer(error); }

  // The first counts: a contribution may fail while the values are awaited.
  void Answer(absl::StatusOr<PushPullReply> answer) {
    std::optional<Reply<PushPullReply>> reply;
    {
      absl::MutexLock lock(&mutex_);
      reply.swap(reply_);
    }
    if (reply.has_value()) (*reply)(std::move(answer));
  }

  const Machines machines_;
  const proto::PushPullRequest request_;

  absl::Mutex mutex_;
  // Until it is answered.
  std::optional<Reply<PushPullReply>> reply_ ABSL_GUARDED_BY(mutex_);
  PushPullReply answer_ ABSL_GUARDED_BY(mutex_);
  bool decided_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<PullReply> values_ ABSL_GUARDED_BY(mutex_);
  bool read_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

void PushPull(const Machines& machines, proto::PushPullRequest request,
              std::vector<TensorPiece> tensors, Reply<PushPullReply> reply) {
  const bool light =
      request.has_contribution() || EncodedBytes(tensors) <= kLightUpdateBytes;
  auto exchange = std::make_shared<Exchange>(machines, std::move(request),
                                             std::move(reply));
  // Only an application does work.
  auto start = [exchange, tensors = std::move(tensors)]() mutable {
    exchange->Start(std::move(tensors));
  };
  if (light) {
    machines.shard_strand->RunOrPost(std::move(start));
  } else {
    machines.shard_strand->Post(std::move(start));
  }
}

}  // namespace holdfast
