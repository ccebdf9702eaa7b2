// SPDX-License-Identifier: Apache-2.0
#include "ps_server/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/base/attributes.h"

namespace holdfast {
namespace {

// A rule is a class with the number of its slots, kSlots, their first values,
// and At(scalars): the function of one element at one step, which takes the
// value, the gradient and a reference to each slot, and returns the next value.
// It is inlined into the loops for each kind of vectors (common/base/simd.h).

class Sgd {
 public:
  explicit Sgd(const proto::Optimizer&) {}

  static constexpr size_t kSlots = 0;
  std::vector<float> initial_slots() const { return {}; }

  auto At(const proto::StepScalars& scalars) const {
    return [rate = scalars.learning_rate()](float w, float g)
               ABSL_ATTRIBUTE_ALWAYS_INLINE { return w - rate * g; };
  }
};

template <bool kNesterov>
class Momentum {
 public:
  explicit Momentum(const proto::Optimizer& config)
      : momentum_(config.momentum().momentum()) {}

  static constexpr size_t kSlots = 1;
  std::vector<float> initial_slots() const { return {0}; }

  auto At(const proto::StepScalars& scalars) const {
    const float rate = scalars.learning_rate();
    return [rate, momentum = momentum_, rate_momentum = rate * momentum_](
               float w, float g, float& a) ABSL_ATTRIBUTE_ALWAYS_INLINE {
      a = momentum * a + g;
      return w - (kNesterov ? rate * g + rate_momentum * a : rate * a);
    };
  }

 private:
  const float momentum_;
};

class Adagrad {
 public:
  explicit Adagrad(const proto::Optimizer& config)
      : initial_(config.adagrad().initial_accumulator_value()),
        epsilon_(config.adagrad().epsilon()) {}

  static constexpr size_t kSlots = 1;
  std::vector<float> initial_slots() const { return {initial_}; }

  auto At(const proto::StepScalars& scalars) const {
    return [rate = scalars.learning_rate(), epsilon = epsilon_](
               float w, float g, float& a) ABSL_ATTRIBUTE_ALWAYS_INLINE {
      a += g * g;
      return w - rate * g / (std::sqrt(a) + epsilon);
    };
  }

 private:
  const float initial_;
  const float epsilon_;
};

template <bool kPyTorch, bool kCentered, bool kMomentum>
class RmsProp {
 public:
  explicit RmsProp(const proto::Optimizer& config)
      : taken_(1 - config.rmsprop().rho()),
        momentum_(config.rmsprop().momentum()),
        epsilon_(config.rmsprop().epsilon()) {}

  static constexpr size_t kSlots = 1 + kCentered + kMomentum;
  std::vector<float> initial_slots() const {
    return std::vector<float>(kSlots, 0.0f);
  }

  auto At(const proto::StepScalars& scalars) const {
    return
        [rate = scalars.learning_rate(), taken = taken_, momentum = momentum_,
         epsilon = epsilon_](float w, float g, float& square, auto&... others)
            ABSL_ATTRIBUTE_ALWAYS_INLINE {
              square += taken * (g * g - square);
              float divisor = square;
              if constexpr (kCentered) {
                float& mean = std::get<0>(std::tie(others...));
                mean += taken * (g - mean);
                divisor -= mean * mean;
                divisor = std::max(divisor, 0.0f);
              }
              if constexpr (kPyTorch && kMomentum) {
                float& a = std::get<kCentered>(std::tie(others...));
                a = momentum * a + g / (std::sqrt(divisor) + epsilon);
                return w - rate * a;
              } else {
                const float update = rate * g /
                                     (kPyTorch ? std::sqrt(divisor) + epsilon
                                               : std::sqrt(divisor + epsilon));
                if constexpr (!kMomentum) return w - update;
                if constexpr (kMomentum) {
                  float& a = std::get<kCentered>(std::tie(others...));
                  a = momentum * a + update;
                  return w - a;
                }
              }
            };
  }

 private:
  const float taken_;
  const float momentum_;
  const float epsilon_;
};

// The moments of Adam and AdamW.
class Moments {
 public:
  Moments(float beta1, float beta2) : taken1_(1 - beta1), taken2_(1 - beta2) {}

  ABSL_ATTRIBUTE_ALWAYS_INLINE void Update(float g, float& m, float& v) const {
    m += taken1_ * (g - m);
    v += taken2_ * (g * g - v);
  }

 private:
  float taken1_;
  float taken2_;
};

template <bool kPyTorch>
class Adam {
 public:
  explicit Adam(const proto::Optimizer& config)
      : moments_(config.adam().beta1(), config.adam().beta2()),
        epsilon_(config.adam().epsilon()) {}

