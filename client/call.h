#ifndef HOLDFAST_CLIENT_CALL_H_
#define HOLDFAST_CLIENT_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/call_group.h"
#include "client/context.h"
#include "common/clock.h"
#include "common/rpc/backoff.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "proto/cluster.pb.h"

namespace holdfast::client {

// A call of a group, from its first attempt to its answer. It keeps itself and
// its group's state alive until gRPC has let go of it.
class Call {
 public:
  // What gRPC is doing for a call. Cancelled without the lock held, because
  // gRPC takes locks of its own.
  struct Underway {
    std::shared_ptr<grpc::ClientContext> attempt;
    std::shared_ptr<grpc::Alarm> pause;

    void Cancel() {
      if (attempt != nullptr) attempt->TryCancel();
      if (pause != nullptr) pause->Cancel();
    }
  };

  virtual ~Call() = default;

  // Guarded by the context's mutex.
  Underway underway;
  // Why the last attempt is made again, until there is an answer; and who was
  // asked.
  absl::Status trouble;
  std::string peer;
};

// Guarded by the context's mutex.
struct CallGroup::State {
  // Who speaks in all calls. Never changed. Absent: the newest of the context.
  std::optional<proto::Sender> sender;
  std::set<std::shared_ptr<Call>> calls;
  // Answers that are being told at this moment.
  int answering = 0;
  bool cancelled = false;
};

// One attempt: a method of a stub's async() interface.
template <typename Request, typename Response>
using Method =
    std::function<void(grpc::ClientContext*, const Request*, Response*,
                       std::function<void(grpc::Status)>)>;

// Whether an error is one that only news of the job can explain.
using Unexplained = bool (*)(const absl::Status& error);

// Sets the sender, in requests that have one.
template <typename Request>
auto SetSender(const proto::Sender& sender, Request* request, int)
    -> decltype(request->mutable_sender(), void()) {
  *request->mutable_sender() = sender;
}
template <typename Request>
void SetSender(const proto::Sender&, Request*, long) {}

template <typename Request, typename Response>
class UnaryCall
    : public Call,
      public std::enable_shared_from_this<UnaryCall<Request, Response>> {
 public:
  // `peer` is named in errors. An attempt may take `timeout`.
  UnaryCall(std::shared_ptr<Context> context,
            std::shared_ptr<CallGroup::State> group, std::string peer,
            absl::Duration timeout, Unexplained unexplained,
            Method<Request, Response> method, Request request,
            Answer<Response> answer)
      : context_(std::move(context)),
        group_(std::move(group)),
        timeout_(timeout),
        unexplained_(unexplained),
        method_(std::move(method)),
        request_(std::move(request)),
        answer_(std::move(answer)) {
    this->peer = std::move(peer);
  }

  // Called once. In a cancelled group nothing happens.
  void Start() ABSL_LOCKS_EXCLUDED(context_->mutex) {
    {
      absl::MutexLock lock(&context_->mutex);
      if (group_->cancelled) return;
      group_->calls.insert(this->shared_from_this());
      ++context_->calls_out;
    }
    Attempt();
  }

 private:
  void Attempt() {
    std::shared_ptr<grpc::ClientContext> attempt;
    {
      absl::MutexLock lock(&context_->mutex);
      underway.pause = nullptr;
      if (group_->cancelled) return Finish();
      began_ = SteadyNow();
      attempt = std::make_shared<grpc::ClientContext>();
      attempt->set_deadline(GrpcDeadline(began_ + timeout_));
      underway.attempt = attempt;
      SetSender(group_->sender.value_or(context_->sender()), &request_, 0);
      response_ = Response();
    }
    method_(attempt.get(), &request_, &response_,
            [self = this->shared_from_this()](grpc::Status status) {
              self->OnAnswer(FromGrpcStatus(status));
            });
  }

  void OnAnswer(const absl::Status& status) {
    const absl::Status named =
        status.ok() ? status
                    : absl::Status(status.code(),
                                   absl::StrCat(peer, ": ", status.message()));
    {
      absl::MutexLock lock(&context_->mutex);
      underway.attempt = nullptr;
      if (group_->cancelled) return Finish();
      if (IsTransient(status)) {
        trouble = status;
        return Pause();
      }
      trouble = unexplained_(status) ? status : absl::OkStatus();
      ++group_->answering;
    }
    Next next = Next::kAgain;
    if (unexplained_(status)) {
      context_->on_unexplained();
    } else {
      next = named.ok() ? answer_(std::move(response_)) : answer_(named);
    }
    absl::ReleasableMutexLock lock(&context_->mutex);
    --group_->answering;
    if (next == Next::kDone || group_->cancelled ||
        context_->IsOver(group_->sender)) {
      return Finish();
    }
    // A peer that had parked the call is asked again at once, another one not,
    // so that we do not ask in circles.
    if (SteadyNow() - began_ < context_->timing.park / 2) return Pause();
    backoff_.Reset();
    lock.Release();
    Attempt();
  }

  void Pause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex) {
    underway.pause = std::make_shared<grpc::Alarm>();
    // The alarm holds the function until it is destroyed, by Attempt.
    underway.pause->Set(
        GrpcDeadline(SteadyNow() + backoff_.Next()),
        [self = this->shared_from_this()](bool) { self->Attempt(); });
  }

  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex) {
    group_->calls.erase(this->shared_from_this());
    --context_->calls_out;
  }

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<CallGroup::State> group_;
  const absl::Duration timeout_;
  const Unexplained unexplained_;
  const Method<Request, Response> method_;
  // But for the sender always the same.
  Request request_;
  Answer<Response> answer_;
  Response response_;
  Backoff backoff_;
  absl::Time began_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CALL_H_
