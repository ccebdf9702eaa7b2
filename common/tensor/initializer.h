// The first values of variables.
//
// An element's value is a function of the job's seed, the variable's name and
// shape, and the element's row-major index, and of nothing else. So a slice
// holds what the whole would hold there, whoever makes it and in whatever
// order.
//
// The same bits on every CPU: random numbers are Philox4x32-10 by counter, and
// the arithmetic is IEEE double addition, multiplication, division and square
// root, without libm (whose results differ between CPUs) and without
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

// Writes the first values of the elements [begin, begin + values.size()) of the
// variable `name` of `shape` to `values`.
//
//   zeros, constant    as they say.
//   uniform            on [low, high).
//   normal             by the inverse of the normal distribution function.
//   truncated_normal   the same, cut at mean - 2 stddev and mean + 2 stddev.
//   glorot, he         TensorFlow's VarianceScaling (keras/initializers), with
//                      variance v = 2 / (fan_in + fan_out) for glorot and
//                      v = 2 / fan_in for he:
//                        UNIFORM  on [-sqrt(3 v), sqrt(3 v)).
//                        NORMAL   truncated at two standard deviations, of a
//                                 normal with stddev sqrt(v) / 0.8796..., so
//                                 that v is the variance that is left.
//                      fan_in and fan_out, of which each counts as 1 at least:
//                      1 of a scalar; n of a shape [n]; rows and columns of a
//                      matrix; and of a higher rank, the last two dimensions
//                      times the product of those before.
//
// Values beyond the range of float become the greatest float of their sign.
//
// `initializer` obeys the rules in proto/training.proto (ValidateMessage).
// Errors, with nothing written: INVALID_ARGUMENT for no or an unknown kind or
// distribution, or a shape that NumElements refuses; OUT_OF_RANGE when the
// shape has not those elements.
absl::Status Initialize(const proto::Initializer& initializer,
                        absl::Span<const int64_t> shape, absl::string_view name,
                        uint64_t seed, int64_t begin, absl::Span<float> values);

// The first values of the rows of an embedding table, whose ids are any numbers
// of 64 bits: those of row `id` are what Initialize gives rows of a variable
// [n, row_length] of the same name and seed, had it so many.
//
// Immutable, and so thread-safe.
class RowInitializer {
 public:
  // `initializer` obeys the rules in proto/training.proto.
  // Errors: INVALID_ARGUMENT, naming the table, for an initializer that a table
  // cannot have: glorot and he, as they depend on the number of rows, and
  // given; or for none.
  static absl::StatusOr<RowInitializer> Create(
      const proto::Initializer& initializer, uint32_t row_length,
      absl::string_view name, uint64_t seed);

  // `values` has the length of a row.
  void Fill(uint64_t id, absl::Span<float> values) const;

 private:
  RowInitializer() = default;

  proto::Initializer initializer_;
  uint32_t row_length_ = 0;
  // The words of the counters that stand for the name, and the key.
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
