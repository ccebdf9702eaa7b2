// SPDX-License-Identifier: Apache-2.0

// Conversions of requests' fields for both event machines, coordinator and
// shard.
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_REQUEST_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_REQUEST_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "proto/cluster.pb.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

inline TaskId ToTaskId(const proto::TaskId& task) {
  return {task.job(), task.index()};
}

inline WorkerLife ToWorkerLife(const proto::Sender& sender) {
  return {ToTaskId(sender.task()), Incarnation(sender.incarnation())};
}

inline WorkerLife ToWorkerLife(const proto::WorkerLife& life) {
  return {ToTaskId(life.worker()), Incarnation(life.incarnation())};
}

// Returns until when a call that came at `now` may stay parked.
inline absl::Time ParkedUntil(absl::Time now, uint64_t wait_ms) {
  return now + absl::Milliseconds(std::min<uint64_t>(
                   wait_ms, absl::ToInt64Milliseconds(kMaxPark)));
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_REQUEST_H_
