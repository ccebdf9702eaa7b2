#ifndef HOLDFAST_COMMON_JOB_JOB_PHASE_H_
#define HOLDFAST_COMMON_JOB_JOB_PHASE_H_

#include "proto/cluster.pb.h"

namespace holdfast {

// The job has ended in order: every task exits 0.
inline bool IsOrderlyEnd(proto::JobPhase phase) {
  return phase == proto::DONE || phase == proto::STOPPED;
}

// Nothing follows the phase in this life of the coordinator.
inline bool IsEnd(proto::JobPhase phase) {
  return IsOrderlyEnd(phase) || phase == proto::FAILED;
}

// The variables exist on every shard, as far as the phase tells.
inline bool HasVariables(proto::JobPhase phase) {
  return phase == proto::TRAINING || phase == proto::STOPPING ||
         IsOrderlyEnd(phase);
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_JOB_PHASE_H_