  static constexpr size_t kSlots = 2;
  std::vector<float> initial_slots() const { return {0, 0}; }

  auto At(const proto::StepScalars& scalars) const {
    const float root = std::sqrt(scalars.bias_correction2());
    const float rate =
        kPyTorch ? scalars.learning_rate() / scalars.bias_correction1()
                 : scalars.learning_rate() * root / scalars.bias_correction1();
    return [rate, scale = 1 / root, moments = moments_, epsilon = epsilon_](
               float w, float g, float& m, float& v)
               ABSL_ATTRIBUTE_ALWAYS_INLINE {
                 moments.Update(g, m, v);
                 return w - rate * m /
                                (kPyTorch ? std::sqrt(v) * scale + epsilon
                                          : std::sqrt(v) + epsilon);
               };
  }

 private:
  const Moments moments_;
  const float epsilon_;
};

class AdamW {
 public:
  explicit AdamW(const proto::Optimizer& config)
      : moments_(config.adamw().beta1(), config.adamw().beta2()),
        epsilon_(config.adamw().epsilon()),
        weight_decay_(config.adamw().weight_decay()) {}

  static constexpr size_t kSlots = 2;
  std::vector<float> initial_slots() const { return {0, 0}; }

  auto At(const proto::StepScalars& scalars) const {
    const float rate = scalars.learning_rate() / scalars.bias_correction1();
    const float scale = 1 / std::sqrt(scalars.bias_correction2());
    const double decay = double{scalars.learning_rate()} * weight_decay_;
    const auto kept = static_cast<float>(1 - decay);
    return [rate, scale, kept, moments = moments_, epsilon = epsilon_](
               float w, float g, float& m, float& v)
               ABSL_ATTRIBUTE_ALWAYS_INLINE {
                 moments.Update(g, m, v);
                 return kept * w - rate * m / (std::sqrt(v) * scale + epsilon);
               };
  }

 private:
  const Moments moments_;
  const float epsilon_;
  const float weight_decay_;
};

class Ftrl {
 public:
  explicit Ftrl(const proto::Optimizer& config)
      : initial_(config.ftrl().initial_accumulator_value()),
        l1_(config.ftrl().l1()),
        l2_(config.ftrl().l2()),
        l2_shrinkage_(config.ftrl().l2_shrinkage()),
        beta_(config.ftrl().beta()) {}

  static constexpr size_t kSlots = 2;
  std::vector<float> initial_slots() const { return {initial_, 0}; }

  auto At(const proto::StepScalars& scalars) const {
    const float rate = scalars.learning_rate();
    return [rate, l1 = l1_, l2 = 2 * l2_, shrinkage = 2 * l2_shrinkage_,
            beta = beta_](float w, float g, float& n,
                          float& z) ABSL_ATTRIBUTE_ALWAYS_INLINE {
      const float next_n = n + g * g;
      const float root = std::sqrt(next_n);
      const float next_z =
          z + ((g + shrinkage * w) - (root - std::sqrt(n)) / rate * w);
      // 0 where |z| is at most l1.
      const float excess =
          std::max(next_z - l1, 0.0f) + std::min(next_z + l1, 0.0f);
      const float next_w =
          excess == 0 ? 0 : -excess / ((root + beta) / rate + l2);
      const bool changes = rate > 0;
      n = changes ? next_n : n;
      z = changes ? next_z : z;
      return changes ? next_w : w;
    };
  }

 private:
  const float initial_;
  const float l1_;
  const float l2_;
  const float l2_shrinkage_;
  const float beta_;
};

class MovingAverage {
 public:
  explicit MovingAverage(const proto::MovingAverage& config)
      : taken_(1 - config.momentum()) {}

  static constexpr size_t kSlots = 0;
  std::vector<float> initial_slots() const { return {}; }

  auto At(const proto::StepScalars&) const {
    return [taken = taken_](float w, float g)
               ABSL_ATTRIBUTE_ALWAYS_INLINE { return w + taken * (g - w); };
  }

