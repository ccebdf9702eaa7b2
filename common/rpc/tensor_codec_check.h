// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_TENSOR_CODEC_CHECK_H_
#define HOLDFAST_COMMON_RPC_TENSOR_CODEC_CHECK_H_

#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/tensor_codec.h"
#include "common/tensor/tensor_piece.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Compares the codec with the code that protoc generates, for the codec's tests
// and its fuzzer.

std::string Flat(const Buffer& data);
std::string Flat(const grpc::ByteBuffer& bytes);

// `piece` as it appears in a message.
proto::TensorPart ToPart(const TensorPiece& piece);

// The bytes that the generated code writes for `message` with `pieces`.
template <typename Message>
std::string EncodeByGeneratedCode(Message message,
                                  const std::vector<TensorPiece>& pieces) {
  for (const TensorPiece& piece : pieces) {
    *message.add_tensors() = ToPart(piece);
  }
  return message.SerializeAsString();
}

// Says how DecodeTensors and the generated parser differ for `bytes`: only one
// accepts the bytes, or both do, with different results. Returns nullopt if
// they agree.
template <typename Message>
std::optional<std::string> DecodedOtherwise(const grpc::ByteBuffer& bytes) {
  Message message;
  std::vector<TensorPiece> pieces;
  const bool taken = DecodeWithTensors(bytes, &message, &pieces);
  Message expected;
  if (expected.ParseFromString(Flat(bytes)) != taken) {
    return taken ? "taken, refused by the generated parser"
                 : "refused, taken by the generated parser";
  }
  if (!taken) return std::nullopt;
  if (message.tensors_size() > 0) return "tensors stayed in the message";
  for (const TensorPiece& piece : pieces) {
    *message.add_tensors() = ToPart(piece);
  }
  // The codec drops unknown fields of tensors.
  for (proto::TensorPart& part : *expected.mutable_tensors()) {
    part.DiscardUnknownFields();
  }
  if (message.SerializeAsString() == expected.SerializeAsString()) {
    return std::nullopt;
  }
  return absl::StrCat("found ", message.ShortDebugString(), ", expected ",
                      expected.ShortDebugString());
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TENSOR_CODEC_CHECK_H_
