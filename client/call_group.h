// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_CALL_GROUP_H_
#define HOLDFAST_CLIENT_CALL_GROUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/call.h"
#include "client/context.h"
#include "client/rpc.h"

namespace holdfast::client {

// Receives the answer to a call. Called without locks by the thread that reads
// incoming messages, often one that waits for another answer.
template <typename Response>
using Answer = absl::AnyInvocable<Next(absl::StatusOr<Response>)>;

// Makes the calls of one handle (call.h), and waits for them.
//
// A call without an answer continues until its group is cancelled or its
// generation is over: calls have no deadline, only Await has one. Errors that
// reach the Answer are permanent, and begin with the name of the ps.
//
// Thread-safe; Cancel and the destructor must not be called by an Answer of the
// group, nor by a function passed to After.
class CallGroup {
 public:
  // Makes a group for calls that belong to no generation: each attempt is made
  // in the newest generation.
  explicit CallGroup(std::shared_ptr<Context> context);
  // Makes a group whose calls all come from `sender`. They can no longer
  // succeed once the generation of `sender` is over.
  CallGroup(std::shared_ptr<Context> context,
            std::shared_ptr<const proto::Sender> sender);
  // Calls Cancel.
  ~CallGroup();

  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;

  // For calls whose results are not needed once the job is DONE: from then on,
  // a call whose ps does not answer several attempts ends with
  // FAILED_PRECONDITION instead of being retried. Must be called before Start.
  void EndWithJob() ABSL_LOCKS_EXCLUDED(context_->mutex) {
    absl::MutexLock lock(&context_->mutex);
    state_->ends_with_job = true;
  }

  // Calls a ps, which is ps 0 for calls to the coordinator. Fills in the
  // request's sender. Does not copy the bytes of the request's tensors, but
  // keeps the owners of the bytes until the transport has released them, which
  // may be after Cancel.
  template <typename Request, typename Response>
  void Start(const RpcOf<Request, Response>& rpc, uint32_t ps,
             std::common_type_t<Request> request,
             std::common_type_t<Answer<Response>> answer) const;

  // Cancels all calls and pauses. Once this has returned, no Answer and no
  // function passed to After is running or will run.
  void Cancel();

  // Calls `what` after `delay`, without locks.
  void After(absl::Duration delay, absl::AnyInvocable<void()> what);
  // Calls `what` after the next pause of `backoff`, without locks.
  void After(Backoff* backoff, absl::AnyInvocable<void()> what)
      ABSL_LOCKS_EXCLUDED(context_->mutex);

  // Whether calls of the group can no longer succeed. With the lock held.
  bool IsOver() const { return context_->IsOver(state_->sender.get()); }

  // Waits until `done`, until calls of the group can no longer succeed, or
  // until `deadline`, and calls on_waiting meanwhile. `what` describes what is
  // waited for. `done` and `what` are called with the context's lock held.
  // Errors: those of Context::WhyOver; at the deadline UNAVAILABLE if a peer
  // could not be reached, otherwise DEADLINE_EXCEEDED, both with `what`.
  absl::Status Await(absl::Time deadline, absl::FunctionRef<bool()> done,
                     absl::FunctionRef<std::string()> what) const;
  // Waits like Await, but continues to wait when calls can no longer succeed.
  absl::Status AwaitRegardless(absl::Time deadline,
                               absl::FunctionRef<bool()> done,
                               absl::FunctionRef<std::string()> what) const;

  // The time at which to call on_waiting next during one wait.
  using NextReport = std::optional<absl::Time>;
  // Waits like Await, but returns false at `until`, after which another call
  // may resume the wait. `*report` must be nullopt in the first call of a wait,
  // and the caller must keep it for the following calls.
  bool Wait(absl::Time until, absl::FunctionRef<bool()> done,
            absl::FunctionRef<std::string()> what, NextReport* report) const;

