// SPDX-License-Identifier: Apache-2.0

// The checkpoint that a ps asks for before it stops.
#ifndef HOLDFAST_PS_SERVER_LAST_CHECKPOINT_H_
#define HOLDFAST_PS_SERVER_LAST_CHECKPOINT_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/strand.h"
#include "common/rpc/credentials.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/coordinator.h"

namespace holdfast {

// Calls the coordinator's Checkpoint, and waits for the answer until
// `deadline`.
using CheckpointCall = std::function<absl::StatusOr<proto::CheckpointResponse>(
    const proto::CheckpointRequest& request, absl::Time deadline)>;

// Calls the coordinator of this process, on its strand. `coordinator` and
// `strand` must outlive the call; a strand that stops drops its pending tasks.
CheckpointCall LocalCheckpointCall(Coordinator* coordinator, Strand* strand);
// Calls the coordinator at `address`.
CheckpointCall RemoteCheckpointCall(const std::string& address,
                                    const Credentials& credentials);

// Requests a checkpoint, and waits until it is on disk or the job has ended.
// Errors: DEADLINE_EXCEEDED after `deadline`; UNAVAILABLE when the checkpoint
// cannot be written; those of `call`.
absl::Status SaveCheckpoint(const CheckpointCall& call, absl::Time deadline);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_LAST_CHECKPOINT_H_
