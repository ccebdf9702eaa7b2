#ifndef HOLDFAST_PS_SERVER_SERVICE_PUSH_PULL_H_
#define HOLDFAST_PS_SERVER_SERVICE_PUSH_PULL_H_

#include <vector>

#include "common/reply.h"
#include "common/strand.h"
#include "common/tensor_piece.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/shard/shard.h"

namespace holdfast {

// PushPullResponse with its tensors as buffers, which lie in the store.
struct PushPullReply {
  proto::PushPullResponse response;
  std::vector<TensorPiece> tensors;
};

// The machines of the only ps of a job, each with its strand.
struct Machines {
  Shard* shard = nullptr;
  Strand* shard_strand = nullptr;
  Coordinator* coordinator = nullptr;
  Strand* coordinator_strand = nullptr;
};

// Does what `request` says, one machine after the other, each as if it had been
// called by itself: see PushPull in proto/shard.proto. `tensors`: those of the
// request. The reply may come on any thread.
void PushPull(const Machines& machines, proto::PushPullRequest request,
              std::vector<TensorPiece> tensors, Reply<PushPullReply> reply);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_PUSH_PULL_H_
