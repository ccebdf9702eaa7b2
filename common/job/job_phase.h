// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_JOB_JOB_PHASE_H_
#define HOLDFAST_COMMON_JOB_JOB_PHASE_H_

#include "proto/cluster.pb.h"

namespace holdfast {

// Whether the job has ended normally, so that every task exits with code 0.
inline bool IsOrderlyEnd(proto::JobPhase phase) {
  return phase == proto::DONE || phase == proto::STOPPED;
}

// Whether the phase is final: no other follows it in this life of the
// coordinator.
inline bool IsEnd(proto::JobPhase phase) {
  return IsOrderlyEnd(phase) || phase == proto::FAILED;
}

// Whether the phase implies that the variables exist on every shard.
inline bool HasVariables(proto::JobPhase phase) {
  return phase == proto::TRAINING || phase == proto::STOPPING ||
         IsOrderlyEnd(phase);
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_JOB_PHASE_H_
