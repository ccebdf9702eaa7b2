// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_COMMIT_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_COMMIT_H_

#include <string>

#include "ps_server/coordinator/broadcast.h"
#include "ps_server/coordinator/job.h"
#include "ps_server/coordinator/operation.h"

namespace holdfast {

// Makes the model's next version from the open step, on every shard
// (docs/protocol/life_of_a_step.md, steps 4 and 6).
//
//  1. Step t is complete (OpenStep::IsComplete). Its offers, with their weights
//     and the step's scalars, are S. From here on the pushes of S are ACCEPTED,
//     and the next step is open, unless the job is stopping.
//  2. Commit(t, S) goes to every shard. Workers that wait for their verdicts
//     get them, without waiting for the shards.
//  3. When every shard has acknowledged, step t is committed.
class Commit : public Operation {
 public:
  explicit Commit(Job* job);

  bool IsDue() const override;
  void Start() override;
  void Stop() override { commit_.Stop(); }
  void Tick() override { commit_.SendDue(); }
  std::string WaitingFor() const override { return commit_.WaitingFor(); }

 private:
  void OnCommitted();

  Job* const job_;
  Broadcast<proto::CommitRequest> commit_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_COMMIT_H_
