#ifndef HOLDFAST_CLIENT_TRANSPORT_H_
#define HOLDFAST_CLIENT_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/random/bit_gen_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/rpc.h"
#include "common/base/clock.h"
#include "common/tensor/tensor_piece.h"
#include "google/protobuf/message.h"

namespace holdfast::client {

class Neighbors;

// One attempt of a call to a ps. The messages are the caller's, and stay where
// they are until `done` has been called.
struct Attempt {
  const Rpc* rpc;
  uint32_t ps;
  // After which it ends with DEADLINE_EXCEEDED.
  absl::Duration timeout;
  const google::protobuf::Message* request;
  // The request's tensors, which are not in the message. The memory that they
  // refer to may be the user's: it is the user's again when their owners are
  // gone.
  absl::Span<const TensorPiece> request_tensors;
  google::protobuf::Message* response;
  // Null where the response has none.
  std::vector<TensorPiece>* response_tensors;
  // To be called once, whatever comes, without locks. On an error `response` is
  // not read.
  absl::AnyInvocable<void(const absl::Status&)> done;
};

// What a client needs of the world outside: that messages go to the ps tasks
// and answers come, and that time passes. Everything that a client decides is
// decided on this side of it, so a test that implements it has the production
// client in its hand, in one thread if it likes.
//
// Thread-safe, but see Wait.
class Transport : public Clock {
 public:
  // An attempt, or a pause.
  class Operation {
   public:
    virtual ~Operation() = default;
    // Has it end soon, if it has not. At any time, without locks. Where one
    // thread does everything, it lets go of `done` or `over` at once, uncalled:
    // whoever cancels then waits until nobody refers to the user's memory.
    virtual void Cancel() = 0;
  };
  class AttemptOperation : public Operation {
   public:
    // Sends the request. Once, without locks.
    virtual void Start() = 0;
  };

  // The attempt may be cancelled from then on, also before it is started. With
  // mutex() held.
  virtual std::shared_ptr<AttemptOperation> Prepare(Attempt attempt) = 0;
  // Calls `over`, without locks, after `delay` or soon after it is cancelled,
  // but not before After has returned. With mutex() held.
  virtual std::shared_ptr<Operation> After(absl::Duration delay,
                                           absl::AnyInvocable<void()> over) = 0;

  // Waits until `over`, which is called with mutex() held, or until the time.
  // With mutex() held. Only blocking calls (Await) come here.
  virtual void Wait(absl::FunctionRef<bool()> over, absl::Time until) = 0;

  // The one lock of a client: whoever waits for an answer has to be woken by
  // whoever brings it.
  virtual absl::Mutex& mutex() = 0;

  // The ps tasks with which tensors can pass through shared memory. Null: with
  // none. Without locks.
  virtual Neighbors* neighbors() { return nullptr; }
  // By ps, whether there is a link to it now. Empty: to none. Without locks.
  virtual std::vector<bool> linked() { return {}; }

  // For the length of pauses. With mutex() held.
  virtual absl::BitGenRef random() = 0;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TRANSPORT_H_
