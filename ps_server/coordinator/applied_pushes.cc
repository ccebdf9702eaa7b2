#include "ps_server/coordinator/applied_pushes.h"

#include <algorithm>
#include <optional>

#include "ps_server/coordinator/schedule.h"
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
                         float rate_factor, Message* to) const {
  proto::AppliedPush& told = *to->Add();
  told = pushes_.at(push);
  told.clear_scalars();
  for (const proto::Optimizer& optimizer : declaration.optimizers()) {
    *told.add_scalars() = ScalarsAt(optimizer, index, index + 1, rate_factor);
  }
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
