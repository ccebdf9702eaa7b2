#include "common/rpc/call_queue.h"

#include <grpcpp/alarm.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"

namespace holdfast {
namespace {

constexpr std::chrono::system_clock::time_point kAtOnce;

class Call final : public CallQueue::Event {
 public:
  Call(grpc::GenericStub* stub, const std::string& method,
       grpc::ClientContext* context, const grpc::ByteBuffer& request,
       grpc::CompletionQueue* queue, CallQueue::Done done)
      : reader_(stub->PrepareUnaryCall(context, method, request, queue)),
        done_(std::move(done)) {
    reader_->StartCall();
    reader_->Finish(&response_, &status_, static_cast<Event*>(this));
  }

  void Happen(bool) override {
    const std::unique_ptr<Call> self(this);
    // It lies in memory that goes with the ClientContext, which is done_'s.
    reader_.reset();
    done_(status_, &response_);
  }

 private:
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader_;
  CallQueue::Done done_;
  grpc::ByteBuffer response_;
  grpc::Status status_;
};

class WakeUp final : public CallQueue::Event {
 public:
  explicit WakeUp(grpc::CompletionQueue* queue) {
    alarm_.Set(queue, absl::ToChronoTime(absl::Now()),
               static_cast<Event*>(this));
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
                      const grpc::ByteBuffer& request, Done done) {
  // Deletes itself.
  new Call(stub, method, context, request, queue_.get(), std::move(done));
}

CallQueue::Look CallQueue::Next(std::chrono::system_clock::time_point deadline,
                                Completion* completion) {
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
        std::min(deadline, absl::Now() + BusyPoll::kLength);
    for (;;) {
      look = LookOnce(completion);
      if (look != Look::kNothing || absl::Now() >= until) break;
      // Whoever else wants this core comes first.
      sched_yield();
    }
    busy_poll_.Tell(/*in_vain=*/look == Look::kNothing);
  }
  if (look != Look::kNothing) return look;
  return Next(absl::ToChronoTime(deadline), completion);
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
