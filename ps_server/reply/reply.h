// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_REPLY_REPLY_H_
#define HOLDFAST_PS_SERVER_REPLY_REPLY_H_

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace holdfast {

// An answer that carries nothing but success.
struct Done {};

// Receives the answer to a message. Called exactly once, immediately or later,
// by the machine that took the message.
template <typename Response>
using Reply = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_REPLY_REPLY_H_
