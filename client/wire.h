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
// thread that waits for an answer reads what comes in (docs/architecture.md,
// "Who waits"); the wire has a thread of its own for times when nobody waits.
//
// Thread-safe.
class Wire final : public Transport {
 public:
  // `ps_addresses`: host:port, by ps index. `tracers`: where attempts are
  // recorded; nowhere where one is null. `neighbors`: null where all tensors
  // are to pass over the network.
  Wire(const std::vector<std::string>& ps_addresses,
       const Credentials& credentials, const std::vector<Tracer*>& tracers,
       std::unique_ptr<Neighbors> neighbors);
  // Waits until gRPC has let go of all calls, whose groups must be cancelled.
  ~Wire() override;

  // Waits until there is a connection to every ps, and each has said that it is
  // the one that is meant. `fail_fast`: not any longer once it is certain why
  // there is none. `give_up`, unless empty, is asked meanwhile.
  // Errors: UNAVAILABLE, with the name of the ps and the cause;
  // INVALID_ARGUMENT when it is a mistake (Diagnosis::kMistake), as another ps
  // at its address; CANCELLED when it was to give up; why the context has
  // ended.
  absl::Status AwaitConnected(const std::shared_ptr<Context>& context,
                              absl::Time deadline, bool fail_fast,
                              const std::function<bool()>& give_up);

  // For a session's calls, which are polled with all others.
  CallQueue* queue() { return &queue_; }

  // Transport:
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
  // Where attempts are recorded: a row for each kind of channel, by ps.
  struct Recorder {
    Tracer* tracer;
    std::vector<Tracer::Track> tensors;
    std::vector<Tracer::Track> control;
  };
  struct Ps;

  // Who polls the queue. A thread that waits for an answer does it best: it
  // need not be woken then. Neither wakes up before there is something to do,
  // however long that takes.
  struct Polling {
    // Whether the thread that polls waits for something that has come about by
    // another thread's hand. What its own answers bring about it sees by
    // itself, and so does not count where this is evaluated by that thread: as
    // part of an absl::Condition, whenever it unlocks the mutex.
    bool IsOverForPoller() const {
      return over != nullptr && std::this_thread::get_id() != poller &&
             (*over)();
    }

    // A thread does; one does at a time.
    bool busy = false;
    // It is to be woken where somebody waits.
    bool may_be_woken = false;
    // If it waits itself: whether it has what it waits for, and which it is.
    const absl::FunctionRef<bool()>* over = nullptr;
    std::thread::id poller;
    // How often a thread that waits has done it.
    uint64_t turns = 0;
    // Threads that wait.
    int waiters = 0;
    // Something is on its way for which nobody waits yet.
    bool wanted = false;
  };

  // Polls while nobody waits, and wakes who polls.
  void Run();
  void PollUntilWaiter(bool idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status AwaitConnection(const Context& context, uint32_t ps,
                               absl::Time deadline, bool fail_fast,
                               const std::function<bool()>& give_up,
                               absl::Time* report);
  absl::Status AwaitNames(const std::shared_ptr<Context>& context,
                          absl::Time deadline,
                          const std::function<bool()>& give_up);
  // That ps `ps` is not what is at its address, and where that should be.
  absl::Status Mistake(const Context& context, uint32_t ps,
                       const Diagnosis& diagnosis) const;

  // Whether an attempt that begins is recorded.
  bool recording() const;

  const Credentials credentials_;
  std::vector<Recorder> recorders_;
  std::vector<Ps> ps_;
  const std::unique_ptr<Neighbors> neighbors_;

  absl::Mutex mutex_;
  Polling polling_ ABSL_GUARDED_BY(mutex_);
  // Attempts and pauses that gRPC has not let go of.
  int64_t out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::InsecureBitGen random_ ABSL_GUARDED_BY(mutex_);

  // Of all calls, the session's too.
  CallQueue queue_;
  std::thread thread_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_WIRE_H_
