// Messages that carry tensors, to and from the bytes of a call
// (docs/formats/wire.md). Their bytes are those that the generated code writes
// and reads; but the elements of tensors are sent from where they lie, and stay
// where they came in.
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

// `message`, whose last field, number `field`, is a `repeated TensorPart`; it
// is empty, and `pieces` stand in its place. The bytes of a piece are referred
// to, and their owners kept until gRPC has sent them or given them up; small
// pieces are copied. Of a piece with `shared` that is written, and no bytes.
grpc::ByteBuffer EncodeTensors(const google::protobuf::MessageLite& message,
                               int field, absl::Span<const TensorPiece> pieces);

// The inverse: false when `bytes` are not such a message, in whatever order its
// fields stand. The pieces refer to the memory of `bytes`. What the elements
// are is not tested: an encoding may be any number, the data of any length.
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

// What `pieces` measure in a message, at most.
int64_t EncodedBytes(absl::Span<const TensorPiece> pieces);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TENSOR_CODEC_H_