 private:
  const float taken_;
};

// Unlike a float, it may have any alignment and alias anything.
using UnalignedFloat = float __attribute__((aligned(1), may_alias));

// Elements summed at a time: few enough that the CPU fetches the next ones
// while it works on these, and that the sum does not leave its registers for
// long.
constexpr size_t kBlock = kStreamElements;

// sum += weight x clipped gradient
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void AddTerm(const UnalignedFloat* gradient,
                                                 float weight, float clip_value,
                                                 size_t size, float* sum) {
#pragma GCC ivdep
  for (size_t i = 0; i < size; ++i) {
    const float g = gradient[i];
    const float below = g > clip_value ? clip_value : g;
    const float clipped = below < -clip_value ? -clip_value : below;
    sum[i] += weight * clipped;
  }
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline void DivideBy(float divisor, size_t size,
                                                  float* sum) {
#pragma GCC ivdep
  for (size_t i = 0; i < size; ++i) sum[i] /= divisor;
}

// Whether x / divisor and x x (1 / divisor) have the same bits for every x,
// because 1 / divisor is not rounded. The latter is faster.
bool HasExactReciprocal(float divisor) {
  int exponent;
  return std::frexp(divisor, &exponent) == 0.5f && std::isnormal(1 / divisor);
}

template <typename Rule>
class ByElement : public Optimizer {
 public:
  explicit ByElement(const proto::Optimizer& config)
      : rule_(config), weight_decay_(config.weight_decay()) {}
  explicit ByElement(const proto::MovingAverage& config)
      : rule_(config), weight_decay_(0) {}

  std::vector<float> initial_slots() const override {
    return rule_.initial_slots();
  }

  void Apply(Simd simd, const proto::StepScalars& scalars,
             const Elements& elements) const override {
    constexpr auto kEachSlot = std::make_index_sequence<Rule::kSlots>();
    // Does not multiply 0 by a value that may be infinite.
    if (weight_decay_ == 0) {
      Apply<false>(simd, scalars, elements, kEachSlot);
    } else {
      Apply<true>(simd, scalars, elements, kEachSlot);
    }
  }

 private:
  template <bool kDecay, size_t... kSlot>
  void Apply(Simd simd, const proto::StepScalars& scalars,
             const Elements& elements, std::index_sequence<kSlot...>) const {
    const std::array<Slot, Rule::kSlots> slots{elements.slots[kSlot]...};
    // Elements [begin, begin + size), whose next values go to `out`.
    const auto update = [slots, rule = rule_.At(scalars),
                         value = elements.value, decay = weight_decay_](
                            size_t begin, size_t size,
                            const UnalignedFloat* gradient, float weight,
                            float* out) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    // No two arrays overlap, except that an element's own slot is read before
    // it is written. Without the pragma GCC tests each pair of arrays, and
    // gives up if there are more than ten.
#pragma GCC ivdep
      for (size_t i = 0; i < size; ++i) {
        const float w = value[begin + i];
        float g = weight * gradient[i];
        if constexpr (kDecay) g += decay * w;
        // One more than there are slots: an array cannot be empty.
        float slot[] = {slots[kSlot].before[begin + i]..., 0};
        out[i] = rule(w, g, slot[kSlot]...);
        ((slots[kSlot].after[begin + i] = slot[kSlot]), ...);
      }
    };
    const bool divides = !HasExactReciprocal(elements.divisor);
    const float factor = divides ? 1 : 1 / elements.divisor;
    RunSimd(simd, [update, all = elements, divides,
                   factor]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
      const bool is_sum =
          all.gradients.size() > 1 || all.divisor != 1 ||
          all.clip_value < std::numeric_limits<float>::infinity();
      for (size_t at = 0; at < all.size;) {
        // Blocks end where `next` is aligned; a piece that needs no blocks is
        // done at once.
        const size_t past =
            reinterpret_cast<uintptr_t>(all.next + at) / sizeof(float) % kBlock;
        const size_t size = is_sum || all.stream_out
                                ? std::min(all.size - at, kBlock - past)
                                : all.size - at;
        auto* gradient =
            static_cast<const UnalignedFloat*>(all.gradients[0].data) + at;
        float weight = all.gradients[0].weight;
        alignas(64) float sum[kBlock];
        if (is_sum) {
          // The only number that leaves every other unchanged when it is added.
          std::fill_n(sum, kBlock, -0.0f);
          for (const Gradient& term : all.gradients) {
            AddTerm(static_cast<const UnalignedFloat*>(term.data) + at,
                    term.weight, all.clip_value, size, sum);
          }
          if (divides) DivideBy(all.divisor, size, sum);
          gradient = sum;
          weight = factor;
        }
        if (all.stream_out && size == kBlock) {
          alignas(64) float out[kBlock];
          update(at, kBlock, gradient, weight, out);
          StreamOut(out, all.next + at);
        } else {
          update(at, size, gradient, weight, all.next + at);
        }
        at += size;
      }
    });
  }

