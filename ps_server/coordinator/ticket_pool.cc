#include "ps_server/coordinator/ticket_pool.h"

#include "glog/logging.h"

namespace holdfast {

std::optional<TicketPool::Out> TicketPool::Find(const PushId& push) const {
  const auto found = out_.find(push);
  if (found == out_.end()) return std::nullopt;
  return found->second;
}

std::vector<PushId> TicketPool::OutWith(const WorkerLife& life) const {
  std::vector<PushId> pushes;
  for (auto it = out_.lower_bound({life, PushSequence(0)});
       it != out_.end() && !(life < it->first.from); ++it) {
    pushes.push_back(it->first);
  }
  return pushes;
}

uint64_t TicketPool::Take(const PushId& push, float loss_scale) {
  CHECK_GT(left(), 0u);
  uint64_t index = next_;
  if (returned_.empty()) {
    ++next_;
  } else {
    index = *returned_.begin();
    returned_.erase(returned_.begin());
  }
  const Out ticket = {index, loss_scale};
  CHECK(out_.emplace(push, ticket).second) << push.ToString();
  return index;
}

std::optional<TicketPool::Out> TicketPool::Spend(const PushId& push) {
  const std::optional<Out> ticket = Find(push);
  if (!ticket.has_value()) return std::nullopt;
  out_.erase(push);
  ++spent_;
  return ticket;
}

bool TicketPool::Return(const PushId& push) {
  const auto found = out_.find(push);
  if (found == out_.end()) return false;
  returned_.insert(found->second.index);
  out_.erase(found);
  return true;
}

}  // namespace holdfast
