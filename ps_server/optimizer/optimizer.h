// The rules by which a gradient changes a variable.
#ifndef HOLDFAST_PS_SERVER_OPTIMIZER_OPTIMIZER_H_
#define HOLDFAST_PS_SERVER_OPTIMIZER_OPTIMIZER_H_

#include <cstddef>
#include <memory>

#include "absl/types/span.h"
#include "proto/shard.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// One rule. Each element is worked on alone, so that a variable may be cut
// anywhere and has the same bits after.
//
// Below, w is the value, g the gradient, lr the learning rate of the step.
//
//   Sgd       w' = w - lr g
//   Momentum  a' = m a + g;  w' = w - lr a'
//             Nesterov:      w' = w - (lr g + lr m a')
//             (TensorFlow's ApplyMomentum; Sutskever et al. 2013.)
//             Slot 0 is a, zero at first.
//
// Thread-safe: has no state.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Arrays beside a variable, each of its size, zero at first.
  virtual size_t num_slots() const = 0;

  // Updates `count` elements. `next` is not `value`; slots are changed in
  // place.
  virtual void Apply(size_t count, const proto::StepScalars& scalars,
                     const float* value, const float* gradient,
                     absl::Span<float* const> slots, float* next) const = 0;
};

// The rule that `config` names. Never null: a config without a rule (refused by
// the declaration's check) gives SGD.
std::unique_ptr<Optimizer> MakeOptimizer(const proto::Optimizer& config);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_OPTIMIZER_OPTIMIZER_H_
