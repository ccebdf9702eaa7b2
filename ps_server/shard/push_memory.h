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

// Accounts for the memory of the pushes that a shard holds, and says for which
// further pushes there is room.
//
// Room is given to whole pushes, before their first part. Each worker has
// places of its own, and all workers share some more. The owner says which
// pushes may take a worker's own places, so that a push for which others may
// have to wait is never refused because of theirs. The number of places follows
// from the memory limit (ps_server/protocol/memory_plan.h).
//
// Thread-compatible. Invariants: at most Options::reserved_per_worker pushes of
// a worker are in its own places, and at most Options::max_per_worker are held
// in all; at most Options::max_extra pushes are held outside workers' own
// places.
class PushMemory {
 public:
  struct Options {
    // Pushes of one worker. Each costs at most a copy of the trainable slices.
    size_t max_per_worker = 1;
    // How many of them are the worker's own places. Pushes that are not
    // reserved may take only the rest.
    size_t reserved_per_worker = 1;
    // Places that all workers share, in addition to their own.
    size_t max_extra = 0;
  };

  PushMemory() = default;
  explicit PushMemory(const Options& options) : options_(options) {}

  // `reserved`: the push may take one of its worker's own places.
  // Errors: RESOURCE_EXHAUSTED when there is no room for it.
  absl::Status CheckRoom(const PushId& push, bool reserved) const;
  // Adds a push, for which there must be room.
  void Take(const TaskId& worker, bool reserved);
  // Counts bytes that parts of held pushes bring; negative when they go.
  void AddBytes(int64_t bytes) { bytes_ += bytes; }
  // From now on, a held push of the worker may take one of the worker's own
  // places.
  void Reserve(const TaskId& worker);
  // Removes a held push, whose bytes have been subtracted.
  void Release(const TaskId& worker, bool reserved);

  int64_t bytes() const { return bytes_; }
  size_t num_pushes(const TaskId& worker) const { return Of(worker).pushes; }

 private:
  struct Held {
    size_t pushes = 0;
    // How many of them may take the worker's own places.
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
