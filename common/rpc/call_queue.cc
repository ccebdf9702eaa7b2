// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/call_queue.h"

#include <grpcpp/alarm.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/rpc/deadline.h"

namespace holdfast {
namespace {

// A deadline in the past: polls without waiting.
const gpr_timespec kAtOnce = gpr_inf_past(GPR_CLOCK_MONOTONIC);

class Call final : public CallQueue::Event {
 public:
  Call(grpc::GenericStub* stub, const std::string& method,
       grpc::ClientContext* context, const grpc::ByteBuffer& request,
       grpc::CompletionQueue* queue, CallQueue::OnEnd on_end)
      : reader_(stub->PrepareUnaryCall(context, method, request, queue)),
        on_end_(std::move(on_end)) {
    reader_->StartCall();
    reader_->Finish(&response_, &status_, static_cast<Event*>(this));
  }

  void Happen(bool) override {
    const std::unique_ptr<Call> self(this);
    // The reader lives in memory owned by the ClientContext, which on_end_ may
    // destroy.
    reader_.reset();
    on_end_(status_, &response_);
  }

 private:
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader_;
  CallQueue::OnEnd on_end_;
  grpc::ByteBuffer response_;
  grpc::Status status_;
};

class WakeUp final : public CallQueue::Event {
 public:
  explicit WakeUp(grpc::CompletionQueue* queue) {
    alarm_.Set(queue, GrpcDeadline(SteadyNow()), static_cast<Event*>(this));
  }

  void Happen(bool) override { delete this; }

 private:
  grpc::Alarm alarm_;
};

}  // namespace

CallQueue::CallQueue() : CallQueue(std::make_unique<grpc::CompletionQueue>()) {}

CallQueue::CallQueue(std::unique_ptr<grpc::CompletionQueue> queue)
    : queue_(std::move(queue)) {}

CallQueue::~CallQueue() {
  Close();
  Completion completion;
  while (LookUntil(absl::InfiniteFuture(), &completion) == Look::kFound) {
    completion.Happen();
  }
}

void CallQueue::Start(grpc::GenericStub* stub, const std::string& method,
                      grpc::ClientContext* context,
                      const grpc::ByteBuffer& request, OnEnd on_end) {
  // Deletes itself.
  new Call(stub, method, context, request, queue_.get(), std::move(on_end));
}

CallQueue::Look CallQueue::Next(gpr_timespec deadline, Completion* completion) {
  void* tag;
  switch (queue_->AsyncNext(&tag, &completion->ok, deadline)) {
    case grpc::CompletionQueue::GOT_EVENT:
      completion->event = static_cast<Event*>(tag);
      return Look::kFound;
    case grpc::CompletionQueue::TIMEOUT:
      return Look::kNothing;
    case grpc::CompletionQueue::SHUTDOWN:
      break;
  }
  return Look::kClosed;
}

CallQueue::Look CallQueue::LookOnce(Completion* completion) {
  return Next(kAtOnce, completion);
}

CallQueue::Look CallQueue::LookUntil(absl::Time deadline,
                                     Completion* completion) {
  Look look = Look::kNothing;
  if (busy_poll_.May()) {
    const absl::Time until =
        std::min(deadline, SteadyNow() + BusyPoll::kLength);
    for (;;) {
      look = LookOnce(completion);
      if (look != Look::kNothing || SteadyNow() >= until) break;
      // Other threads that want this core go first.
      sched_yield();
    }
    busy_poll_.Tell(/*in_vain=*/look == Look::kNothing);
  }
  if (look != Look::kNothing) return look;
  return Next(GrpcDeadline(deadline), completion);
}

bool CallQueue::Poll(absl::Time deadline) {
  Completion completion;
  if (LookUntil(deadline, &completion) != Look::kFound) return false;
  completion.Happen();
  return true;
}

void CallQueue::Wake() {
  // Deletes itself.
  new WakeUp(queue_.get());
}

void CallQueue::Close() { queue_->Shutdown(); }

}  // namespace holdfast
