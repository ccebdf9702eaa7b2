#ifndef HOLDFAST_COMMON_RPC_SESSION_NEWS_H_
#define HOLDFAST_COMMON_RPC_SESSION_NEWS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// What a task has heard of its session and of the job (common/rpc/session.h).
struct SessionNews {
  // Who the task is: in the newest life and generation.
  proto::Sender sender;
  // Of the job: a session may end, and the job go on without the task.
  proto::JobState state;
  // As the last answer said.
  uint64_t durable_step = 0;
  // OK while the session lasts, and after DONE. Otherwise why it has ended:
  // ABORTED when the job has failed or the task was refused, UNAVAILABLE when
  // the coordinator was silent.
  absl::Status status;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_SESSION_NEWS_H_
