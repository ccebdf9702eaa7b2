#ifndef HOLDFAST_PS_SERVER_SHARD_PUSH_MEMORY_H_
#define HOLDFAST_PS_SERVER_SHARD_PUSH_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "common/job/task_id.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// Counts the memory of the pushes that a shard holds, and says which others
// there is room for.
//
// Room is given to whole pushes, before their first part. Each worker has
// places of its own, and some more are for all. The owner says which pushes may
// take the former, so that one that others may come to wait for can never be
// shut out by theirs. How many places there are follows from the memory limit
// (ps_server/protocol/memory_plan.h).
//
// Thread-compatible.
// Invariants: of one worker, at most Options::reserved_per_worker pushes are in
// its own places and at most Options::max_per_worker are held in all; beside
// those in workers' own places, at most Options::max_extra.
class PushMemory {
 public:
  struct Options {
    // Of one worker. Each costs at most a copy of the trainable slices.
    size_t max_per_worker = 1;
    // Of those, the worker's own places: no more than the rest are for pushes
    // that are not reserved.
    size_t reserved_per_worker = 1;
    // For all workers, beside their own.
    size_t max_extra = 0;
  };

  PushMemory() = default;
  explicit PushMemory(const Options& options) : options_(options) {}

  // `reserved`: the push may take one of its worker's own places.
  // Errors: RESOURCE_EXHAUSTED when there is no room for it.
  absl::Status CheckRoom(const PushId& push, bool reserved) const;
  // The push comes, for which there is room.
  void Take(const TaskId& worker, bool reserved);
  // Parts of held pushes bring so much; below 0: they go.
  void AddBytes(int64_t bytes) { bytes_ += bytes; }
  // A held push of the worker may take one of its own places from now on.
  void Reserve(const TaskId& worker);
  // A held push goes, whose bytes have gone.
  void Release(const TaskId& worker, bool reserved);

  int64_t bytes() const { return bytes_; }
  size_t num_pushes(const TaskId& worker) const { return Of(worker).pushes; }

 private:
  struct Held {
    size_t pushes = 0;
    // Of them, those that may take the worker's own places.
    size_t reserved = 0;
  };

  Held Of(const TaskId& worker) const;
  // Of a worker's pushes, those that have no place of its own.
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
