// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PUSH_PULL_PUSH_PULL_EXCHANGE_H_
#define HOLDFAST_PS_SERVER_PUSH_PULL_PUSH_PULL_EXCHANGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/tensor_piece.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/protocol/tensor_messages.h"

namespace holdfast {

// One call of PushPull at the only ps of a job, from its push to its answer
// (docs/protocol/life_of_a_step.md, F): decides which messages the shard and
// the coordinator get, and how the caller is answered. The messages are those
// that a worker would send if it called Push, Contribute or Apply, and Pull one
// by one.
//
//   Start -- push ------> OnPushed -- contribute --> OnContributed --+
//     |                    ^  |  \--- pull --------> OnPulled -------+-> answer
//     +-- (no examples) ---+  |                                      |
//                             +------ apply -------> OnApplied       |
//                                                     |  \-----------+
//                                                     +- pull -> OnPulled
//
// A deterministic event machine: messages in, messages out. The answer to an
// outgoing message comes in through the method named after the message, at most
// once. Answers to messages that went out together may come in any order.
//
// Thread-compatible.
// Invariants: there is at most one answer, and no output after it; no
// contribution or application is sent before the push is acknowledged [P1].
class PushPullExchange {
 public:
  // The messages that an event produces, to be sent in this order.
  struct Output {
    // To the shard.
    std::optional<PushPart> push;
    std::optional<proto::ApplyRequest> apply;
    // To the coordinator.
    std::optional<proto::ContributeRequest> contribute;
    // To the shard.
    std::optional<proto::PullRequest> pull;
    // To the caller.
    std::optional<absl::StatusOr<PushPullReply>> answer;
  };

  explicit PushPullExchange(proto::PushPullRequest request);

  // Begins the exchange. `tensors` are the tensors of the request.
  Output Start(std::vector<TensorPiece> tensors);
  Output OnPushed(const absl::StatusOr<proto::PushResponse>& pushed);
  Output OnContributed(
      const absl::StatusOr<proto::ContributeResponse>& contributed);
  Output OnApplied(const absl::StatusOr<proto::ApplyResponse>& applied);
  Output OnPulled(absl::StatusOr<PullReply> pulled);

 private:
  proto::ContributeRequest Contribution(uint64_t receipt) const;
  proto::ApplyRequest Application() const;
  // Returns the pull to send; absent if the caller has asked for no values, in
  // which case the answer does not wait for any.
  std::optional<proto::PullRequest> Pull(uint64_t min_version);
  // Returns the answer, if everything that it needs is there; otherwise an
  // empty output.
  Output AnswerWhenComplete();
  Output Answer(absl::StatusOr<PushPullReply> answer);

  const proto::PushPullRequest request_;
  bool answered_ = false;
  // The part of the answer that is known. decided_ says whether it has the
  // verdict, or the reason why there is none yet; pulled_, whether it has the
  // values, or none will come.
  PushPullReply reply_;
  bool decided_ = false;
  bool pulled_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PUSH_PULL_PUSH_PULL_EXCHANGE_H_
