// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_TENSOR_TENSOR_PIECE_H_
#define HOLDFAST_COMMON_TENSOR_TENSOR_PIECE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/tensor/buffer.h"
#include "proto/cluster.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// A range of a variable, or rows of a table, with their values: a
// proto::TensorPart whose bytes are in a Buffer.
struct TensorPiece {
  std::string variable;
  // The shape of the whole variable.
  std::vector<int64_t> shape;
  proto::DataType dtype = proto::FLOAT32;
  // Index of the first element in the whole variable.
  uint64_t begin = 0;
  proto::Encoding encoding = proto::EXACT;
  // The number of elements; 0 if it follows from `data`.
  uint64_t size = 0;
  Buffer data;
  // If set, `variable` is an embedding table, and `data` has these rows of it.
  std::optional<proto::RowIds> rows;
  // If set, is sent in place of `data`: the location of the bytes in memory
  // that both sides can read (docs/protocol/same_host.md).
  std::optional<proto::SharedBytes> shared;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_TENSOR_PIECE_H_
