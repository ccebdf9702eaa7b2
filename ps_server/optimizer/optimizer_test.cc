// SPDX-License-Identifier: Apache-2.0
#include "ps_server/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/reference/optimizer_values.h"

namespace holdfast {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;

proto::Optimizer Parse(const std::string& text) {
  proto::Optimizer config;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

// beta1 and beta2 of Adam and AdamW, 0 of others.
struct Betas {
  float beta1 = 0;
  float beta2 = 0;
};

Betas BetasOf(const proto::Optimizer& told) {
  const proto::Optimizer config = WithDefaults(told);
  if (config.has_adam()) return {config.adam().beta1(), config.adam().beta2()};
  return {config.adamw().beta1(), config.adamw().beta2()};
}

// The scalars that the coordinator gives for the t-th step; t = 1 for the
// first.
proto::StepScalars Scalars(const proto::Optimizer& config, int t) {
  const auto [beta1, beta2] = BetasOf(config);
  proto::StepScalars scalars;
  scalars.set_learning_rate(config.learning_rate());
  scalars.set_bias_correction1(
      static_cast<float>(1 - std::pow(double{beta1}, t)));
  scalars.set_bias_correction2(
      static_cast<float>(1 - std::pow(double{beta2}, t)));
  return scalars;
}

// A variable, and its changes by steps.
class Bench {
 public:
  Bench(const proto::Optimizer& config, absl::Span<const float> start)
      : config_(config),
        optimizer_(MakeOptimizer(config)),
        values_(start.begin(), start.end()) {
    for (const float first : optimizer_->initial_slots()) {
      slots_.emplace_back(values_.size(), first);
    }
  }

  // Applies the step in pieces of at most `piece` elements.
  void Step(absl::Span<const float> gradient, size_t piece) {
    const proto::StepScalars scalars = Scalars(config_, ++t_);
    std::vector<float> next(values_.size());
    for (size_t at = 0; at < values_.size(); at += piece) {
      std::vector<Optimizer::Slot> slots;
      for (std::vector<float>& slot : slots_) {
        slots.push_back({&slot[at], &slot[at]});
      }
      Optimizer::Elements elements;
      elements.size = std::min(piece, values_.size() - at);
      elements.value = &values_[at];
      const Optimizer::Gradient whole{1, &gradient[at]};
      elements.gradients = {&whole, 1};
      elements.slots = slots;
      elements.next = &next[at];
      optimizer_->Apply(BestSimd(), scalars, elements);
    }
    values_ = std::move(next);
  }
  void Step(absl::Span<const float> gradient) {
    Step(gradient, values_.size());
  }

  const std::vector<float>& values() const { return values_; }
  const std::vector<std::vector<float>>& slots() const { return slots_; }

 private:
  const proto::Optimizer config_;
  const std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> values_;
  std::vector<std::vector<float>> slots_;
  int t_ = 0;
};

// The value of a single element after each of `gradients`.
std::vector<float> Train(const std::string& config, float value,
                         const std::vector<float>& gradients) {
  Bench bench(Parse(config), {value});
  std::vector<float> values;
  for (const float gradient : gradients) {
    bench.Step({gradient});
    values.push_back(bench.values()[0]);
  }
  return values;
}

std::vector<float> InitialSlots(const std::string& config) {
  return MakeOptimizer(Parse(config))->initial_slots();
}

TEST(OptimizerTest, Sgd) {
  // 1 - 0.5 * 2 = 0;  0 - 0.5 * -1 = 0.5;  unchanged by 0.
  EXPECT_THAT(Train("learning_rate: 0.5 sgd {}", 1, {2, -1, 0}),
              ElementsAre(0, 0.5f, 0.5f));
}

TEST(OptimizerTest, Momentum) {
  // a = 1;    w = 1 - 0.1             = 0.9
  // a = 1.9;  w = 0.9 - 0.19          = 0.71
  // a = 1.71; w = 0.71 - 0.171        = 0.539
  EXPECT_THAT(
      Train("learning_rate: 0.1 momentum { momentum: 0.9 }", 1, {1, 1, 0}),
      ElementsAre(FloatEq(0.9f), FloatEq(0.71f), FloatEq(0.539f)));
}

TEST(OptimizerTest, Nesterov) {
  // a = 1;    w = 1 - (0.1 + 0.09 * 1)       = 0.81
  // a = 1.9;  w = 0.81 - (0.1 + 0.09 * 1.9)  = 0.539
  // a = 1.71; w = 0.539 - (0 + 0.09 * 1.71)  = 0.3851
  EXPECT_THAT(
      Train("learning_rate: 0.1 momentum { momentum: 0.9 nesterov: true }", 1,
            {1, 1, 0}),
      ElementsAre(FloatEq(0.81f), FloatEq(0.539f), FloatEq(0.3851f)));
}

TEST(OptimizerTest, Adagrad) {
  // a = 7 + 3^2 = 16;  w = 1 - 0.5 * 3 / (4 + 1)    = 0.7
  // a = 16 + 3^2 = 25; w = 0.7 + 0.5 * 3 / (5 + 1)  = 0.95
  // a = 25;            w = 0.95
  EXPECT_THAT(Train("learning_rate: 0.5 adagrad { initial_accumulator_value: 7 "
                    "epsilon: 1 }",
                    1, {3, -3, 0}),
              ElementsAre(FloatEq(0.7f), FloatEq(0.95f), FloatEq(0.95f)));
}

TEST(OptimizerTest, RmsProp) {
  // s = 0.5 * 4 = 2;          w = 1 - 0.5 * 2 / sqrt(2 + 0.25) = 1 - 2/3
  // s = 2 + 0.5 (4.5 - 2)     (g^2 = 4.5)
  //   = 3.25, + 0.25 = 3.5;   w = 1/3 - 0.5 sqrt(4.5 / 3.5)
  const double w1 = 1.0 / 3;
  const double w2 = w1 - 0.5 * std::sqrt(4.5 / 3.5);
  const float root = std::sqrt(4.5f);
  EXPECT_THAT(Train("learning_rate: 0.5 rmsprop { rho: 0.5 epsilon: 0.25 }", 1,
                    {2, root}),
              ElementsAre(FloatEq(w1), FloatEq(w2)));
  // With momentum: a = 2/3, then a = 0.5 * 2/3 + 0.5 sqrt(4.5 / 3.5).
  const double a2 = 1.0 / 3 + 0.5 * std::sqrt(4.5 / 3.5);
  EXPECT_THAT(Train("learning_rate: 0.5 rmsprop { rho: 0.5 epsilon: 0.25 "
                    "momentum: 0.5 }",
                    1, {2, root}),
              ElementsAre(FloatEq(w1), FloatEq(w1 - a2)));
}

TEST(OptimizerTest, CenteredRmsProp) {
  // s = 2,   b = 1,    d = 1;            w = 1 - 0.5 * 2 / sqrt(1 + 3) = 0.5
  // s = 3,   b = 1.5,  d = 3 - 2.25;     w = 0.5 - 0.5 * 2 / sqrt(3.75)
  const double u2 = 1 / std::sqrt(3.75);
  EXPECT_THAT(Train("learning_rate: 0.5 rmsprop { rho: 0.5 epsilon: 3 "
                    "centered: true }",
                    1, {2, 2}),
              ElementsAre(FloatEq(0.5), FloatEq(0.5 - u2)));
  // With momentum: a = 0.5, then a = 0.5 * 0.5 + 1 / sqrt(3.75).
  EXPECT_THAT(Train("learning_rate: 0.5 rmsprop { rho: 0.5 epsilon: 3 "
                    "centered: true momentum: 0.5 }",
                    1, {2, 2}),
              ElementsAre(FloatEq(0.5), FloatEq(0.5 - 0.25 - u2)));
}

TEST(OptimizerTest, Adam) {
  // beta1 = 0.5, beta2 = 0.75: c1 = 0.5, 0.75; c2 = 0.25, 0.4375.
  // m = 1,   v = 1:     w = 1 - 0.1 * sqrt(0.25) / 0.5 * 1 / (1 + 1) = 0.95
  // m = 0.5, v = 0.75:  w = 0.95 - 0.1 * sqrt(0.4375) / 0.75 * 0.5 /
  //                                                       (sqrt(0.75) + 1)
  const double w2 =
      0.95 - 0.1 * std::sqrt(0.4375) / 0.75 * 0.5 / (std::sqrt(0.75) + 1);
  EXPECT_THAT(Train("learning_rate: 0.1 adam { beta1: 0.5 beta2: 0.75 "
                    "epsilon: 1 }",
                    1, {2, 0}),
              ElementsAre(FloatEq(0.95), FloatEq(w2)));
}

TEST(OptimizerTest, AdamW) {
  // m and v as above.
  // m_hat = 2,   v_hat = 4:       w = 1 - 0.1 (2 / (2 + 1) + 0.5 * 1)
  // m_hat = 2/3, v_hat = 12/7:    w -= 0.1 (2/3 / (sqrt(12/7) + 1) + 0.5 w)
  const double w1 = 1 - 0.1 * (2.0 / 3 + 0.5);
  const double w2 = w1 - 0.1 * (2.0 / 3 / (std::sqrt(12.0 / 7) + 1) + 0.5 * w1);
  EXPECT_THAT(Train("learning_rate: 0.1 adamw { beta1: 0.5 beta2: 0.75 "
                    "epsilon: 1 weight_decay: 0.5 }",
                    1, {2, 0}),
              ElementsAre(FloatEq(w1), FloatEq(w2)));
}

// Moves by the mean of the pushed values: 0.25 of 8 and 0.75 of 16 is 14, so
// that 2 + (1 - 0.75) (14 - 2) = 5; and 14 stays 14. The learning rate does not
// matter.
TEST(OptimizerTest, MovingAverage) {
  proto::MovingAverage config;
  config.set_momentum(0.75f);
  const auto rule = MakeMovingAverage(config);
  EXPECT_THAT(rule->initial_slots(), testing::IsEmpty());
  proto::StepScalars scalars;
  scalars.set_learning_rate(100);
  const float value[] = {2, 14};
  const float first[] = {8, 14};
  const float second[] = {16, 14};
  const Optimizer::Gradient gradients[] = {{0.25f, first}, {0.75f, second}};
  float next[2] = {};
  Optimizer::Elements elements;
  elements.size = 2;
  elements.value = value;
  elements.gradients = gradients;
  elements.next = next;
  rule->Apply(BestSimd(), scalars, elements);
  EXPECT_THAT(next, ElementsAre(5, 14));
}

TEST(OptimizerTest, WeightDecayIsPartOfTheGradient) {
  // g = 2 + 0.5 * 4 = 4;  w = 4 - 0.25 * 4 = 3
  // g = 0 + 0.5 * 3;      w = 3 - 0.25 * 1.5 = 2.625
  EXPECT_THAT(Train("learning_rate: 0.25 sgd {} weight_decay: 0.5", 4, {2, 0}),
              ElementsAre(3, 2.625f));
}

TEST(OptimizerTest, Ftrl) {
  // Rate 0.5, n = 1 at first, l1 = 1, l2 = 0.25, beta = 0.5, w = 2.
  // g = sqrt(3): n = 4, z = sqrt(3) - (2 - 1) / 0.5 * 2 = sqrt(3) - 4
  //              w = (4 - sqrt(3) - 1) / ((2 + 0.5) / 0.5 + 0.5)
  // g = 0:       n = 4, z as it was, and so w.
  // g = sqrt(5): n = 9, z = sqrt(3) - 4 + sqrt(5) - 2 w, which is within 1 of
  // 0.
  const float root3 = std::sqrt(3.0f), root5 = std::sqrt(5.0f);
  EXPECT_THAT(
      Train("learning_rate: 0.5 ftrl { initial_accumulator_value: 1 "
            "l1: 1 l2: 0.25 beta: 0.5 }",
            2, {root3, 0, root5}),
      ElementsAre(FloatEq((3 - root3) / 5.5f), FloatEq((3 - root3) / 5.5f), 0));
  // Shrinkage is in z, not in n: z = 3 + 2 * 0.25 * 2 - (5 - 4) / 1 * 2 = 2.
  EXPECT_THAT(Train("learning_rate: 1 ftrl { initial_accumulator_value: 16 "
                    "l2_shrinkage: 0.25 }",
                    2, {3}),
              ElementsAre(FloatEq(-2.0f / 5)));
  // 0 divided by 0 must not occur.
  EXPECT_THAT(
      Train("learning_rate: 1 ftrl { initial_accumulator_value: 0 }", 2, {0}),
      ElementsAre(0));
}

// As in the first step of a warm-up.
TEST(OptimizerTest, FtrlAtARateOf0) {
  Bench bench(Parse("learning_rate: 0 ftrl {}"), {2.0f});
  bench.Step({3.0f});
  EXPECT_THAT(bench.values(), ElementsAre(2));
  EXPECT_THAT(bench.slots(), ElementsAre(ElementsAre(0.1f), ElementsAre(0)));
}

// As in PyTorch, where a script freezes a group of parameters that way.
TEST(OptimizerTest, ARateOf0ChangesSlotsAlone) {
  for (const std::string rule :
       {"sgd {}", "sgd {} weight_decay: 0.5", "momentum { momentum: 0.9 }",
        "momentum { momentum: 0.9 nesterov: true }", "adagrad {}", "rmsprop {}",
        "rmsprop { centered: true }",
        "rmsprop { centered: true momentum: 0.9 epsilon_form: EPSILON_PYTORCH "
        "}",
        "adam {}", "adam { epsilon_form: EPSILON_PYTORCH }", "adamw {}"}) {
    const std::vector<float> start = {3.25f, -1e-30f, 7e37f, -0.1f};
    Bench frozen(Parse("learning_rate: 0 " + rule), start);
    Bench other(Parse("learning_rate: 0.5 " + rule), start);
    for (const float scale : {1.0f, -0.25f, 1e-20f}) {
      frozen.Step({1.5f * scale, -2 * scale, 0, 1e10f * scale});
      EXPECT_EQ(frozen.values(), start) << rule << " " << scale;
      if (scale == 1) other.Step({1.5f, -2, 0, 1e10f});
      if (scale == 1) {
        EXPECT_EQ(frozen.slots(), other.slots()) << rule;
      }
    }
  }
  // The slot of this rule has the rate in it.
  const std::string inside = "rmsprop { momentum: 0.9 }";
  EXPECT_THAT(Train("learning_rate: 0 " + inside, 2, {1, -1}),
              ElementsAre(2, 2));
  // -0 + 0 is 0, in PyTorch, too.
  EXPECT_THAT(Train("learning_rate: 0 sgd {}", -0.0f, {1, -1, 1}),
              ElementsAre(0, 0, 0));
}

TEST(OptimizerTest, FirstValuesOfSlots) {
  EXPECT_THAT(InitialSlots("sgd {}"), ElementsAre());
  EXPECT_THAT(InitialSlots("momentum {}"), ElementsAre(0));
  EXPECT_THAT(InitialSlots("adagrad {}"), ElementsAre(0.1f));
  EXPECT_THAT(InitialSlots("adagrad { initial_accumulator_value: 0 }"),
              ElementsAre(0));
  EXPECT_THAT(InitialSlots("rmsprop {}"), ElementsAre(0));
  EXPECT_THAT(InitialSlots("rmsprop { momentum: 0.5 }"), ElementsAre(0, 0));
  EXPECT_THAT(InitialSlots("rmsprop { centered: true }"), ElementsAre(0, 0));
  EXPECT_THAT(InitialSlots("rmsprop { centered: true momentum: 0.5 }"),
              ElementsAre(0, 0, 0));
  EXPECT_THAT(InitialSlots("adam {}"), ElementsAre(0, 0));
  EXPECT_THAT(InitialSlots("adamw {}"), ElementsAre(0, 0));
  EXPECT_THAT(InitialSlots("ftrl {}"), ElementsAre(0.1f, 0));
}

// The defaults of proto/training.proto.
TEST(OptimizerTest, Defaults) {
  const struct {
    std::string told, full;
  } kCases[] = {
      {"adagrad {}",
       "adagrad { initial_accumulator_value: 0.1 epsilon: 1e-7 }"},
      {"rmsprop {}", "rmsprop { rho: 0.9 epsilon: 1e-7 }"},
      {"adam {}", "adam { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }"},
      {"adamw {}",
       "adamw { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 weight_decay: 0.01 }"},
      {"ftrl {}", "ftrl { initial_accumulator_value: 0.1 }"},
      // 0 is not the same as nothing.
      {"adagrad { initial_accumulator_value: 0 epsilon: 1 }",
       "adagrad { initial_accumulator_value: 0 epsilon: 1 }"},
      {"adagrad { initial_accumulator_value: 1 epsilon: 0 }",
       "adagrad { initial_accumulator_value: 1 epsilon: 0 }"},
      {"adamw { beta1: 0 beta2: 0 epsilon: 1 weight_decay: 0 }",
       "adamw { beta1: 0 beta2: 0 epsilon: 1 weight_decay: 0 }"},
      {"rmsprop { rho: 0 epsilon: 1 }", "rmsprop { rho: 0 epsilon: 1 }"},
      {"sgd {}", "sgd {}"},
      {"momentum {}", "momentum {}"},
  };
  for (const auto& c : kCases) {
    const proto::Optimizer told = Parse(c.told), full = Parse(c.full);
    EXPECT_EQ(WithDefaults(told).DebugString(), full.DebugString()) << c.told;
    EXPECT_EQ(WithDefaults(full).DebugString(), full.DebugString()) << c.told;
    // The rules use these defaults.
    Bench short_one(told, kReferenceStart), long_one(full, kReferenceStart);
    for (const ReferenceElements& gradient : kReferenceGradients) {
      short_one.Step(gradient);
      long_one.Step(gradient);
    }
    EXPECT_EQ(short_one.values(), long_one.values()) << c.told;
  }
}

// Two computations in float32 that order or fuse the operations of a step
// differently, or one in float32 and one in double, may be an ulp apart after
// each step: half an ulp (2^-24) for the subtraction from the value, and
// another for the few roundings of the update, which is smaller. An error stays
// in the value, so the tolerance grows with each step, and is relative to the
// greatest value that the element has had.
void ExpectNear(const std::string& what,
                const std::vector<std::vector<float>>& values,
                const std::vector<std::vector<double>>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  std::vector<double> size(kReferenceStart.begin(), kReferenceStart.end());
  for (double& s : size) s = std::abs(s);
  for (size_t t = 0; t < values.size(); ++t) {
    for (size_t i = 0; i < size.size(); ++i) {
      size[i] = std::max(size[i], std::abs(expected[t][i]));
      EXPECT_NEAR(values[t][i], expected[t][i],
                  0x1p-23 * static_cast<double>(t + 1) * size[i])
          << what << ", element " << i << " after step " << t + 1;
    }
  }
}

std::vector<std::vector<float>> TrainOnReference(const std::string& config) {
  Bench bench(Parse(config), kReferenceStart);
  std::vector<std::vector<float>> values;
  for (const ReferenceElements& gradient : kReferenceGradients) {
    bench.Step(gradient);
    values.push_back(bench.values());
  }
  return values;
}

TEST(OptimizerTest, AsTensorFlowOptaxAndPyTorch) {
  for (const ReferenceRun& run : kReferenceRuns) {
    std::vector<std::vector<double>> expected;
    for (const ReferenceElements& values : run.values) {
      expected.emplace_back(values.begin(), values.end());
    }
    ExpectNear(run.config, TrainOnReference(run.config), expected);
  }
}

// The formulas of optimizer.h, or of the paper where it has another form, in
// double. `s` are the slots, in an order of their own, and zero at first.
using Rule = std::function<double(double w, double g, double t, double* s)>;

TEST(OptimizerTest, AsTheFormulasInDouble) {
  // The numbers of a job file, as float32.
  const double rate = 0.03f, decay = 0.2f, m = 0.9f, epsilon = 0.001f;
  const double beta1 = 0.8f, beta2 = 0.95f, rho = 0.7f;
  const auto adam_moments = [=](double g, double* s) {
    s[0] = beta1 * s[0] + (1 - beta1) * g;
    s[1] = beta2 * s[1] + (1 - beta2) * g * g;
  };
  const auto rms = [=](double g, bool centered, double* s) {
    s[0] = rho * s[0] + (1 - rho) * g * g;
    s[1] = centered ? rho * s[1] + (1 - rho) * g : 0;
    return rate * g / std::sqrt(s[0] - s[1] * s[1] + epsilon);
  };
  const struct {
    std::string rule;
    Rule next;
  } kCases[] = {
      {"sgd {}",
       [=](double w, double g, double, double*) { return w - rate * g; }},
      {"momentum { momentum: 0.9 }",
       [=](double w, double g, double, double* s) {
         s[0] = m * s[0] + g;
         return w - rate * s[0];
       }},
      {"momentum { momentum: 0.9 nesterov: true }",
       [=](double w, double g, double, double* s) {
         s[0] = m * s[0] + g;
         return w - rate * (g + m * s[0]);
       }},
      {"adagrad { initial_accumulator_value: 0.5 epsilon: 0.001 }",
       [=](double w, double g, double, double* s) {
         s[0] += g * g;
         return w - rate * g / (std::sqrt(0.5 + s[0]) + epsilon);
       }},
      {"rmsprop { rho: 0.7 epsilon: 0.001 }",
       [=](double w, double g, double, double* s) {
         return w - rms(g, false, s);
       }},
      {"rmsprop { rho: 0.7 epsilon: 0.001 momentum: 0.9 }",
       [=](double w, double g, double, double* s) {
         s[2] = m * s[2] + rms(g, false, s);
         return w - s[2];
       }},
      {"rmsprop { rho: 0.7 epsilon: 0.001 centered: true }",
       [=](double w, double g, double, double* s) {
         return w - rms(g, true, s);
       }},
      {"rmsprop { rho: 0.7 epsilon: 0.001 centered: true momentum: 0.9 }",
       [=](double w, double g, double, double* s) {
         s[2] = m * s[2] + rms(g, true, s);
         return w - s[2];
       }},
      {"adam { beta1: 0.8 beta2: 0.95 epsilon: 0.001 }",
       [=](double w, double g, double t, double* s) {
         adam_moments(g, s);
         const double step = rate * std::sqrt(1 - std::pow(beta2, t)) /
                             (1 - std::pow(beta1, t));
         return w - step * s[0] / (std::sqrt(s[1]) + epsilon);
       }},
      {"adam { beta1: 0.8 beta2: 0.95 epsilon: 0.001"
       " epsilon_form: EPSILON_PYTORCH }",
       [=](double w, double g, double t, double* s) {
         adam_moments(g, s);
         const double m_hat = s[0] / (1 - std::pow(beta1, t));
         const double v_hat = s[1] / (1 - std::pow(beta2, t));
         return w - rate * m_hat / (std::sqrt(v_hat) + epsilon);
       }},
      {"rmsprop { rho: 0.7 epsilon: 0.001 epsilon_form: EPSILON_PYTORCH }",
       [=](double w, double g, double, double* s) {
         s[0] = rho * s[0] + (1 - rho) * g * g;
         return w - rate * g / (std::sqrt(s[0]) + epsilon);
       }},
      {"rmsprop { rho: 0.7 epsilon: 0.001 momentum: 0.9"
       " epsilon_form: EPSILON_PYTORCH }",
       [=](double w, double g, double, double* s) {
         s[0] = rho * s[0] + (1 - rho) * g * g;
         s[1] = m * s[1] + g / (std::sqrt(s[0]) + epsilon);
         return w - rate * s[1];
       }},
      {"adamw { beta1: 0.8 beta2: 0.95 epsilon: 0.001 weight_decay: 0.2 }",
       [=](double w, double g, double t, double* s) {
         adam_moments(g, s);
         const double m_hat = s[0] / (1 - std::pow(beta1, t));
         const double v_hat = s[1] / (1 - std::pow(beta2, t));
         return w - rate * (m_hat / (std::sqrt(v_hat) + epsilon) + decay * w);
       }},
  };
  for (const auto& c : kCases) {
    for (const bool decays : {false, true}) {
      std::string config = "learning_rate: 0.03 " + c.rule;
      if (decays) {
        if (c.rule.find("adamw") == 0) continue;
        config += " weight_decay: 0.2";
      }
      std::vector<double> w(kReferenceStart.begin(), kReferenceStart.end());
      std::vector<std::vector<double>> slots(w.size(), {0, 0, 0});
      std::vector<std::vector<double>> expected;
      for (size_t t = 0; t < kReferenceSteps; ++t) {
        for (size_t i = 0; i < w.size(); ++i) {
          const double g =
              kReferenceGradients[t][i] + (decays ? decay * w[i] : 0);
          w[i] = c.next(w[i], g, static_cast<double>(t) + 1, slots[i].data());
        }
        expected.push_back(w);
      }
      ExpectNear(config, TrainOnReference(config), expected);
    }
  }
}

const char* const kEachKind[] = {
    "sgd {}",
    "momentum { momentum: 0.83 }",
    "momentum { momentum: 0.83 nesterov: true }",
    "adagrad {}",
    "rmsprop {}",
    "rmsprop { momentum: 0.83 }",
    "rmsprop { centered: true }",
    "rmsprop { centered: true momentum: 0.83 }",
    "rmsprop { epsilon_form: EPSILON_PYTORCH }",
    "rmsprop { centered: true momentum: 0.83 epsilon_form: EPSILON_PYTORCH }",
    "adam {}",
    "adam { epsilon_form: EPSILON_PYTORCH }",
    "adamw {}",
    "ftrl { l1: 0.01 l2: 0.02 l2_shrinkage: 0.03 beta: 0.5 }",
};

// Vectors have four elements or more; elements left over after them are updated
// one by one.
TEST(OptimizerTest, SameBitsHoweverTheElementsAreCut) {
  constexpr size_t kCount = 67;
  std::vector<float> start(kCount), gradient(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    start[i] = 1.0f / static_cast<float>(i + 3);
    gradient[i] = 7.0f / static_cast<float>(2 * i + 1) - 0.5f;
  }
  for (const std::string kind : kEachKind) {
    for (const char* decay : {"", " weight_decay: 0.13"}) {
      if (kind == "adamw {}" && *decay != '\0') continue;
      const proto::Optimizer config =
          Parse("learning_rate: 0.37 " + kind + decay);
      const auto run = [&](size_t piece) {
        Bench bench(config, start);
        for (int step = 0; step < 3; ++step) bench.Step(gradient, piece);
        std::vector<std::vector<float>> all = bench.slots();
        all.push_back(bench.values());
        return all;
      };
      const auto whole = run(kCount);
      EXPECT_NE(whole.back(), start);
      for (size_t piece = 1; piece < kCount; ++piece) {
        const auto cut = run(piece);
        for (size_t a = 0; a < whole.size(); ++a) {
          EXPECT_EQ(std::memcmp(cut[a].data(), whole[a].data(),
                                kCount * sizeof(float)),
                    0)
              << kind << decay << ", pieces of " << piece << ", array " << a;
        }
      }
    }
  }
}

// Numbers of all magnitudes, and NaN.
float AnyFloat(uint32_t* state) {
  const float kSpecial[] = {0.0f,
                            -0.0f,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::denorm_min(),
                            -1e-40f,
                            std::numeric_limits<float>::max()};
  *state = *state * 1664525 + 1013904223;
  const uint32_t random = *state >> 8;
  if (random % 16 == 0) return kSpecial[random / 16 % 8];
  const float sign = random % 2 == 0 ? 1.0f : -1.0f;
  return sign * std::ldexp(1.0f + static_cast<float>(random % 1021) / 1021,
                           static_cast<int>(random / 1024 % 40) - 30);
}

// Which of two NaNs remains is the compiler's choice.
std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&bits[i], &values[i], sizeof(float));
    if (std::isnan(values[i])) bits[i] = 0x7fc00000;
  }
  return bits;
}

