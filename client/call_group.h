#ifndef HOLDFAST_CLIENT_CALL_GROUP_H_
#define HOLDFAST_CLIENT_CALL_GROUP_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/context.h"

namespace holdfast::client {

// What to do with an answer: take it, or ask the same again.
enum class Next { kDone, kAgain };

// Where the answer to a call goes. Called by the thread that reads what comes
// in, often one that waits for another answer, without locks.
template <typename Response>
using Answer = absl::AnyInvocable<Next(absl::StatusOr<Response>)>;

// The calls that one handle has under way, and its wait for them.
//
// A call that fails with a transient error (common/rpc/backoff.h), or one that
// only news of the job can explain, is sent again after a pause, until its
// group is cancelled or its generation over: Await's deadline bounds it. Only
// other errors reach its Answer.
//
// Thread-safe; Cancel and the destructor must not be called by an Answer of the
// group, nor by what After calls.
class CallGroup {
 public:
  // Calls that belong to no generation: each attempt is made in the newest.
  explicit CallGroup(std::shared_ptr<Context> context);
  // Calls that are `sender`'s whatever happens: with its generation they are
  // over.
  CallGroup(std::shared_ptr<Context> context, const proto::Sender& sender);
  // Cancels.
  ~CallGroup();

  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;

  // Once this has returned, no Answer runs, and none will, nor what After
  // calls.
  void Cancel();

  // Calls `what` after `delay`, on a thread of gRPC, without locks.
  void After(absl::Duration delay, absl::AnyInvocable<void()> what);

  // Waits until `done`, until calls of the group cannot succeed any more, or
  // until `deadline`, and tells on_waiting meanwhile. `what` describes what is
  // waited for; both are called with the context's lock held.
  // Errors: those of Context::WhyOver; at the deadline UNAVAILABLE, when a peer
  // could not be reached, otherwise DEADLINE_EXCEEDED; both with `what`.
  absl::Status Await(absl::Time deadline, absl::FunctionRef<bool()> done,
                     absl::FunctionRef<std::string()> what);
  // The same, but goes on when calls cannot succeed any more.
  absl::Status AwaitRegardless(absl::Time deadline,
                               absl::FunctionRef<bool()> done,
                               absl::FunctionRef<std::string()> what);

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  absl::Status AwaitUntil(absl::Time deadline, bool regardless,
                          absl::FunctionRef<bool()> done,
                          absl::FunctionRef<std::string()> what);
  // Why a call is being sent again, which is appended to `*what`, with the name
  // of the peer unless that is there. OK when none is. With the lock held.
  absl::Status AddTrouble(std::string* what) const;

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<State> state_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CALL_GROUP_H_
