// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TABLE_ROW_RULE_H_
#define HOLDFAST_PS_SERVER_TABLE_ROW_RULE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/simd.h"
#include "proto/cluster.pb.h"
#include "proto/table.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// The rule by which gradients change rows. A row is an array of its values,
// followed by its slots.
//
// Each element follows the rule of ps_server/optimizer, to which the row's
// values and slots are passed, so the results have the same bits as those of a
// dense variable. The rows that a step does not touch keep their values and
// slots. With SGD and Adagrad, a gradient of 0 does not change a dense variable
// either, so a table equals a dense variable with the same gradients bit for
// bit (if accumulators or epsilon are above 0, and without weight decay).
// Momentum, Adam and FTRL are lazy: a dense variable's elements would keep
// moving. Adam's bias corrections are those of the step, whichever steps have
// touched the row.
//
//   Row-wise Adagrad   a' = a + mean(g^2)
//                      w' = w - lr g / (sqrt(a') + epsilon)
//                      One slot a for the whole row, with Adagrad's initial
//                      value. mean(g^2) is SumOfSquares(g) / row_length
//                      (common/tensor/norm.h), in double, rounded once. Weight
//                      decay is as in Optimizer. (FBGEMM's
//                      EXACT_ROWWISE_ADAGRAD; Mudigere et al. 2022.)
//
// Thread-safe: has no state.
class RowRule {
 public:
  virtual ~RowRule() = default;

  // The number of floats of a row: values and slots.
  virtual size_t floats() const = 0;
  // Writes the first content of a row's slots.
  virtual void InitializeSlots(float* row) const = 0;
  // Applies to rows[i] the gradient gradients[i * length, (i + 1) * length).
  // There must be at least one row.
  virtual void Apply(Simd simd, const proto::StepScalars& scalars,
                     absl::Span<float* const> rows,
                     const float* gradients) const = 0;
};

// The number of rows that are best passed to Apply at a time: few enough for
// the copies of their values and slots to stay in the nearest cache.
size_t RowsAtATime(uint32_t row_length);

// Errors: INVALID_ARGUMENT, naming the table, for an optimizer that a table
// cannot have.
absl::StatusOr<std::unique_ptr<RowRule>> MakeRowRule(
    const proto::EmbeddingTable& table, const proto::Optimizer& optimizer);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_ROW_RULE_H_
