// SPDX-License-Identifier: Apache-2.0

// The rules by which a gradient changes a variable.
#ifndef HOLDFAST_PS_SERVER_OPTIMIZER_OPTIMIZER_H_
#define HOLDFAST_PS_SERVER_OPTIMIZER_OPTIMIZER_H_

#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/base/simd.h"
#include "proto/cluster.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// A rule by which a gradient changes a variable. Each element is updated by
// itself, using only operations that IEEE 754 rounds correctly (+ - * / sqrt),
// in the order written here, so that the bits are the same on every CPU, at
// every SIMD level, and however a variable is divided. (The exception is a
// NaN's own bits: of two NaNs that meet, the compiler decides which one
// remains.)
//
// Below, w is the value, g the gradient, lr the learning rate of the step, and
// c1 = 1 - beta1^t, c2 = 1 - beta2^t its bias corrections; slots are listed in
// their order, and are zero at first unless stated otherwise. With a
// weight_decay wd (all but AdamW), g is the gradient + wd w.
//
//   Sgd       w' = w - lr g
//
//   Momentum  a' = m a + g;  w' = w - lr a'
//             Nesterov:      w' = w - (lr g + lr m a')
//             Slot a. (TensorFlow's ResourceApplyMomentum; Sutskever et al.
//             2013.)
//
//   Adagrad   a' = a + g^2;  w' = w - lr g / (sqrt(a') + epsilon)
//             Slot a, initial_accumulator_value (default 0.1) at first; epsilon
//             1e-7. (TensorFlow's ResourceApplyAdagradV2; Duchi et al. 2011.)
//
//   RmsProp   s' = s + (1 - rho) (g^2 - s);  d = s'
//             Centered: b' = b + (1 - rho) (g - b);  d = max(s' - b'^2, 0)
//             u = lr g / sqrt(d + epsilon);  w' = w - u
//             With a momentum m above 0: a' = m a + u;  w' = w - a'
//             Slots s; b if centered; a if m is above 0. rho 0.9, m 0, epsilon
//             1e-7. (TensorFlow's ResourceApplyRMSProp and, but for the max,
//             ResourceApplyCenteredRMSProp, where rounding may bring a variance
//             of 0 below -epsilon, and w to NaN; Graves 2013. The slots begin
//             as in Keras; TensorFlow 1 began with s = 1.)
//             EPSILON_PYTORCH: u = g / (sqrt(d) + epsilon);  w' = w - lr u
//             With momentum: a' = m a + u;  w' = w - lr a'
//             (torch.optim.RMSprop.)
//
//   Adam      m' = m + (1 - beta1) (g - m);  v' = v + (1 - beta2) (g^2 - v)
//             w' = w - (lr sqrt(c2) / c1) m' / (sqrt(v') + epsilon)
//             Slots m, v. beta1 0.9, beta2 0.999, epsilon 1e-8. (TensorFlow's
//             ResourceApplyAdam; Kingma and Ba 2015, the form before section
//             2.1, whose epsilon is not that of their algorithm 1.)
//             EPSILON_PYTORCH:
//             w' = w - (lr / c1) m' / (sqrt(v') (1 / sqrt(c2)) + epsilon)
//             (torch.optim.Adam; Kingma and Ba 2015, algorithm 1.)
//
//   AdamW     m', v' as in Adam
//             w' = (1 - lr wd) w
//                  - (lr / c1) m' / (sqrt(v') (1 / sqrt(c2)) + epsilon)
//             Slots m, v. As in Adam, and wd 0.01. (Loshchilov and Hutter 2019,
//             algorithm 2, with lr = eta alpha: w - lr (m_hat / (sqrt(v_hat) +
//             epsilon) + wd w), as in PyTorch and Optax; rounded in PyTorch's
//             order. Keras has Adam's epsilon instead.)
//
//   Ftrl      n' = n + g^2
//             z' = z + (g + 2 l2_shrinkage w) - (sqrt(n') - sqrt(n)) / lr w
//             w' = -e / ((sqrt(n') + beta) / lr + 2 l2),  e = z' - l1 where
//             z' > l1, z' + l1 where z' < -l1, and otherwise w' = 0
//             Slots n, initial_accumulator_value (default 0.1) at first; z. The
//             first step forgets the variable's first value, unless n grows.
//             At a rate of 0 nothing changes. (TensorFlow's
//             ResourceApplyFtrlV2 with a learning rate power of -0.5, and
//             Keras' beta; McMahan et al. 2013, algorithm 1.)
//
//   MovingAverage  w' = w + (1 - m) (g - w)
//             For a variable that no optimizer changes: g is the mean of what
//             was pushed. (Keras' BatchNormalization.)
//
// Terms that depend only on the step are computed once for all elements.
//
// Thread-safe: has no state.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One number for each slot (an array of the variable's size): the first value
  // of all elements of the slot.
  virtual std::vector<float> initial_slots() const = 0;

  // The array of a slot, and the array to which the slot's next content is
  // written, which may be the same.
  struct Slot {
    const float* before;
    float* after;
  };

  // A gradient's elements: float32 as received, at any alignment.
  struct Gradient {
    float weight = 1;
    const void* data = nullptr;
  };

  // Arrays of `size` elements. No two overlap, except a slot's own.
  struct Elements {
    size_t size = 0;
    const float* value = nullptr;
    // At least one gradient. g is the sum of weight x gradient, in float32, in
    // the order of `gradients`, divided by `divisor`.
    absl::Span<const Gradient> gradients;
    // Above 0 and finite.
    float divisor = 1;
    // Each element of each gradient is first clipped to [-clip_value,
    // clip_value]; NaN stays NaN. If it is infinity, nothing is clipped.
    float clip_value = std::numeric_limits<float>::infinity();
    absl::Span<const Slot> slots;
    float* next = nullptr;
    // Whether the stores to `next` bypass the caches, which is faster if `next`
    // does not fit in them. The caller must call FinishStreams() afterwards.
    bool stream_out = false;
  };

  // Updates the elements, with the instructions of `simd`.
  virtual void Apply(Simd simd, const proto::StepScalars& scalars,
                     const Elements& elements) const = 0;
};

// The rule that `config` names. Never null: a config without a rule (refused by
// the declaration's check) gives SGD.
std::unique_ptr<Optimizer> MakeOptimizer(const proto::Optimizer& config);

// The rule of a variable with a moving average. Ignores the scalars. Never
// null.
std::unique_ptr<Optimizer> MakeMovingAverage(
    const proto::MovingAverage& config);

// Whether the slots of both rules have the same meaning: the rules are of the
// same kind and, for RmsProp, have the same slots.
bool SameSlots(const proto::Optimizer& a, const proto::Optimizer& b);

// Whether the rule has bias corrections, and so depends on the number of
// updates.
bool CorrectsBias(const proto::Optimizer& config);

// `config` with every optional field of its rule set: the defaults above.
proto::Optimizer WithDefaults(proto::Optimizer config);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_OPTIMIZER_OPTIMIZER_H_
