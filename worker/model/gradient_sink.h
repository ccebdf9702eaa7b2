// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_GRADIENT_SINK_H_
#define HOLDFAST_WORKER_MODEL_GRADIENT_SINK_H_

#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace holdfast {

// Takes the gradients of variables, each named by its index, and says where
// they may be written. A sink refers to the functions that it is made of, as an
// absl::FunctionRef does. If it is made of `take` alone, it has no memory for
// gradients.
template <typename Result, typename Gradient>
class GradientSinkOf {
 public:
  using Take = absl::FunctionRef<Result(int variable, Gradient gradient)>;
  using MemoryOf = absl::FunctionRef<absl::Span<float>(int variable)>;

  template <typename Function,
            typename = std::enable_if_t<
                std::is_invocable_r_v<Result, const Function&, int, Gradient>>>
  GradientSinkOf(const Function& take)  // NOLINT: implicit, like FunctionRef
      : take_(take), memory_of_(None) {}
  GradientSinkOf(Take take, MemoryOf memory_of)
      : take_(take), memory_of_(memory_of) {}

  Result operator()(int variable, Gradient gradient) const {
    return take_(variable, gradient);
  }

  // Returns host memory for the whole gradient of a variable, row-major, whose
  // initial contents are unspecified. A gradient that is written to this memory
  // and then passed to the sink is not copied again. Empty if the sink has no
  // memory for this variable.
  absl::Span<float> Memory(int variable) const { return memory_of_(variable); }

 private:
  static absl::Span<float> None(int) { return {}; }

  Take take_;
  MemoryOf memory_of_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_GRADIENT_SINK_H_
