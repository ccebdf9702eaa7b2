// SPDX-License-Identifier: Apache-2.0
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

// One attempt of a call to a ps. The messages belong to the caller, and must
// stay valid until `done` has been called.
struct Attempt {
  const Rpc* rpc;
  uint32_t ps;
  // The attempt ends with DEADLINE_EXCEEDED after this time.
  absl::Duration timeout;
  const google::protobuf::Message* request;
  // The request's tensors, which are not in the message. They may refer to the
  // user's memory, which belongs to the user again once their owners are gone.
  absl::Span<const TensorPiece> request_tensors;
  google::protobuf::Message* response;
  // Null if the response has none.
  std::vector<TensorPiece>* response_tensors;
  // Receives the result of the attempt. Must be called exactly once, without
  // locks. `response` is not read after an error.
  absl::AnyInvocable<void(const absl::Status&)> done;
};

// A client's interface to the outside world: exchanging messages with the ps
// tasks, and time. All of a client's decisions are made on the client's side of
// this interface, so a test that implements it controls the production client
// completely, in a single thread if desired.
//
// Thread-safe; but see Wait.
class Transport : public Clock {
 public:
  // An attempt or a pause, which can be cancelled.
  class Operation {
   public:
    virtual ~Operation() = default;
    // Makes the operation end soon, unless it has ended. At any time, without
    // locks. A single-threaded transport releases `done` or `over` at once
    // without calling it, because the caller of Cancel then waits until nothing
    // refers to the user's memory.
    virtual void Cancel() = 0;
  };
  class AttemptOperation : public Operation {
   public:
    // Sends the request. Once, without locks.
    virtual void Start() = 0;
  };

  // Prepares an attempt, which may be cancelled from then on, even before it is
  // started. With mutex() held.
  virtual std::shared_ptr<AttemptOperation> Prepare(Attempt attempt) = 0;
  // Calls `over`, without locks, after `delay` or soon after it is cancelled,
  // but not before After has returned. With mutex() held.
  virtual std::shared_ptr<Operation> After(absl::Duration delay,
                                           absl::AnyInvocable<void()> over) = 0;

  // Waits until `over()`, which is called with mutex() held, or until `until`.
  // With mutex() held. Used only by blocking calls (Await).
  virtual void Wait(absl::FunctionRef<bool()> over, absl::Time until) = 0;

  // The single lock of a client: a thread that waits for an answer must be
  // woken by the one that delivers it.
  virtual absl::Mutex& mutex() = 0;

  // The ps tasks with which tensors can pass through shared memory; null if
  // none. Without locks.
  virtual Neighbors* neighbors() { return nullptr; }
  // Whether there is currently a link to a ps, indexed by ps. Empty: to none.
  // Without locks.
  virtual std::vector<bool> linked() { return {}; }

  // For randomizing the length of pauses. With mutex() held.
  virtual absl::BitGenRef random() = 0;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TRANSPORT_H_
