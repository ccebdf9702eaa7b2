// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/row_rule.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/container/fixed_array.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/norm.h"
#include "ps_server/optimizer/optimizer.h"

namespace holdfast {
namespace {

// Elements that are worked on at a time: with two slots, the gradients and the
// next values they take 20 KiB.
constexpr size_t kElements = 1024;

// A rule of ps_server/optimizer. Rows are copied together, so that the rule
// works on many elements at a time: with the 16 of one row, the calls would
// take longer than the arithmetic.
class ByElement : public RowRule {
 public:
  ByElement(size_t length, std::unique_ptr<Optimizer> optimizer)
      : length_(length),
        optimizer_(std::move(optimizer)),
        initial_slots_(optimizer_->initial_slots()) {}

  size_t floats() const override {
    return length_ * (1 + initial_slots_.size());
  }

  void InitializeSlots(float* row) const override {
    for (const float initial : initial_slots_) {
      row = std::fill_n(row + length_, length_, initial) - length_;
    }
  }

  void Apply(Simd simd, const proto::StepScalars& scalars,
             absl::Span<float* const> rows,
             const float* gradients) const override {
    const size_t at_a_time = RowsAtATime(length_);
    const size_t most = std::min(rows.size(), at_a_time) * length_;
    // Values, slots, and next values. On the stack and not cleared first,
    // because a heap block for each call would cost more than the arithmetic.
    absl::FixedArray<float, kElements * 4> copies(most *
                                                  (2 + initial_slots_.size()));
    absl::InlinedVector<Optimizer::Slot, 2> slots;
    for (size_t s = 0; s < initial_slots_.size(); ++s) {
      float* const slot = &copies[most * (1 + s)];
      slots.push_back({slot, slot});
    }
    Optimizer::Elements elements;
    elements.value = copies.data();
    elements.slots = slots;
    elements.next = &copies[most * (1 + initial_slots_.size())];
    for (; !rows.empty();
         rows.remove_prefix(std::min(rows.size(), at_a_time))) {
      const auto part = rows.first(std::min(rows.size(), at_a_time));
      for (size_t i = 0; i < part.size(); ++i) {
        for (size_t s = 0; s <= slots.size(); ++s) {
          Copy(part[i] + s * length_, &copies[most * s + i * length_]);
        }
      }
      elements.size = part.size() * length_;
      const Optimizer::Gradient gradient{1, gradients};
      elements.gradients = absl::MakeConstSpan(&gradient, 1);
      optimizer_->Apply(simd, scalars, elements);
      for (size_t i = 0; i < part.size(); ++i) {
        Copy(elements.next + i * length_, part[i]);
        for (size_t s = 0; s < slots.size(); ++s) {
          Copy(slots[s].after + i * length_, part[i] + (s + 1) * length_);
        }
      }
      gradients += elements.size;
    }
  }

 private:
  void Copy(const float* from, float* to) const {
    std::memcpy(to, from, length_ * sizeof(float));
  }

  const size_t length_;
  const std::unique_ptr<Optimizer> optimizer_;
  const std::vector<float> initial_slots_;
};

class RowWiseAdagrad : public RowRule {
 public:
  RowWiseAdagrad(size_t length, const proto::Optimizer& config)
      : length_(length),
        initial_(config.adagrad().initial_accumulator_value()),
        epsilon_(config.adagrad().epsilon()),
        weight_decay_(config.weight_decay()) {}

  size_t floats() const override { return length_ + 1; }

  void InitializeSlots(float* row) const override { row[length_] = initial_; }

  void Apply(Simd simd, const proto::StepScalars& scalars,
             absl::Span<float* const> rows,
             const float* gradients) const override {
    std::vector<float> decayed(length_);
    for (float* const row : rows) {
      const float* gradient = gradients;
      // Does not multiply 0 by a value that may be infinite.
      if (weight_decay_ != 0) {
        for (size_t i = 0; i < length_; ++i) {
          decayed[i] = gradient[i] + weight_decay_ * row[i];
        }
        gradient = decayed.data();
      }
      const double squares = SumOfSquares({gradient, length_});
      row[length_] += static_cast<float>(squares / length_);
      const float divisor = std::sqrt(row[length_]) + epsilon_;
      RunSimd(simd,
              [row, gradient, divisor, length = length_,
               rate = scalars.learning_rate()]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
#pragma GCC ivdep
                for (size_t i = 0; i < length; ++i) {
                  row[i] -= rate * gradient[i] / divisor;
                }
              });
      gradients += length_;
    }
  }

 private:
  const size_t length_;
  const float initial_;
  const float epsilon_;
  const float weight_decay_;
};

}  // namespace

size_t RowsAtATime(uint32_t row_length) {
  return std::max<size_t>(1, kElements / row_length);
}

absl::StatusOr<std::unique_ptr<RowRule>> MakeRowRule(
    const proto::EmbeddingTable& table, const proto::Optimizer& optimizer) {
  switch (optimizer.update_case()) {
    case proto::Optimizer::kSgd:
    case proto::Optimizer::kMomentum:
    case proto::Optimizer::kAdagrad:
    case proto::Optimizer::kAdam:
    case proto::Optimizer::kFtrl:
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", table.name(),
                       "\": its optimizer must be sgd, momentum, adagrad, "
                       "adam or ftrl"));
  }
  if (!table.row_wise()) {
    return std::make_unique<ByElement>(table.row_length(),
                                       MakeOptimizer(optimizer));
  }
  if (!optimizer.has_adagrad()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table \"", table.name(), "\": row_wise is only for adagrad"));
  }
  return std::make_unique<RowWiseAdagrad>(table.row_length(),
                                          WithDefaults(optimizer));
}

}  // namespace holdfast
