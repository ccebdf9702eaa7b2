#ifndef HOLDFAST_WORKER_MODEL_GRADIENT_SINK_H_
#define HOLDFAST_WORKER_MODEL_GRADIENT_SINK_H_

#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace holdfast {

// Takes the gradients of variables, each named by its place, and says where
// they may be written. Refers to the functions that it is made of, as an
// absl::FunctionRef does; made of one alone, it has no memory.
template <typename Result, typename Gradient>
class GradientSinkOf {
 public:
  using Take = absl::FunctionRef<Result(int variable, Gradient gradient)>;
  using MemoryOf = absl::FunctionRef<absl::Span<float>(int variable)>;

  template <typename Function,
            typename = std::enable_if_t<
                std::is_invocable_r_v<Result, const Function&, int, Gradient>>>
  GradientSinkOf(const Function& take)  // NOLINT: as a function is
      : take_(take), memory_of_(None) {}
  GradientSinkOf(Take take, MemoryOf memory_of)
      : take_(take), memory_of_(memory_of) {}

  Result operator()(int variable, Gradient gradient) const {
    return take_(variable, gradient);
  }

  // Memory of the host for the whole gradient of a variable, row-major. What is
  // written there before it is handed in is not copied any more. What it holds
  // at first is not specified. Empty: there is none.
  absl::Span<float> Memory(int variable) const { return memory_of_(variable); }

 private:
  static absl::Span<float> None(int) { return {}; }

  Take take_;
  MemoryOf memory_of_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_GRADIENT_SINK_H_
