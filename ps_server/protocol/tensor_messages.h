// The messages of a shard that carry tensors, with those as buffers: they stay
// where they came in, and leave from where they lie.
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_TENSOR_MESSAGES_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_TENSOR_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "common/tensor_piece.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"

namespace holdfast {

// GiveRequest with its tensors as buffers.
struct GivenPart {
  proto::Sender sender;
  std::vector<TensorPiece> tensors;
};

// PushRequest with its tensors as buffers.
struct PushPart {
  proto::Sender sender;
  PushSequence sequence;
  GlobalStep step;
  uint32_t part = 0;
  uint32_t num_parts = 1;
  PushSequence acked_through;
  std::vector<TensorPiece> tensors;
};

// PullResponse with its tensors as buffers, which lie in the store.
struct PullReply {
  Generation generation;
  proto::JobState state;
  GlobalStep version;
  float loss_scale = 0;
  std::vector<TensorPiece> tensors;
};

// PushPullResponse with its tensors as buffers, which lie in the store.
struct PushPullReply {
  proto::PushPullResponse response;
  std::vector<TensorPiece> tensors;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_TENSOR_MESSAGES_H_
