// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_FENCE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_FENCE_H_

#include <string>
#include <vector>

#include "ps_server/coordinator/applied_pushes.h"
#include "ps_server/coordinator/broadcast.h"
#include "ps_server/coordinator/job.h"
#include "ps_server/coordinator/operation.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// Fences lives of workers, on every shard (docs/protocol/asynchronous.md, A5,
// and docs/protocol/recovery.md, L4).
//
//  1. Fence(lives) goes to every shard until each has confirmed. A shard then
//     refuses everything that the lives send, and reports which of their pushes
//     it has applied. The union of these reports are the pushes that count.
//  2. Resolve(lives, union) goes to every shard: each applies what it lacks of
//     the union, and drops the other pushes of the lives.
//  3. When all shards have acknowledged, the tickets of the pushes in the union
//     are spent, and the other tickets of the lives are returned. The lives can
//     then be forgotten.
//
// Lives that are added meanwhile wait for the next Fence.
class Fence : public Operation {
 public:
  explicit Fence(Job* job);

  void Add(const WorkerLife& life) { due_.push_back(life); }
  // Called when a generation is over, and all its lives with it: forgets the
  // lives to fence.
  void Clear() { due_.clear(); }

  bool IsDue() const override { return job_->at_work() && !due_.empty(); }
  void Start() override;
  void Stop() override;
  void Tick() override;
  std::string WaitingFor() const override;

 private:
  void Resolve();
  void OnResolved();

  Job* const job_;
  std::vector<WorkerLife> due_;
  AppliedPushes applied_;
  Broadcast<proto::FenceRequest> fence_;
  Broadcast<proto::ResolveRequest> resolve_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_FENCE_H_
