#ifndef HOLDFAST_WORKER_TRAINER_DIGEST_H_
#define HOLDFAST_WORKER_TRAINER_DIGEST_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/training.pb.h"

namespace holdfast {

// What two trainings are compared by: equal digests mean equal variables, bit
// for bit. The SHA-256 (FIPS 180-4), as 64 lower-case hexadecimal digits, of
//
//   variables = variable*                 ; in the order of their names' bytes
//   variable  = name 0x00 shape 0x00 values
//   shape     = "[" dimensions "]"        ; decimal, "[784,10]"; a scalar: "[]"
//   values    = float32*                  ; little-endian, row-major
//
// `values` holds the values of `variables`, in their order.
std::string DigestOfVariables(absl::Span<const proto::Variable> variables,
                              absl::Span<const std::vector<float>> values);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_DIGEST_H_
