#include "ps_server/coordinator/ticket_pool.h"

#include "glog/logging.h"

namespace holdfast {

std::optional<uint64_t> TicketPool::Find(const PushId& push) const {
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

uint64_t TicketPool::Take(const PushId& push) {
  CHECK_GT(left(), 0u);
  uint64_t index = next_;
  if (returned_.empty()) {
    ++next_;
  } else {
    index = *returned_.begin();
    returned_.erase(returned_.begin());
  }
  CHECK(out_.emplace(push, index).second) << push.ToString();
  return index;
}

bool TicketPool::Spend(const PushId& push) {
  if (out_.erase(push) == 0) return false;
  ++spent_;
  return true;
}

bool TicketPool::Return(const PushId& push) {
  const auto found = out_.find(push);
  if (found == out_.end()) return false;
  returned_.insert(found->second);
  out_.erase(found);
  return true;
}

}  // namespace holdfast
