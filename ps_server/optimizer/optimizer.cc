#include "ps_server/optimizer/optimizer.h"

namespace holdfast {
namespace {

class Sgd : public Optimizer {
 public:
  size_t num_slots() const override { return 0; }

  void Apply(size_t count, const proto::StepScalars& scalars,
             const float* value, const float* gradient,
             absl::Span<float* const>, float* next) const override {
    const float rate = scalars.learning_rate();
    for (size_t i = 0; i < count; ++i) next[i] = value[i] - rate * gradient[i];
  }
};

class Momentum : public Optimizer {
 public:
  explicit Momentum(const proto::Optimizer::Momentum& config)
      : momentum_(config.momentum()), nesterov_(config.nesterov()) {}

  size_t num_slots() const override { return 1; }

  void Apply(size_t count, const proto::StepScalars& scalars,
             const float* value, const float* gradient,
             absl::Span<float* const> slots, float* next) const override {
    const float rate = scalars.learning_rate();
    float* const accumulator = slots[0];
    if (nesterov_) {
      for (size_t i = 0; i < count; ++i) {
        const float a = momentum_ * accumulator[i] + gradient[i];
        accumulator[i] = a;
        next[i] = value[i] - (rate * gradient[i] + rate * momentum_ * a);
      }
    } else {
      for (size_t i = 0; i < count; ++i) {
        const float a = momentum_ * accumulator[i] + gradient[i];
        accumulator[i] = a;
        next[i] = value[i] - rate * a;
      }
    }
  }

 private:
  const float momentum_;
  const bool nesterov_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const proto::Optimizer& config) {
  switch (config.update_case()) {
    case proto::Optimizer::kMomentum:
      return std::make_unique<Momentum>(config.momentum());
    case proto::Optimizer::kSgd:
    case proto::Optimizer::UPDATE_NOT_SET:
      return std::make_unique<Sgd>();
  }
  return std::make_unique<Sgd>();
}

}  // namespace holdfast
