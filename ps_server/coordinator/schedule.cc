// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "glog/logging.h"
#include "ps_server/optimizer/optimizer.h"

namespace holdfast {
namespace {

using Schedule = proto::LearningRateSchedule;

constexpr double kPi = 3.14159265358979323846;

double PiecewiseRate(const Schedule::Piecewise& piecewise, double base,
                     uint64_t u) {
  double rate = base;
  for (const auto& piece : piecewise.pieces()) {
    if (piece.from_step() <= u) rate = piece.learning_rate();
  }
  return rate;
}

double ExponentialRate(const Schedule::Exponential& exponential, double base,
                       uint64_t u) {
  if (base == 0) return 0;  // also where the power is infinite
  const uint64_t d = exponential.decay_steps();
  const double exponent = exponential.staircase()
                              ? static_cast<double>(u / d)
                              : static_cast<double>(u) / static_cast<double>(d);
  return base *
         std::pow(static_cast<double>(exponential.decay_rate()), exponent);
}

double PolynomialRate(const Schedule::Polynomial& polynomial, double base,
                      uint64_t u) {
  const double end = polynomial.end_learning_rate();
  const double power = polynomial.has_power() ? polynomial.power() : 1;
  uint64_t d = polynomial.decay_steps();
  if (polynomial.cycle()) {
    // u = 0 is in the first cycle, and u = d is its end.
    d *= std::max<uint64_t>(1, (u + d - 1) / d);
  } else {
    u = std::min(u, d);
  }
  const double left = static_cast<double>(d - u) / static_cast<double>(d);
  return (base - end) * std::pow(left, power) + end;
}

double CosineRate(const Schedule::Cosine& cosine, double base, uint64_t u) {
  const uint64_t d = cosine.decay_steps();
  const double share =
      static_cast<double>(std::min(u, d)) / static_cast<double>(d);
  const double alpha = cosine.alpha();
  return base * ((1 - alpha) * (1 + std::cos(kPi * share)) / 2 + alpha);
}

double ScheduledRate(const Schedule& schedule, double base, uint64_t step) {
  const uint64_t w = schedule.warmup_steps();
  if (step < w) {
    const double start = schedule.warmup_start_rate();
    return start +
           (base - start) * static_cast<double>(step) / static_cast<double>(w);
  }
  const uint64_t u = step - w;
  switch (schedule.kind_case()) {
    case Schedule::kPiecewise:
      return PiecewiseRate(schedule.piecewise(), base, u);
    case Schedule::kExponential:
      return ExponentialRate(schedule.exponential(), base, u);
    case Schedule::kPolynomial:
      return PolynomialRate(schedule.polynomial(), base, u);
    case Schedule::kCosine:
      return CosineRate(schedule.cosine(), base, u);
    case Schedule::KIND_NOT_SET:
      break;
  }
  return base;
}

// 1 - beta^t, without cancellation when beta^t is close to 1. For beta = 0 the
// logarithm is -inf, and the result 1.
double BiasCorrection(double beta, uint64_t t) {
  return -std::expm1(static_cast<double>(t) * std::log(beta));
}

}  // namespace

double LearningRateAt(const proto::Optimizer& config, uint64_t step) {
  return std::min<double>(
      ScheduledRate(config.schedule(), config.learning_rate(), step),
      std::numeric_limits<float>::max());
}

proto::StepScalars ScalarsAt(const proto::Optimizer& told, uint64_t step,
                             uint64_t update, float rate_factor) {
  CHECK_GE(update, 1);
  const proto::Optimizer config = WithDefaults(told);
  proto::StepScalars scalars;
  scalars.set_learning_rate(static_cast<float>(
      std::min<double>(LearningRateAt(config, step) * rate_factor,
                       std::numeric_limits<float>::max())));
  const auto set_corrections = [&](const auto& adam) {
    scalars.set_bias_correction1(
        static_cast<float>(BiasCorrection(adam.beta1(), update)));
    scalars.set_bias_correction2(
        static_cast<float>(BiasCorrection(adam.beta2(), update)));
  };
  if (config.has_adam()) set_corrections(config.adam());
  if (config.has_adamw()) set_corrections(config.adamw());
  return scalars;
}

}  // namespace holdfast
