// SPDX-License-Identifier: Apache-2.0

// The messages of a shard that carry tensors, with the tensors as buffers
// instead of protobuf fields, so that values are not copied: received tensors
// stay in the memory where they were received, and stored ones are sent from
// the store.
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_TENSOR_MESSAGES_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_TENSOR_MESSAGES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/job/ids.h"
#include "common/rpc/rpc_limits.h"
#include "common/tensor/tensor_piece.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"

namespace holdfast {

// A GiveRequest whose tensors are buffers.
struct GivenPart {
  proto::Sender sender;
  std::vector<TensorPiece> tensors;
};

// A PushRequest whose tensors are buffers.
struct PushPart {
  proto::Sender sender;
  PushSequence sequence;
  GlobalStep step;
  uint32_t part = 0;
  uint32_t num_parts = 1;
  PushSequence acked_through;
  std::vector<TensorPiece> tensors;
};

// Returns how many of the kMaxPullBytes of an answer the values of `range` take
// up, but at most `most`. If the values may be lent
// (docs/protocol/same_host.md), they take up only the size of their location,
// and of a reference to each chunk that holds them.
inline uint64_t ValueBytes(const proto::ReadRange& range, uint64_t most) {
  constexpr uint64_t kPlaceBytes = 200;
  constexpr uint64_t kElementsPerByte = 8192;
  const bool halves =
      range.encoding() == proto::FLOAT16 || range.encoding() == proto::BFLOAT16;
  const uint64_t element = halves ? sizeof(uint16_t) : sizeof(float);
  if (range.has_loan() && !halves && range.size() >= kMinLentBytes / element) {
    return std::min(kPlaceBytes + range.size() / kElementsPerByte, most);
  }
  return range.size() > most / element ? most : range.size() * element;
}

// A PullResponse whose tensors refer to the store's own buffers, so that no
// values are copied.
struct PullReply {
  Generation generation;
  proto::JobState state;
  GlobalStep version;
  float loss_scale = 0;
  std::vector<TensorPiece> tensors;
};

// A PushPullResponse whose tensors refer to the store's own buffers, so that no
// values are copied.
struct PushPullReply {
  proto::PushPullResponse response;
  std::vector<TensorPiece> tensors;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_TENSOR_MESSAGES_H_
