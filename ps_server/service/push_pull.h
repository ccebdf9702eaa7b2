// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_PUSH_PULL_H_
#define HOLDFAST_PS_SERVER_SERVICE_PUSH_PULL_H_

#include <vector>

#include "common/base/strand.h"
#include "common/tensor/tensor_piece.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/tensor_messages.h"
#include "ps_server/reply/reply.h"
#include "ps_server/service/call_recorder.h"
#include "ps_server/service/neighbors.h"
#include "ps_server/shard/shard.h"

namespace holdfast {

// The machines of a ps, each with its strand. The coordinator is null unless
// this is the job's only ps.
struct Machines {
  Shard* shard = nullptr;
  Strand* shard_strand = nullptr;
  Coordinator* coordinator = nullptr;
  Strand* coordinator_strand = nullptr;
  // Records the shard's calls. May be null.
  CallRecorder* recorder = nullptr;
  // Null if this ps shares no memory with other processes.
  Neighbors* neighbors = nullptr;
};

// Answers `request` by a PushPullExchange between the machines. `tensors` are
// the tensors of `request`. The reply may come on any thread.
void PushPull(const Machines& machines, proto::PushPullRequest request,
              std::vector<TensorPiece> tensors, Reply<PushPullReply> reply);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_PUSH_PULL_H_
