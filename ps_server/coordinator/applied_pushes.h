// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_APPLIED_PUSHES_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_APPLIED_PUSHES_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "google/protobuf/repeated_field.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/learning_state.h"
#include "ps_server/coordinator/progress.h"
#include "ps_server/coordinator/ticket_pool.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// The union of the pushes that any shard has applied and that are not yet
// booked: each of them counts (docs/protocol/asynchronous.md, A5, and
// docs/protocol/recovery.md, C2).
//
// Thread-compatible.
class AppliedPushes {
 public:
  using Message = google::protobuf::RepeatedPtrField<proto::AppliedPush>;

  void Clear() { pushes_.clear(); }
  // Adds the pushes that one shard reports as applied in its answer to Fence or
  // Hold.
  void Add(const Message& applied);

  bool Contains(const PushId& push) const { return pushes_.count(push) > 0; }
  const std::map<PushId, proto::AppliedPush>& pushes() const { return pushes_; }

  // Appends `push`, which must be present, to `*to`, the pushes that a request
  // orders a shard to apply. Its scalars are those of its ticket, number
  // `index`, with learning rates multiplied by `rate_factor`.
  void Tell(const PushId& push, uint64_t index,
            const proto::Declaration& declaration,
            const LearningState& learning, float rate_factor,
            Message* to) const;
  // Counts `push`, which must be present, in `*progress` and `*learning`, in
  // place of its worker, which has not reported it.
  void Count(const PushId& push, const TicketPool::Out& ticket,
             Progress* progress, LearningState* learning) const;

 private:
  std::map<PushId, proto::AppliedPush> pushes_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_APPLIED_PUSHES_H_
