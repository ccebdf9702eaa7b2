// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SHARD_PUSH_MEMORY_H_
#define HOLDFAST_PS_SERVER_SHARD_PUSH_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "common/job/task_id.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// Accounts for the memory of the pushes that a shard holds, and decides whether
// there is room for a further push.
//
// Room is given to a whole push, when its first part arrives. A place is room
// for one push. Each worker has places of its own, and all workers share some
// more. The owner decides which pushes may take a worker's own places, so that
// a push that other workers may have to wait for is never refused because of
// their pushes. The number of places follows from the memory limit
// (ps_server/protocol/memory_plan.h).
//
// Thread-compatible. Invariants: at most Options::reserved_per_worker pushes of
// a worker are in its own places, and at most Options::max_per_worker are held
// in all; at most Options::max_extra pushes are held outside workers' own
// places.
class PushMemory {
 public:
  struct Options {
    // The maximum number of pushes held of one worker. Each takes at most as
    // much memory as the trainable slices.
    size_t max_per_worker = 1;
    // The number of places that each worker has of its own. Only reserved
    // pushes may take them.
    size_t reserved_per_worker = 1;
    // The number of places that all workers share, in addition to their own.
    size_t max_extra = 0;
  };

  PushMemory() = default;
  explicit PushMemory(const Options& options) : options_(options) {}

  // Checks that there is room for `push`. `reserved` says whether it may take
  // one of its worker's own places.
  // Errors: RESOURCE_EXHAUSTED when there is no room for it.
  absl::Status CheckRoom(const PushId& push, bool reserved) const;
  // Adds a push of `worker`, for which there must be room.
  void Take(const TaskId& worker, bool reserved);
  // Adds to bytes() the memory that the parts of held pushes take; negative
  // when it is released.
  void AddBytes(int64_t bytes) { bytes_ += bytes; }
  // Makes one of the worker's held pushes, which was not reserved, a reserved
  // one.
  void Reserve(const TaskId& worker);
  // Removes a held push, whose bytes must have been subtracted by AddBytes.
  void Release(const TaskId& worker, bool reserved);

  int64_t bytes() const { return bytes_; }
  size_t num_pushes(const TaskId& worker) const { return Of(worker).pushes; }

 private:
  struct Held {
    size_t pushes = 0;
    // How many of these pushes are reserved: they may take the worker's own
    // places.
    size_t reserved = 0;
  };

  Held Of(const TaskId& worker) const;
  // How many of a worker's pushes are not in the worker's own places.
  size_t ExtraOf(const Held& held) const;
  void Count(const TaskId& worker, int pushes, int reserved);

  Options options_;
  std::map<TaskId, Held> held_;
  size_t num_pushes_ = 0;
  // The sum of ExtraOf over all workers.
  size_t num_extra_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_PUSH_MEMORY_H_
