// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/ticket_pool.h"

#include "glog/logging.h"

namespace holdfast {

std::map<PushId, TicketPool::Out> TicketPool::out() const {
  std::map<PushId, Out> all;
  for (const auto& [life, tickets] : out_) {
    for (const auto& [sequence, ticket] : tickets) {
      all.emplace(PushId{life, sequence}, ticket);
    }
  }
  return all;
}

std::optional<TicketPool::Out> TicketPool::Find(const PushId& push) const {
  const std::map<PushSequence, Out>& tickets = OutWith(push.from);
  const auto found = tickets.find(push.sequence);
  if (found == tickets.end()) return std::nullopt;
  return found->second;
}

const std::map<PushSequence, TicketPool::Out>& TicketPool::OutWith(
    const WorkerLife& life) const {
  static const auto* const kNone = new std::map<PushSequence, Out>;
  const auto found = out_.find(life);
  return found == out_.end() ? *kNone : found->second;
}

uint64_t TicketPool::Take(const PushId& push, float loss_scale,
                          absl::Time now) {
  CHECK_GT(left(), 0u);
  uint64_t index = next_;
  if (returned_.empty()) {
    ++next_;
  } else {
    index = *returned_.begin();
    returned_.erase(returned_.begin());
  }
  const Out ticket = {index, loss_scale, now};
  CHECK(out_[push.from].emplace(push.sequence, ticket).second)
      << push.ToString();
  ++num_out_;
  return index;
}

std::optional<TicketPool::Out> TicketPool::Remove(const PushId& push) {
  const auto tickets = out_.find(push.from);
  if (tickets == out_.end()) return std::nullopt;
  const auto found = tickets->second.find(push.sequence);
  if (found == tickets->second.end()) return std::nullopt;
  const Out ticket = found->second;
  tickets->second.erase(found);
  if (tickets->second.empty()) out_.erase(tickets);
  --num_out_;
  return ticket;
}

std::optional<TicketPool::Out> TicketPool::Spend(const PushId& push) {
  const std::optional<Out> ticket = Remove(push);
  if (ticket.has_value()) ++spent_;
  return ticket;
}

bool TicketPool::Return(const PushId& push) {
  const std::optional<Out> ticket = Remove(push);
  if (ticket.has_value()) returned_.insert(ticket->index);
  return ticket.has_value();
}

}  // namespace holdfast