// Every rule at every SIMD level, with stores that bypass the caches and
// without, with one gradient and several, clipped and divided or not, at odd
// addresses, with odd sizes.
TEST(OptimizerTest, SameBitsWithAllVectors) {
  constexpr size_t kMost = 3 * kStreamElements + 5;
  uint32_t state = 1;
  std::vector<float> value(kMost), slot(kMost);
  for (float& v : value) v = AnyFloat(&state);
  for (float& v : slot) v = std::abs(AnyFloat(&state));
  std::vector<std::string> received(3, std::string(kMost * 4 + 4, '\0'));
  for (std::string& bytes : received) {
    for (size_t i = 0; i < kMost; ++i) {
      const float g = AnyFloat(&state);
      std::memcpy(&bytes[1 + 4 * i], &g, sizeof(g));
    }
  }
  for (const std::string kind : kEachKind) {
    for (const char* decay : {"", " weight_decay: 0.13"}) {
      if (kind == "adamw {}" && *decay != '\0') continue;
      const proto::Optimizer config =
          Parse("learning_rate: 0.37 " + kind + decay);
      const auto optimizer = MakeOptimizer(config);
      const size_t num_slots = optimizer->initial_slots().size();
      // The next values and slots of `size` elements that begin `skip` behind a
      // border between blocks.
      const auto run = [&](Simd simd, bool stream, size_t terms, bool clips,
                           float divisor, size_t skip, size_t size) {
        std::vector<float> memory(kMost + 3 * kStreamElements, 7.0f);
        const size_t past =
            reinterpret_cast<uintptr_t>(memory.data()) / 4 % kStreamElements;
        float* const next = &memory[kStreamElements - past + skip];
        std::vector<std::vector<float>> after(num_slots, slot);
        std::vector<Optimizer::Slot> slots;
        for (size_t s = 0; s < num_slots; ++s) {
          // The first in place, others to other memory.
          slots.push_back(
              {s == 0 ? after[s].data() : slot.data(), after[s].data()});
        }
        std::vector<Optimizer::Gradient> gradients;
        for (size_t t = 0; t < terms; ++t) {
          gradients.push_back({0.3f + static_cast<float>(t), &received[t][1]});
        }
        Optimizer::Elements elements;
        elements.size = size;
        elements.value = value.data();
        elements.gradients = gradients;
        if (clips) elements.clip_value = 0.6f;
        elements.divisor = divisor;
        elements.slots = slots;
        elements.next = next;
        elements.stream_out = stream;
        optimizer->Apply(simd, Scalars(config, 3), elements);
        FinishStreams();
        EXPECT_EQ(next[-1], 7.0f);
        EXPECT_EQ(next[size], 7.0f);
        std::vector<float> all(next, next + size);
        for (const auto& array : after) {
          all.insert(all.end(), array.begin(), array.end());
        }
        return Bits(all);
      };
      for (const size_t terms : {1, 2, 3}) {
        for (const bool clips : {false, true}) {
          // A single gradient is seldom divided, and then in the same way.
          const float divisor = static_cast<float>(terms == 1 ? 1 : 1 + terms);
          for (const size_t size : {size_t{1}, size_t{15}, size_t{67}, kMost}) {
            const auto expected =
                run(Simd::kPlain, false, terms, clips, divisor, 0, size);
            for (const Simd simd : SupportedSimd()) {
              for (const bool stream : {false, true}) {
                for (const size_t skip : {0, 1, 77}) {
                  EXPECT_TRUE(run(simd, stream, terms, clips, divisor, skip,
                                  size) == expected)
                      << kind << decay << " " << SimdName(simd) << ", " << terms
                      << " gradients, " << size << " elements, clips " << clips
                      << ", streams " << stream << ", skips " << skip;
                }
              }
            }
          }
        }
      }
    }
  }
}

