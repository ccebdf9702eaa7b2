// SPDX-License-Identifier: Apache-2.0

// Computes the first values of variables.
//
// An element's value depends only on the job's seed, the variable's name and
// shape, and the element's row-major index. So a slice gets the values that it
// would have as part of the whole variable, whichever process computes it and
// in whatever order.
//
// The bits are the same on every CPU: random numbers are Philox4x32-10 by
// counter, and the arithmetic is IEEE double addition, multiplication, division
// and square root, without libm (whose results differ between CPUs) and without
// contraction.
//
// Pure functions, safe from any thread.
#ifndef HOLDFAST_COMMON_TENSOR_INITIALIZER_H_
#define HOLDFAST_COMMON_TENSOR_INITIALIZER_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/training.pb.h"

namespace holdfast {

// Writes the first values of elements [begin, begin + values.size()) of the
// variable `name`, of shape `shape`, to `values`.
//
//   zeros, constant    as the names say.
//   uniform            on [low, high).
//   normal             by the inverse of the normal distribution function.
//   truncated_normal   the same, truncated at mean - 2 stddev and
//                      mean + 2 stddev.
//   glorot, he         TensorFlow's VarianceScaling (keras/initializers), with
//                      variance v = 2 / (fan_in + fan_out) for glorot and
//                      v = 2 / fan_in for he:
//                        UNIFORM  on [-sqrt(3 v), sqrt(3 v)).
//                        NORMAL   truncated at two standard deviations, of a
//                                 normal with stddev sqrt(v) / 0.8796..., so
//                                 that v is the variance that is left.
//                      fan_in and fan_out, each at least 1: 1 for a scalar; n
//                      for shape [n]; rows and columns for a matrix; for a
//                      higher rank, the last two dimensions times the product
//                      of the others.
//
// Values out of float's range become the greatest float of their sign.
//
// `initializer` must obey the rules in proto/training.proto (ValidateMessage).
// Errors, with nothing written: INVALID_ARGUMENT if the kind is missing, the
// kind or distribution is unknown, or NumElements rejects the shape;
// OUT_OF_RANGE if the shape does not have these elements.
absl::Status Initialize(const proto::Initializer& initializer,
                        absl::Span<const int64_t> shape, absl::string_view name,
                        uint64_t seed, int64_t begin, absl::Span<float> values);

// The first values of the rows of an embedding table, whose ids are any 64-bit
// numbers. Row `id` gets the values that Initialize would give row `id` of a
// variable [n, row_length] with the same name and seed, if n were large enough.
//
// Immutable, and so thread-safe.
class RowInitializer {
 public:
  // `initializer` must obey the rules in proto/training.proto.
  // Errors: INVALID_ARGUMENT, naming the table, if no initializer is set, or
  // one that a table cannot have: glorot or he, because they depend on the
  // number of rows, or given.
  static absl::StatusOr<RowInitializer> Create(
      const proto::Initializer& initializer, uint32_t row_length,
      absl::string_view name, uint64_t seed);

  // Writes row `id`; `values` must have the length of a row.
  void Fill(uint64_t id, absl::Span<float> values) const;

 private:
  RowInitializer() = default;

  proto::Initializer initializer_;
  uint32_t row_length_ = 0;
  // The words of Philox4x32's counter that represent the table's name, and its
  // key.
  std::array<uint32_t, 2> name_ = {0, 0};
  std::array<uint32_t, 2> key_ = {0, 0};
};

// The x at which the normal distribution function is p, 0 < p < 1, with a
// relative error of about 1e-16: PPND16 of M. J. Wichura, "Algorithm AS 241:
// the percentage points of the normal distribution", Applied Statistics 37
// (1988).
double InverseNormalCdf(double p);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_INITIALIZER_H_
