// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_LIVE_WORKERS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_LIVE_WORKERS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "common/job/task_id.h"

namespace holdfast {

// The live workers of a job, each with its clock. The clock of the slowest
// bounds how far ahead the others may run. A worker's clock is the number of
// its spent tickets.
//
// Thread-compatible. Methods cost O(log of the number of different clocks).
class LiveWorkers {
 public:
  // Records that `worker` is alive, and that its clock is `clock`.
  void Set(const TaskId& worker, uint64_t clock);
  // Records that `worker` is not alive.
  void Remove(const TaskId& worker);

  size_t size() const { return clocks_.size(); }
  // The lowest clock; 0 when no worker is alive.
  uint64_t slowest() const {
    return workers_at_.empty() ? 0 : workers_at_.begin()->first;
  }

 private:
  // Subtracts one from the number of workers at `clock`.
  void LeaveClock(uint64_t clock);

  // Used for look-ups only, never iterated over.
  absl::flat_hash_map<TaskId, uint64_t> clocks_;
  // The number of workers at each clock.
  std::map<uint64_t, size_t> workers_at_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_LIVE_WORKERS_H_
