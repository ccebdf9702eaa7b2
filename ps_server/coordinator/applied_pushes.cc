// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/applied_pushes.h"

#include <algorithm>
#include <optional>

#include "ps_server/protocol/request.h"

namespace holdfast {

void AppliedPushes::Add(const Message& applied) {
  for (const proto::AppliedPush& one : applied) {
    const PushId push{ToWorkerLife(one.from()), PushSequence(one.sequence())};
    proto::AppliedPush& kept = pushes_.emplace(push, one).first->second;
    kept.set_staleness(std::max(kept.staleness(), one.staleness()));
  }
}

void AppliedPushes::Tell(const PushId& push, uint64_t index,
                         const proto::Declaration& declaration,
                         const LearningState& learning, float rate_factor,
                         Message* to) const {
  proto::AppliedPush& told = *to->Add();
  told = pushes_.at(push);
  told.clear_scalars();
  learning.AddScalarsOfTicket(declaration, index, rate_factor,
                              told.mutable_scalars());
}

void AppliedPushes::Count(const PushId& push, const TicketPool::Out& ticket,
                          Progress* progress, LearningState* learning) const {
  const proto::AppliedPush& applied = pushes_.at(push);
  progress->AddStep(
      {{push.from.worker, applied.examples(),
        /*loss=*/std::nullopt, applied.staleness(), applied.not_finite()}});
  learning->OnPush(applied.examples(), applied.not_finite(), ticket.loss_scale);
}

}  // namespace holdfast
