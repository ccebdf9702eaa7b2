#ifndef HOLDFAST_PS_SERVER_COORDINATOR_DIVERGENCE_WATCH_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_DIVERGENCE_WATCH_H_

#include <cstdint>

#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Finds out that a job has diverged: max_consecutive_not_finite accepted
// contributions in succession were not finite, all workers taken together.
//
// It counts them in the order in which they are decided: in a synchronous job
// by step and seat, and the count is saved with checkpoints, so that the same
// job ends at the same step whatever the timing and whoever dies. Contributions
// of which it learns nothing are left out: those without examples, and those
// that overflowed under a loss scale that can still fall.
//
// Thread-compatible.
class DivergenceWatch {
 public:
  // `position`: where the job goes on from.
  DivergenceWatch(const proto::Declaration& declaration,
                  const proto::Position& position);

  // Takes note of an accepted contribution with so many examples, computed with
  // `loss_scale`; 0: the job has none.
  void OnContribution(uint64_t examples, bool not_finite, float loss_scale);

  // Once it has, it stays so.
  bool diverged() const { return diverged_; }
  // max_consecutive_not_finite. 0: no limit.
  uint64_t limit() const { return limit_; }

  // Fills in consecutive_not_finite.
  void AddTo(proto::Position* position) const;

 private:
  uint64_t limit_;
  uint64_t count_;
  bool diverged_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_DIVERGENCE_WATCH_H_
