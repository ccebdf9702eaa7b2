// SPDX-License-Identifier: Apache-2.0
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

// A completion queue with everything that a process has in progress with gRPC:
// its own calls, and those that an RpcServer serves.
//
// Few threads should wait inside gRPC, on this queue or on others: one of them
// watches all sockets of the process, and hands the sockets over to the next
// thread before it looks at what arrived. A call of 16 bytes takes 45 us if one
// thread waits on each side, and 100 us if two do (docs/reports/wire.md). So
// blocking stubs and gRPC's callback API, which wait in threads of their own,
// are only for short calls. A waiting thread polls briefly before it sleeps, if
// that has been worthwhile (busy_poll.h).
//
// Thread-safe.
class CallQueue {
 public:
  // The owner of operations in progress. It must live until all of its
  // operations have completed and Happen has been called for each.
  class Event {
   public:
    virtual ~Event() = default;
    // Handles the completion of an operation, of which gRPC reports `ok`.
    // Called by a polling thread.
    virtual void Happen(bool ok) = 0;
  };

  // Called by a polling thread when a call has ended. It may move the response
  // out.
  using OnEnd =
      std::function<void(const grpc::Status&, grpc::ByteBuffer* response)>;

  CallQueue();
  // Makes a CallQueue of a server's queue.
  explicit CallQueue(std::unique_ptr<grpc::CompletionQueue> queue);
  // No operation may be in progress.
  ~CallQueue();

  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Starts a unary call. `context` must outlive the call.
  void Start(grpc::GenericStub* stub, const std::string& method,
             grpc::ClientContext* context, const grpc::ByteBuffer& request,
             OnEnd on_end);

  // Waits for the next operation to complete, and runs its Happen. Returns
  // false if none completed by the deadline, or the queue is closed and
  // drained.
  bool Poll(absl::Time deadline);

  // Makes one thread that waits in Poll return soon.
  void Wake();

  // A completed operation, found by a polling thread.
  struct Completion {
    Event* event;
    bool ok;
    void Happen() const { event->Happen(ok); }
  };
  // kClosed means that Close was called, and that no operation is in progress.
  enum class Look { kFound, kNothing, kClosed };

  // Look for a completed operation, once or until `deadline`, without running
  // its Happen. For threads that have something to do between the two
  // (CallThreads); the thread that finds a completion must call its Happen.
  Look LookOnce(Completion* completion);
  Look LookUntil(absl::Time deadline, Completion* completion);

  // Closes the queue: no operation may be started afterwards.
  void Close();

  grpc::CompletionQueue* get() { return queue_.get(); }

 private:
  Look Next(gpr_timespec deadline, Completion* completion);

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  BusyPoll busy_poll_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_CALL_QUEUE_H_
