// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_WIRE_H_
#define HOLDFAST_CLIENT_WIRE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/context.h"
#include "client/neighbors.h"
#include "client/transport.h"
#include "common/base/clock.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/credentials.h"
#include "common/rpc/diagnosis.h"
#include "common/trace/trace.h"

namespace holdfast::client {

// The transport over gRPC, and the only part of the client that knows gRPC. A
// thread that waits for an answer reads incoming messages
// (docs/architecture.md, "Threads and waits"); the wire has its own thread for
// times when no other thread waits.
//
// Thread-safe.
class Wire final : public Transport {
 public:
  // `ps_addresses`: host:port, indexed by ps. `tracers`: record attempts; may
  // be null. `neighbors`: null if all tensors must pass over the network.
  Wire(const std::vector<std::string>& ps_addresses,
       const Credentials& credentials, const std::vector<Tracer*>& tracers,
       std::unique_ptr<Neighbors> neighbors);
  // Waits until gRPC has released all calls, whose groups must be cancelled.
  ~Wire() override;

  // Waits until there is a connection to every ps, and each has confirmed its
  // identity. `fail_fast`: gives up as soon as it is certain why there is no
  // connection. `give_up`, unless empty, is polled meanwhile.
  // Errors: UNAVAILABLE, with the name of the ps and the cause;
  // INVALID_ARGUMENT for a mistake (Diagnosis::kMistake), such as another ps at
  // its address; CANCELLED if `give_up` said so; the reason if the context has
  // ended.
  absl::Status AwaitConnected(const std::shared_ptr<Context>& context,
                              absl::Time deadline, bool fail_fast,
                              const std::function<bool()>& give_up);

  // For a session's calls, which are polled together with all others.
  CallQueue* queue() { return &queue_; }

  // The functions of Transport.
  absl::Time Now() const override { return SteadyNow(); }
  std::shared_ptr<AttemptOperation> Prepare(Attempt attempt) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Operation> After(absl::Duration delay,
                                   absl::AnyInvocable<void()> over) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wait(absl::FunctionRef<bool()> over, absl::Time until) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Neighbors* neighbors() override { return neighbors_.get(); }
  std::vector<bool> linked() override {
    return neighbors_ != nullptr ? neighbors_->linked() : std::vector<bool>();
  }
  absl::Mutex& mutex() override { return mutex_; }
  absl::BitGenRef random() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return random_;
  }

 private:
  class GrpcAttempt;
  class GrpcPause;
  // Where attempts are recorded: a track for each kind of channel, indexed by
  // ps.
  struct Recorder {
    Tracer* tracer;
    std::vector<Tracer::Track> tensors;
    std::vector<Tracer::Track> control;
  };
  struct Ps;

  // Which thread polls the queue. Best is a thread that waits for an answer,
  // because it need not be woken when the answer arrives. Neither a polling
  // thread nor the wire's thread wakes up before there is something to do,
  // however long that takes.
  struct Polling {
    // Whether what the polling thread waits for has been brought about by
    // another thread. False if called by the polling thread, which happens
    // because absl::Condition is evaluated whenever a thread unlocks the mutex:
    // that thread notices by itself what its own answers bring about.
    bool IsOverForPoller() const {
      return over != nullptr && std::this_thread::get_id() != poller &&
             (*over)();
    }

    // Whether a thread is polling. Only one polls at a time.
    bool busy = false;
    // Whether the polling thread may be woken when another thread waits.
    bool may_be_woken = false;
    // The condition that the polling thread itself waits for, and its id. Null
    // if the polling thread waits for no condition.
    const absl::FunctionRef<bool()>* over = nullptr;
    std::thread::id poller;
    // How often a waiting thread has polled.
    uint64_t turns = 0;
    // The number of waiting threads.
    int waiters = 0;
    // Whether something is in flight for which no thread waits yet.
    bool wanted = false;
  };

  // The wire's thread: polls while no other thread waits, and wakes the polling
  // thread.
  void Run();
  void PollUntilWaiter(bool idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status AwaitConnection(const Context& context, uint32_t ps,
                               absl::Time deadline, bool fail_fast,
                               const std::function<bool()>& give_up,
                               absl::Time* report);
  absl::Status AwaitNames(const std::shared_ptr<Context>& context,
                          absl::Time deadline,
                          const std::function<bool()>& give_up);
  // Returns the error that something other than ps `ps` is at its address. If
  // this is another ps, the error says where the ClusterSpec has that ps.
  absl::Status Mistake(const Context& context, uint32_t ps,
                       const Diagnosis& diagnosis) const;

  // Whether a tracer would record an attempt that begins now.
  bool recording() const;

  const Credentials credentials_;
  std::vector<Recorder> recorders_;
  std::vector<Ps> ps_;
  const std::unique_ptr<Neighbors> neighbors_;

  absl::Mutex mutex_;
  Polling polling_ ABSL_GUARDED_BY(mutex_);
  // The number of attempts and pauses that gRPC has not released.
  int64_t out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::InsecureBitGen random_ ABSL_GUARDED_BY(mutex_);

  // For all calls, including the session's.
  CallQueue queue_;
  std::thread thread_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_WIRE_H_