  const Rule rule_;
  const float weight_decay_;
};

template <bool kPyTorch, bool kCentered>
std::unique_ptr<Optimizer> MakeRmsProp(const proto::Optimizer& config) {
  if (config.rmsprop().momentum() == 0) {
    return std::make_unique<ByElement<RmsProp<kPyTorch, kCentered, false>>>(
        config);
  }
  return std::make_unique<ByElement<RmsProp<kPyTorch, kCentered, true>>>(
      config);
}

template <bool kPyTorch>
std::unique_ptr<Optimizer> MakeRmsProp(const proto::Optimizer& config) {
  return config.rmsprop().centered() ? MakeRmsProp<kPyTorch, true>(config)
                                     : MakeRmsProp<kPyTorch, false>(config);
}

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const proto::Optimizer& told) {
  const proto::Optimizer config = WithDefaults(told);
  switch (config.update_case()) {
    case proto::Optimizer::kMomentum:
      if (config.momentum().nesterov()) {
        return std::make_unique<ByElement<Momentum<true>>>(config);
      }
      return std::make_unique<ByElement<Momentum<false>>>(config);
    case proto::Optimizer::kAdagrad:
      return std::make_unique<ByElement<Adagrad>>(config);
    case proto::Optimizer::kRmsprop:
      return config.rmsprop().epsilon_form() == proto::EPSILON_PYTORCH
                 ? MakeRmsProp<true>(config)
                 : MakeRmsProp<false>(config);
    case proto::Optimizer::kAdam:
      if (config.adam().epsilon_form() == proto::EPSILON_PYTORCH) {
        return std::make_unique<ByElement<Adam<true>>>(config);
      }
      return std::make_unique<ByElement<Adam<false>>>(config);
    case proto::Optimizer::kAdamw:
      return std::make_unique<ByElement<AdamW>>(config);
    case proto::Optimizer::kFtrl:
      return std::make_unique<ByElement<Ftrl>>(config);
    case proto::Optimizer::kSgd:
    case proto::Optimizer::UPDATE_NOT_SET:
      break;
  }
  return std::make_unique<ByElement<Sgd>>(config);
}

std::unique_ptr<Optimizer> MakeMovingAverage(
    const proto::MovingAverage& config) {
  return std::make_unique<ByElement<MovingAverage>>(config);
}

bool SameSlots(const proto::Optimizer& a, const proto::Optimizer& b) {
  if (a.update_case() != b.update_case()) return false;
  if (!a.has_rmsprop()) return true;
  const bool has_momentum = a.rmsprop().momentum() > 0;
  return a.rmsprop().centered() == b.rmsprop().centered() &&
         has_momentum == (b.rmsprop().momentum() > 0) &&
         // The two forms accumulate different quantities.
         (!has_momentum ||
          a.rmsprop().epsilon_form() == b.rmsprop().epsilon_form());
}

bool CorrectsBias(const proto::Optimizer& config) {
  return config.has_adam() || config.has_adamw();
}

proto::Optimizer WithDefaults(proto::Optimizer config) {
  const auto set_betas = [](auto& adam) {
    if (!adam.has_beta1()) adam.set_beta1(0.9f);
    if (!adam.has_beta2()) adam.set_beta2(0.999f);
    if (!adam.has_epsilon()) adam.set_epsilon(1e-8f);
  };
  const auto set_accumulator = [](auto& rule) {
    if (!rule.has_initial_accumulator_value()) {
      rule.set_initial_accumulator_value(0.1f);
    }
  };
  if (config.has_adagrad()) {
    proto::Optimizer::Adagrad& adagrad = *config.mutable_adagrad();
    set_accumulator(adagrad);
    if (!adagrad.has_epsilon()) adagrad.set_epsilon(1e-7f);
  } else if (config.has_rmsprop()) {
    proto::Optimizer::RmsProp& rmsprop = *config.mutable_rmsprop();
    if (!rmsprop.has_rho()) rmsprop.set_rho(0.9f);
    if (!rmsprop.has_epsilon()) rmsprop.set_epsilon(1e-7f);
  } else if (config.has_adam()) {
    set_betas(*config.mutable_adam());
  } else if (config.has_adamw()) {
    proto::Optimizer::AdamW& adamw = *config.mutable_adamw();
    set_betas(adamw);
    if (!adamw.has_weight_decay()) adamw.set_weight_decay(0.01f);
  } else if (config.has_ftrl()) {
    set_accumulator(*config.mutable_ftrl());
  }
  return config;
}

}  // namespace holdfast
