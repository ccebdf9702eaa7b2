#include "ps_server/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace holdfast {
namespace {

// A rule is a class with the number of its slots, kSlots, their first values,
// and At(scalars): the function of one element at one step, which takes the
// value, the gradient and a reference to each slot, and returns the next value.

class Sgd {
 public:
  explicit Sgd(const proto::Optimizer&) {}

  static constexpr size_t kSlots = 0;
  std::vector<float> initial_slots() const { return {}; }

  auto At(const proto::StepScalars& scalars) const {
    return [rate = scalars.learning_rate()](float w, float g) {
      return w - rate * g;
    };
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
               float w, float g, float& a) {
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
               float w, float g, float& a) {
      a += g * g;
      return w - rate * g / (std::sqrt(a) + epsilon);
    };
  }

 private:
  const float initial_;
  const float epsilon_;
};

template <bool kCentered, bool kMomentum>
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
         epsilon = epsilon_](float w, float g, float& square, auto&... others) {
          square += taken * (g * g - square);
          float divisor = square;
          if constexpr (kCentered) {
            float& mean = std::get<0>(std::tie(others...));
            mean += taken * (g - mean);
            divisor -= mean * mean;
            divisor = std::max(divisor, 0.0f);
          }
          const float update = rate * g / std::sqrt(divisor + epsilon);
          if constexpr (!kMomentum) return w - update;
          if constexpr (kMomentum) {
            float& a = std::get<kCentered>(std::tie(others...));
            a = momentum * a + update;
            return w - a;
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

  void Update(float g, float& m, float& v) const {
    m += taken1_ * (g - m);
    v += taken2_ * (g * g - v);
  }

 private:
  float taken1_;
  float taken2_;
};

class Adam {
 public:
  explicit Adam(const proto::Optimizer& config)
      : moments_(config.adam().beta1(), config.adam().beta2()),
        epsilon_(config.adam().epsilon()) {}

  static constexpr size_t kSlots = 2;
  std::vector<float> initial_slots() const { return {0, 0}; }

  auto At(const proto::StepScalars& scalars) const {
    const float rate = scalars.learning_rate() *
                       std::sqrt(scalars.bias_correction2()) /
                       scalars.bias_correction1();
    return [rate, moments = moments_, epsilon = epsilon_](float w, float g,
                                                          float& m, float& v) {
      moments.Update(g, m, v);
      return w - rate * m / (std::sqrt(v) + epsilon);
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
    const float decay = scalars.learning_rate() * weight_decay_;
    return [rate, scale, decay, moments = moments_, epsilon = epsilon_](
               float w, float g, float& m, float& v) {
      moments.Update(g, m, v);
      return w - (rate * m / (std::sqrt(v) * scale + epsilon) + decay * w);
    };
  }

 private:
  const Moments moments_;
  const float epsilon_;
  const float weight_decay_;
};

template <bool kDecay, typename Rule, typename... Slots>
void ApplyRule(size_t count, const Rule& rule, float weight_decay,
               const float* value, const float* gradient, float* next,
               Slots* const... slots) {
  // No two arrays overlap. Else GCC tests each pair of them, and gives up where
  // there are more than ten.
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const float g =
        kDecay ? gradient[i] + weight_decay * value[i] : gradient[i];
    next[i] = rule(value[i], g, slots[i]...);
  }
}

template <typename Rule>
class ByElement : public Optimizer {
 public:
  explicit ByElement(const proto::Optimizer& config)
      : rule_(config), weight_decay_(config.weight_decay()) {}

  std::vector<float> initial_slots() const override {
    return rule_.initial_slots();
  }

  void Apply(size_t count, const proto::StepScalars& scalars,
             const float* value, const float* gradient,
             absl::Span<float* const> slots, float* next) const override {
    Apply(count, scalars, value, gradient, slots, next,
          std::make_index_sequence<Rule::kSlots>());
  }

 private:
  template <size_t... kSlot>
  void Apply(size_t count, const proto::StepScalars& scalars,
             const float* value, const float* gradient,
             [[maybe_unused]] absl::Span<float* const> slots, float* next,
             std::index_sequence<kSlot...>) const {
    const auto rule = rule_.At(scalars);
    // Not 0 times a value that may be infinite.
    if (weight_decay_ == 0) {
      ApplyRule<false>(count, rule, 0, value, gradient, next, slots[kSlot]...);
    } else {
      ApplyRule<true>(count, rule, weight_decay_, value, gradient, next,
                      slots[kSlot]...);
    }
  }

  const Rule rule_;
  const float weight_decay_;
};

template <bool kCentered>
std::unique_ptr<Optimizer> MakeRmsProp(const proto::Optimizer& config) {
  if (config.rmsprop().momentum() == 0) {
    return std::make_unique<ByElement<RmsProp<kCentered, false>>>(config);
  }
  return std::make_unique<ByElement<RmsProp<kCentered, true>>>(config);
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
      return config.rmsprop().centered() ? MakeRmsProp<true>(config)
                                         : MakeRmsProp<false>(config);
    case proto::Optimizer::kAdam:
      return std::make_unique<ByElement<Adam>>(config);
    case proto::Optimizer::kAdamw:
      return std::make_unique<ByElement<AdamW>>(config);
    case proto::Optimizer::kSgd:
    case proto::Optimizer::UPDATE_NOT_SET:
      break;
  }
  return std::make_unique<ByElement<Sgd>>(config);
}

proto::Optimizer WithDefaults(proto::Optimizer config) {
  const auto set_betas = [](auto& adam) {
    if (!adam.has_beta1()) adam.set_beta1(0.9f);
    if (!adam.has_beta2()) adam.set_beta2(0.999f);
    if (!adam.has_epsilon()) adam.set_epsilon(1e-8f);
  };
  if (config.has_adagrad()) {
    proto::Optimizer::Adagrad& adagrad = *config.mutable_adagrad();
    if (!adagrad.has_initial_accumulator_value()) {
      adagrad.set_initial_accumulator_value(0.1f);
    }
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
  }
  return config;
}

}  // namespace holdfast
