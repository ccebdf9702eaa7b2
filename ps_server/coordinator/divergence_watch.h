// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_DIVERGENCE_WATCH_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_DIVERGENCE_WATCH_H_

#include <cstdint>

#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Detects that a job has diverged: max_consecutive_not_finite accepted
// contributions in a row were not finite, counted over all workers.
//
// Contributions are counted in the order in which they are decided: in a
// synchronous job by step and seat. The count is saved with checkpoints, so the
// same job ends at the same step whatever the timing and whichever tasks die.
// Contributions that say nothing about divergence are left out: those without
// examples, and those that overflowed under a loss scale that can still fall.
//
// Thread-compatible.
class DivergenceWatch {
 public:
  // `position` is where the job resumes; its consecutive_not_finite is the
  // first count.
  DivergenceWatch(const proto::Declaration& declaration,
                  const proto::Position& position);

  // Records an accepted contribution with `examples` examples, computed with
  // `loss_scale`, which is 0 if the job has none.
  void OnContribution(uint64_t examples, bool not_finite, float loss_scale);

  // Whether the job has diverged. Never becomes false again.
  bool diverged() const { return diverged_; }
  // max_consecutive_not_finite; 0 means no limit.
  uint64_t limit() const { return limit_; }

  // Fills in `position->consecutive_not_finite`.
  void AddTo(proto::Position* position) const;

 private:
  uint64_t limit_;
  uint64_t count_;
  bool diverged_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_DIVERGENCE_WATCH_H_