// A gradient that is NaN is not hidden, and changes its own element only.
TEST(OptimizerTest, NanStaysWhereItIs) {
  for (const std::string kind : kEachKind) {
    Bench bench(Parse("learning_rate: 0.1 " + kind),
                std::vector<float>(9, 1.0f));
    std::vector<float> gradient(9, 0.5f);
    gradient[3] = std::numeric_limits<float>::quiet_NaN();
    bench.Step(gradient);
    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(std::isnan(bench.values()[i]), i == 3) << kind << " " << i;
    }
  }
}

// The variance of a gradient that stays as it is tends to 0, and with rounding
// to both slots may end below it, further than epsilon brings it up again: the
// root of that would be NaN.
TEST(OptimizerTest, CenteredRmsPropOfASteadyGradient) {
  Bench bench(Parse("learning_rate: 0.1 rmsprop { centered: true }"), {0, 0});
  bench.Step({8000, 80});
  bool below_zero[2] = {};
  for (int step = 0; step < 300; ++step) {
    bench.Step({777.7f, 3});
    for (size_t i = 0; i < 2; ++i) {
      const float s = bench.slots()[0][i], b = bench.slots()[1][i];
      below_zero[i] |= s - b * b < -1e-6f;
      ASSERT_TRUE(std::isfinite(bench.values()[i])) << step << " " << i;
    }
  }
  EXPECT_THAT(below_zero, Each(true)) << "else this tests nothing";
}

TEST(OptimizerTest, NoWeightDecayOfAnInfiniteValue) {
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Train("learning_rate: 0.5 sgd {}", infinite, {1}),
              Each(infinite));
}

TEST(OptimizerTest, AConfigWithoutARuleIsSgd) {
  EXPECT_THAT(Train("learning_rate: 0.5", 1, {1}), ElementsAre(0.5f));
}

}  // namespace
}  // namespace holdfast
