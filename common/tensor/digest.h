// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_TENSOR_DIGEST_H_
#define HOLDFAST_COMMON_TENSOR_DIGEST_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "proto/training.pb.h"

namespace holdfast {

// Returns a digest for comparing the results of two trainings: if the digests
// are equal, the variables are equal bit for bit. The digest is the SHA-256
// (FIPS 180-4), as 64 lower-case hexadecimal digits, of
//
//   variables = variable*                 ; sorted by the bytes of their names
//   variable  = name 0x00 shape 0x00 values
//   shape     = "[" dimensions "]"        ; decimal, "[784,10]"; a scalar: "[]"
//   values    = float32*                  ; little-endian, row-major
//
// `values` holds the values of `variables`, in their order.
std::string DigestOfVariables(absl::Span<const proto::Variable> variables,
                              absl::Span<const absl::Span<const float>> values);

// Computes the digest of DigestOfVariables for variables that are not all in
// memory at once.
//
// Thread-compatible.
class VariablesDigest {
 public:
  // Begins the next variable. Variables must be sorted by the bytes of their
  // names.
  void Begin(const proto::Variable& variable);
  // Adds the variable's next values.
  void Add(absl::Span<const float> values);
  std::string HexDigest() const { return sha256_.HexDigest(); }

 private:
  Sha256 sha256_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_DIGEST_H_
