#ifndef HOLDFAST_COMMON_RPC_CALL_QUEUE_H_
#define HOLDFAST_COMMON_RPC_CALL_QUEUE_H_

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/rpc/busy_poll.h"

namespace holdfast {

// What a process has under way with gRPC, on one completion queue: its calls,
// and what an RpcServer serves.
//
// Few threads should be inside gRPC's waits, of this queue or of others: one of
// them watches all sockets of the process, and hands that over to the next
// before it looks at what came. A call of 16 bytes takes 45 us where one thread
// waits on either side, 100 us where two do (docs/performance.md). So blocking
// stubs and gRPC's callback API, which wait by threads of their own, are for
// calls that are soon over. Who waits looks for a while before it sleeps, where
// that is worth while (busy_poll.h).
//
// Thread-safe.
class CallQueue {
 public:
  // Something under way. It must live until all its operations have happened.
  class Event {
   public:
    virtual ~Event() = default;
    // An operation is over; `ok` is gRPC's. Called by a thread that polls.
    virtual void Happen(bool ok) = 0;
  };

  // Tells a call's end, by a thread that polls. The response may be taken.
  using OnEnd =
      std::function<void(const grpc::Status&, grpc::ByteBuffer* response)>;

  CallQueue();
  // A server's.
  explicit CallQueue(std::unique_ptr<grpc::CompletionQueue> queue);
  // Nothing may be under way.
  ~CallQueue();

  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Begins a unary call. `context` must outlive it.
  void Start(grpc::GenericStub* stub, const std::string& method,
             grpc::ClientContext* context, const grpc::ByteBuffer& request,
             OnEnd on_end);

  // Waits for the next operation to be over, and lets it happen; returns false
  // when none was until the deadline, or none will be after Close.
  bool Poll(absl::Time deadline);

  // Has a Poll return soon, if it waits.
  void Wake();

  // An operation that is over, found by a thread that polls.
  struct Completion {
    Event* event;
    bool ok;
    void Happen() const { event->Happen(ok); }
  };
  // kClosed: nothing is under way after Close.
  enum class Look { kFound, kNothing, kClosed };

  // For threads that tell finding an operation from letting it happen
  // (CallThreads). Whoever finds a completion has to let it happen.
  Look LookOnce(Completion* completion);
  Look LookUntil(absl::Time deadline, Completion* completion);

  // Nothing may begin after it.
  void Close();

  grpc::CompletionQueue* get() { return queue_.get(); }

 private:
  Look Next(gpr_timespec deadline, Completion* completion);

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  BusyPoll busy_poll_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_CALL_QUEUE_H_
