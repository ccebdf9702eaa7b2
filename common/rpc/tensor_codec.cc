#include "common/rpc/tensor_codec.h"

#include <string>
#include <utility>

namespace holdfast {

std::vector<TensorPiece> TakeTensors(TensorParts* parts) {
  std::vector<TensorPiece> pieces;
  pieces.reserve(parts->size());
  for (proto::TensorPart& part : *parts) {
    TensorPiece& piece = pieces.emplace_back();
    piece.variable = std::move(*part.mutable_variable());
    piece.shape.assign(part.shape().begin(), part.shape().end());
    piece.dtype = part.dtype();
    piece.begin = part.begin();
    piece.data = Buffer::FromString(std::move(*part.mutable_data()));
  }
  parts->Clear();
  return pieces;
}

void AddTensors(absl::Span<const TensorPiece> pieces, TensorParts* parts) {
  parts->Reserve(parts->size() + static_cast<int>(pieces.size()));
  for (const TensorPiece& piece : pieces) {
    proto::TensorPart* part = parts->Add();
    part->set_variable(piece.variable);
    part->mutable_shape()->Add(piece.shape.begin(), piece.shape.end());
    part->set_dtype(piece.dtype);
    part->set_begin(piece.begin);
    // Span by span: resize() would write the memory twice.
    std::string* data = part->mutable_data();
    data->reserve(piece.data.size());
    for (const Buffer::Span& span : piece.data.spans()) {
      data->append(span.data, span.size);
    }
  }
}

int64_t EncodedBytes(absl::Span<const TensorPiece> pieces) {
  // A varint has at most 10 bytes. Six stand beside variable, shape and data:
  // the lengths of these three and of the part, dtype and begin; and a tag of
  // one byte each.
  constexpr int64_t kVarint = 10;
  constexpr int64_t kFixed = 6 * (kVarint + 1);
  int64_t bytes = 0;
  for (const TensorPiece& piece : pieces) {
    bytes += kFixed + static_cast<int64_t>(piece.variable.size()) +
             kVarint * static_cast<int64_t>(piece.shape.size()) +
             static_cast<int64_t>(piece.data.size());
  }
  return bytes;
}

}  // namespace holdfast
