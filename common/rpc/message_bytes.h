// SPDX-License-Identifier: Apache-2.0

// Converts messages without tensors to and from gRPC's byte buffers;
// tensor_codec.h does so for messages with tensors.
#ifndef HOLDFAST_COMMON_RPC_MESSAGE_BYTES_H_
#define HOLDFAST_COMMON_RPC_MESSAGE_BYTES_H_

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"

namespace holdfast {

// Serializes `message` into `bytes`.
// Errors: INTERNAL for a message of 2 GiB or more.
template <typename Message>
absl::Status ToBytes(const Message& message, grpc::ByteBuffer* bytes) {
  bool own;
  return FromGrpcStatus(
      grpc::SerializationTraits<Message>::Serialize(message, bytes, &own));
}

// Parses `bytes` into `message`, and clears `bytes`.
// Errors: INVALID_ARGUMENT for bytes that do not parse as the message.
template <typename Message>
absl::Status FromBytes(grpc::ByteBuffer* bytes, Message* message) {
  if (grpc::SerializationTraits<Message>::Deserialize(bytes, message).ok()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot parse ", Message::descriptor()->full_name()));
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_MESSAGE_BYTES_H_
