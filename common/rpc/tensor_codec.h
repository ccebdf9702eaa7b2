#ifndef HOLDFAST_COMMON_RPC_TENSOR_CODEC_H_
#define HOLDFAST_COMMON_RPC_TENSOR_CODEC_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/tensor_piece.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Between the tensors of a message and buffers. Nothing else touches
// TensorPart.data. Pure functions, safe from any thread.

using TensorParts = google::protobuf::RepeatedPtrField<proto::TensorPart>;

// Takes the bytes of `parts` over without a copy; `parts` is empty afterwards.
// Nothing is tested: a dtype may be any number, the data of any length.
std::vector<TensorPiece> TakeTensors(TensorParts* parts);

// Adds `pieces` to `parts`. Copies their bytes once, as the generated code asks
// for a string.
void AddTensors(absl::Span<const TensorPiece> pieces, TensorParts* parts);

// What `pieces` measure in a message, at most.
int64_t EncodedBytes(absl::Span<const TensorPiece> pieces);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TENSOR_CODEC_H_
