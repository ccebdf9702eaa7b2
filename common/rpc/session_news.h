// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_SESSION_NEWS_H_
#define HOLDFAST_COMMON_RPC_SESSION_NEWS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// What a task has heard of its session and of the job (common/rpc/session.h).
struct SessionNews {
  // The task, in its newest life and generation.
  proto::Sender sender;
  // State of the job, which may go on without the task after the session has
  // ended.
  proto::JobState state;
  // The job's durable step, as in the coordinator's last answer.
  uint64_t durable_step = 0;
  // OK while the session lasts, and after DONE. Otherwise the reason why the
  // session has ended: ABORTED when the job has failed or the task was refused,
  // UNAVAILABLE when the coordinator was silent.
  absl::Status status;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_SESSION_NEWS_H_
