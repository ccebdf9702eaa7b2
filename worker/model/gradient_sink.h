// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_GRADIENT_SINK_H_
#define HOLDFAST_WORKER_MODEL_GRADIENT_SINK_H_

#include <optional>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace holdfast {

// What the maker of a gradient knows about its values, so that the sink need
// not read them all to find out.
struct GradientFacts {
  // The sum of the squares, in double, in any order. It is finite if and only
  // if all values are: the square of a float is exact in double, and no sum of
  // such squares overflows. Absent: not known.
  std::optional<double> sum_of_squares;
};

// Takes the gradients of variables, each named by its index, and says where
// they may be written. A sink refers to the functions that it is made of, as an
// absl::FunctionRef does. `take` may have a third parameter, the facts about
// the gradient. If a sink is made of `take` alone, it has no memory for
// gradients.
template <typename Result, typename Gradient>
class GradientSinkOf {
 public:
  using MemoryOf = absl::FunctionRef<absl::Span<float>(int variable)>;

  template <typename Function>
  static constexpr bool kTakesFacts =
      std::is_invocable_r_v<Result, const Function&, int, Gradient,
                            const GradientFacts&>;
  template <typename Function>
  static constexpr bool kTakes =
      kTakesFacts<Function> ||
      std::is_invocable_r_v<Result, const Function&, int, Gradient>;

  template <typename Function, typename = std::enable_if_t<kTakes<Function>>>
  GradientSinkOf(const Function& take)  // NOLINT: implicit, like FunctionRef
      : GradientSinkOf(take, None) {}
  template <typename Function, typename = std::enable_if_t<kTakes<Function>>>
  GradientSinkOf(const Function& take, MemoryOf memory_of)
      : take_(&take), call_(&Call<Function>), memory_of_(memory_of) {}

  Result operator()(int variable, Gradient gradient,
                    const GradientFacts& facts = {}) const {
    return call_(take_, variable, gradient, facts);
  }

  // Returns host memory for the whole gradient of a variable, row-major, whose
  // initial contents are unspecified. A gradient that is written to this memory
  // and then passed to the sink is not copied again. Empty if the sink has no
  // memory for this variable.
  absl::Span<float> Memory(int variable) const { return memory_of_(variable); }

 private:
  static absl::Span<float> None(int) { return {}; }

  template <typename Function>
  static Result Call(const void* take, int variable, Gradient gradient,
                     const GradientFacts& facts) {
    const Function& function = *static_cast<const Function*>(take);
    if constexpr (kTakesFacts<Function>) {
      return function(variable, gradient, facts);
    } else {
      return function(variable, gradient);
    }
  }

  const void* take_;
  Result (*call_)(const void* take, int variable, Gradient gradient,
                  const GradientFacts& facts);
  MemoryOf memory_of_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_GRADIENT_SINK_H_
