#include "ps_server/coordinator/live_workers.h"

namespace holdfast {

void LiveWorkers::Set(const TaskId& worker, uint64_t clock) {
  Remove(worker);
  clocks_.emplace(worker, clock);
  ++workers_at_[clock];
}

void LiveWorkers::Remove(const TaskId& worker) {
  const auto found = clocks_.find(worker);
  if (found == clocks_.end()) return;
  const auto at = workers_at_.find(found->second);
  if (--at->second == 0) workers_at_.erase(at);
  clocks_.erase(found);
}

}  // namespace holdfast
