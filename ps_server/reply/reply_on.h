// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_REPLY_REPLY_ON_H_
#define HOLDFAST_PS_SERVER_REPLY_REPLY_ON_H_

#include <utility>

#include "absl/status/statusor.h"
#include "common/base/strand.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// Returns a reply that may be called from any thread. It calls `reply` on
// `strand`, unless the strand has stopped. `hand` is Strand::Post, or RunOrPost
// if `reply` takes little time.
template <typename Response>
Reply<Response> ReplyOn(Strand* strand, Reply<Response> reply,
                        void (Strand::*hand)(Strand::Task) = &Strand::Post) {
  return [strand, hand,
          reply = std::move(reply)](absl::StatusOr<Response> result) mutable {
    (strand->*hand)(
        [reply = std::move(reply), result = std::move(result)]() mutable {
          reply(std::move(result));
        });
  };
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_REPLY_REPLY_ON_H_
