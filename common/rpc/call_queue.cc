#include "common/rpc/call_queue.h"

#include <grpcpp/alarm.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"

namespace holdfast {
namespace {

constexpr std::chrono::system_clock::time_point kAtOnce;

// So many operations found without waiting, one after the other, are too much
// for a thread.
constexpr int kMany = 16;

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
  Serve();
}

void CallQueue::Start(grpc::GenericStub* stub, const std::string& method,
                      grpc::ClientContext* context,
                      const grpc::ByteBuffer& request, Done done) {
  // Deletes itself.
  new Call(stub, method, context, request, queue_.get(), std::move(done));
}

bool CallQueue::Next(absl::Time deadline, bool* happened) {
  void* tag;
  bool ok;
  auto next = grpc::CompletionQueue::TIMEOUT;
  if (busy_poll_.May()) {
    const absl::Time until =
        std::min(deadline, absl::Now() + BusyPoll::kLength);
    for (;;) {
      next = queue_->AsyncNext(&tag, &ok, kAtOnce);
      if (next != grpc::CompletionQueue::TIMEOUT || absl::Now() >= until) break;
      // Whoever else wants this core comes first.
      sched_yield();
    }
    busy_poll_.Tell(/*in_vain=*/next == grpc::CompletionQueue::TIMEOUT);
  }
  if (next == grpc::CompletionQueue::TIMEOUT) {
    next = queue_->AsyncNext(&tag, &ok, absl::ToChronoTime(deadline));
  }
  *happened = next == grpc::CompletionQueue::GOT_EVENT;
  if (*happened) static_cast<Event*>(tag)->Happen(ok);
  return next != grpc::CompletionQueue::SHUTDOWN;
}

bool CallQueue::Poll(absl::Time deadline) {
  bool happened;
  Next(deadline, &happened);
  return happened;
}

void CallQueue::Wake() {
  // Deletes itself.
  new WakeUp(queue_.get());
}

void CallQueue::Serve() {
  const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return over_ || serving_ < wanted_;
  };
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(&due));
    if (over_) return;
    ++serving_;
    mutex_.Unlock();
    ServeAWhile();
    mutex_.Lock();
    --serving_;
  }
}

void CallQueue::ServeAWhile() {
  int found_at_once = 0;
  for (;;) {
    void* tag;
    bool ok;
    const auto next = queue_->AsyncNext(&tag, &ok, kAtOnce);
    if (next == grpc::CompletionQueue::SHUTDOWN) break;
    if (next == grpc::CompletionQueue::GOT_EVENT) {
      if (++found_at_once == kMany) {
        found_at_once = 0;
        absl::MutexLock lock(&mutex_);
        // One more than there are: it may be that none is left.
        wanted_ = serving_ + 1;
      }
      static_cast<Event*>(tag)->Happen(ok);
      continue;
    }
    found_at_once = 0;
    {
      absl::MutexLock lock(&mutex_);
      wanted_ = 1;
      if (serving_ > 1) return;
    }
    bool happened;
    if (!Next(absl::InfiniteFuture(), &happened)) break;
  }
  absl::MutexLock lock(&mutex_);
  over_ = true;
}

void CallQueue::Close() { queue_->Shutdown(); }

CallThreads::CallThreads(CallQueue* queue, int threads, const std::string& name)
    : queue_(queue) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([queue] { queue->Serve(); });
    pthread_setname_np(threads_.back().native_handle(), name.c_str());
  }
}

CallThreads::~CallThreads() {
  queue_->Close();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace holdfast