 private:
  // `over` returns whether there is nothing more to wait for.
  bool WaitLocked(absl::Time until, absl::FunctionRef<bool()> over,
                  absl::FunctionRef<std::string()> what,
                  NextReport* report) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  absl::Status AwaitUntil(absl::Time deadline, bool regardless,
                          absl::FunctionRef<bool()> done,
                          absl::FunctionRef<std::string()> what) const;
  // Returns why a call is being retried, or OK if none is being retried.
  // Appends the reason to `*what`, with the name of the ps unless `*what`
  // contains it. Must be called with the lock held.
  absl::Status AddTrouble(std::string* what) const;

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<GroupState> state_;
};

// ---- Template implementations ----

namespace internal {

template <typename Message>
Message& MessageOf(Message& message) {
  return message;
}
template <typename Message>
Message& MessageOf(WithTensors<Message>& message) {
  return message.message;
}
template <typename Message>
const Message& MessageOf(const WithTensors<Message>& message) {
  return message.message;
}
template <typename Message>
std::vector<TensorPiece>* TensorsOf(Message&) {
  return nullptr;
}
template <typename Message>
std::vector<TensorPiece>* TensorsOf(WithTensors<Message>& message) {
  return &message.tensors;
}

// Accessors for fields that only some messages have. Of the two overloads, the
// one with `int` is chosen if the message has the field.
template <typename M>
auto SetSender(const proto::Sender& sender, M* request, int)
    -> decltype(request->mutable_sender(), void()) {
  *request->mutable_sender() = sender;
}
template <typename M>
void SetSender(const proto::Sender&, M*, long) {}

template <typename M>
auto ParkOf(const M& request, int)
    -> decltype(request.wait_ms(), absl::Duration()) {
  return absl::Milliseconds(request.wait_ms());
}
template <typename M>
absl::Duration ParkOf(const M&, long) {
  return absl::ZeroDuration();
}

template <typename M>
auto GenerationOf(const M& response, int)
    -> std::optional<decltype(response.generation())> {
  return response.generation();
}
template <typename M>
std::optional<uint64_t> GenerationOf(const M&, long) {
  return std::nullopt;
}

template <typename M>
auto StateOf(const M& response, int) -> decltype(&response.state()) {
  return &response.state();
}
template <typename M>
const proto::JobState* StateOf(const M&, long) {
  return nullptr;
}

template <typename M>
auto DurableStepOf(const M& response, int)
    -> std::optional<decltype(response.durable_step())> {
  return response.durable_step();
}
template <typename M>
std::optional<uint64_t> DurableStepOf(const M&, long) {
  return std::nullopt;
}

template <typename M>
auto VerdictOf(const M& response, int) -> decltype(response.verdict()) {
  return response.verdict();
}
template <typename M>
proto::Verdict VerdictOf(const M&, long) {
  return proto::VERDICT_UNSPECIFIED;
}

template <typename Request, typename Response>
class CallOf final : public Call {
 public:
  CallOf(std::shared_ptr<Context> context, std::shared_ptr<GroupState> group,
         const Rpc& rpc, uint32_t ps, Request request, Answer<Response> answer)
      : Call(std::move(context), std::move(group), rpc, ps),
        request_(std::move(request)),
        answer_(std::move(answer)) {}

 private:
  void FillIn(const proto::Sender& sender, Attempt* attempt) override {
    SetSender(sender, &MessageOf(request_), 0);
    response_ = Response();
    attempt->timeout += ParkOf(MessageOf(request_), 0);
    attempt->request = &MessageOf(request_);
    if (const auto* tensors = TensorsOf(request_)) {
      attempt->request_tensors = *tensors;
    }
    attempt->response = &MessageOf(response_);
    attempt->response_tensors = TensorsOf(response_);
  }

  Says WhatItSays() const override {
    const auto& message = MessageOf(response_);
    return {GenerationOf(message, 0), StateOf(message, 0),
            DurableStepOf(message, 0), VerdictOf(message, 0)};
  }

  Next Tell(const absl::Status& status) override {
    return status.ok() ? answer_(std::move(response_)) : answer_(status);
  }

  // The same in all attempts except for its sender.
  Request request_;
  Answer<Response> answer_;
  Response response_;
};

}  // namespace internal

template <typename Request, typename Response>
void CallGroup::Start(const RpcOf<Request, Response>& rpc, uint32_t ps,
                      std::common_type_t<Request> request,
                      std::common_type_t<Answer<Response>> answer) const {
  std::make_shared<internal::CallOf<Request, Response>>(
      context_, state_, rpc, ps, std::move(request), std::move(answer))
      ->Start();
}

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CALL_GROUP_H_
