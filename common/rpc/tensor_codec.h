// SPDX-License-Identifier: Apache-2.0

// Converts messages with tensors to and from the bytes of a call
// (docs/formats/wire.md). The bytes are those that the generated code would
// write, but the elements of tensors are copied neither when they are sent nor
// when they are received.
#ifndef HOLDFAST_COMMON_RPC_TENSOR_CODEC_H_
#define HOLDFAST_COMMON_RPC_TENSOR_CODEC_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/tensor/tensor_piece.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Pure functions, safe from any thread.

// Serializes `message` with `pieces` in its last field, number `field`, which
// must be a `repeated TensorPart` and empty. The result refers to the bytes of
// large pieces, and keeps their owners alive until gRPC has sent or dropped
// them; small pieces are copied. For a piece with `shared`, that message is
// written instead of the piece's bytes.
grpc::ByteBuffer EncodeTensors(const google::protobuf::MessageLite& message,
                               int field, absl::Span<const TensorPiece> pieces);

// Reverses EncodeTensors, for fields in any order. Returns false if `bytes` do
// not parse as such a message. The pieces refer to the memory of `bytes`. The
// elements are not validated: `encoding` may be any number, and the data may
// have any length.
bool DecodeTensors(const grpc::ByteBuffer& bytes, int field,
                   google::protobuf::MessageLite* message,
                   std::vector<TensorPiece>* pieces);

template <typename Message>
grpc::ByteBuffer EncodeWithTensors(const Message& message,
                                   absl::Span<const TensorPiece> pieces) {
  return EncodeTensors(message, Message::kTensorsFieldNumber, pieces);
}
template <typename Message>
bool DecodeWithTensors(const grpc::ByteBuffer& bytes, Message* message,
                       std::vector<TensorPiece>* pieces) {
  return DecodeTensors(bytes, Message::kTensorsFieldNumber, message, pieces);
}

// An upper bound of the size of `pieces` in a message, in bytes.
int64_t EncodedBytes(absl::Span<const TensorPiece> pieces);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TENSOR_CODEC_H_
