// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tensor_codec_check.h"

#include <grpcpp/support/slice.h>

#include "glog/logging.h"

namespace holdfast {

std::string Flat(const Buffer& data) {
  std::string flat(data.size(), '\0');
  data.CopyTo(flat.data());
  return flat;
}

std::string Flat(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  CHECK(bytes.Dump(&slices).ok());
  std::string flat;
  for (const grpc::Slice& slice : slices) {
    flat.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return flat;
}

proto::TensorPart ToPart(const TensorPiece& piece) {
  proto::TensorPart part;
  part.set_variable(piece.variable);
  part.mutable_shape()->Add(piece.shape.begin(), piece.shape.end());
  part.set_dtype(piece.dtype);
  part.set_begin(piece.begin);
  part.set_encoding(piece.encoding);
  part.set_size(piece.size);
  part.set_data(Flat(piece.data));
  if (piece.shared.has_value()) *part.mutable_shared() = *piece.shared;
  if (piece.rows.has_value()) *part.mutable_rows() = *piece.rows;
  return part;
}

}  // namespace holdfast
