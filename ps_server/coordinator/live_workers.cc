// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/live_workers.h"

#include <utility>

namespace holdfast {

void LiveWorkers::Set(const TaskId& worker, uint64_t clock) {
  const auto found = clocks_.find(worker);
  if (found != clocks_.end() && found->second == clock) return;
  ++workers_at_[clock];
  if (found == clocks_.end()) {
    clocks_[worker] = clock;
  } else {
    LeaveClock(std::exchange(found->second, clock));
  }
}

void LiveWorkers::LeaveClock(uint64_t clock) {
  const auto at = workers_at_.find(clock);
  if (--at->second == 0) workers_at_.erase(at);
}

void LiveWorkers::Remove(const TaskId& worker) {
  const auto found = clocks_.find(worker);
  if (found == clocks_.end()) return;
  LeaveClock(found->second);
  clocks_.erase(found);
}

}  // namespace holdfast
