#ifndef HOLDFAST_PS_SERVER_REPLY_REPLY_H_
#define HOLDFAST_PS_SERVER_REPLY_REPLY_H_

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace holdfast {

// The answer that says nothing but that it is done.
struct Done {};

// Where the answer to a message goes. Called exactly once, at once or after a
// while, by the machine that took the message.
template <typename Response>
using Reply = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_REPLY_REPLY_H_
