// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_TENSOR_TABLE_DIGEST_H_
#define HOLDFAST_COMMON_TENSOR_TABLE_DIGEST_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "proto/table.pb.h"

namespace holdfast {

// The digest of a bucket of an embedding table: the SHA-256, as 64 lower-case
// hexadecimal digits, of each row's id (8 bytes) and values, all little-endian.
// Rows must be added in the order of their ids.
//
// Thread-compatible.
class RowsDigest {
 public:
  void Add(uint64_t id, absl::Span<const float> values);
  // The digest of the rows added so far. More rows may follow.
  std::string HexDigest() const { return sha256_.HexDigest(); }

 private:
  Sha256 sha256_;
};

// The digest of a table, computed from the digests of all its buckets in order,
// whichever ps holds them: the SHA-256, as 64 hexadecimal digits, of
//
//   table  = name 0x00 "[" "*" "," row_length "]" 0x00 bucket*
//   bucket = 64 hexadecimal digits
std::string DigestOfTable(const proto::EmbeddingTable& declared,
                          absl::Span<const std::string> bucket_digests);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_TABLE_DIGEST_H_
