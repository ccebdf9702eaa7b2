// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/schedule.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/reference/optimizer_values.h"

namespace holdfast {
namespace {

using ::google::protobuf::TextFormat;

constexpr uint64_t kLatest = 1'000'000'000'000'000;  // Of proto::Declaration.

proto::Optimizer Parse(const std::string& text) {
  proto::Optimizer config;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

// The rate at `step` of a schedule whose base is 8.
double Rate(const std::string& schedule, uint64_t step) {
  return LearningRateAt(
      Parse("learning_rate: 8 sgd {} schedule { " + schedule + " }"), step);
}

// The tolerance: apart from a power, computations on exact doubles have few
// roundings.
constexpr double kRelative = 1e-15;

struct Case {
  std::string schedule;
  uint64_t step;
  double rate;
};

void ExpectRates(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_NEAR(Rate(c.schedule, c.step), c.rate, kRelative * std::abs(c.rate))
        << c.schedule << " at " << c.step;
  }
}

TEST(LearningRateTest, WithoutAScheduleItIsTheBase) {
  for (const uint64_t step : {uint64_t{0}, uint64_t{1}, kLatest}) {
    EXPECT_EQ(LearningRateAt(Parse("learning_rate: 0.1 sgd {}"), step), 0.1f);
    EXPECT_EQ(Rate("", step), 8);
  }
}

TEST(LearningRateTest, WarmUp) {
  const std::string kAlone = "warmup_steps: 4 warmup_start_rate: 2";
  // 2 + (8 - 2) t / 4, and the base from t = 4 on.
  ExpectRates({{kAlone, 0, 2},
               {kAlone, 1, 3.5},
               {kAlone, 3, 6.5},
               {kAlone, 4, 8},
               {kAlone, 5, 8},
               {"warmup_steps: 4", 0, 0},
               {"warmup_steps: 4", 1, 2},
               {"warmup_steps: 4 warmup_start_rate: 16", 1, 14},
               {"warmup_steps: 1", 0, 0},
               {"warmup_steps: 1", 1, 8},
               // 8 (1 - 1e-15): not yet the base.
               {"warmup_steps: 1000000000000000", kLatest - 1, 8 - 8e-15}});
  EXPECT_LT(Rate("warmup_steps: 1000000000000000", kLatest - 1), 8);
  // A kind's u counts from the end of the warm-up.
  ExpectRates({
      {"warmup_steps: 4 piecewise { pieces { learning_rate: 1 } }", 3, 6},
      {"warmup_steps: 4 piecewise { pieces { learning_rate: 1 } }", 4, 1},
      {"warmup_steps: 4 piecewise { pieces { from_step: 1 learning_rate: 1 } }",
       4, 8},
      {"warmup_steps: 4 piecewise { pieces { from_step: 1 learning_rate: 1 } }",
       5, 1},
      {"warmup_steps: 4 exponential { decay_steps: 1 decay_rate: 0.5 }", 3, 6},
      {"warmup_steps: 4 exponential { decay_steps: 1 decay_rate: 0.5 }", 4, 8},
      {"warmup_steps: 4 exponential { decay_steps: 1 decay_rate: 0.5 }", 5, 4},
      {"warmup_steps: 4 polynomial { decay_steps: 2 }", 4, 8},
      {"warmup_steps: 4 polynomial { decay_steps: 2 }", 5, 4},
      {"warmup_steps: 4 polynomial { decay_steps: 2 }", 6, 0},
      {"warmup_steps: 4 cosine { decay_steps: 2 }", 4, 8},
      {"warmup_steps: 4 cosine { decay_steps: 2 }", 5, 4},
      {"warmup_steps: 4 cosine { decay_steps: 2 }", 6, 0},
  });
}

TEST(LearningRateTest, Piecewise) {
  const std::string kTwo =
      "piecewise { pieces { from_step: 3 learning_rate: 4 }"
      " pieces { from_step: 7 learning_rate: 16 } }";
  const std::string kFromTheStart = "piecewise { pieces { learning_rate: 4 } }";
  ExpectRates({{kTwo, 0, 8},
               {kTwo, 2, 8},
               {kTwo, 3, 4},
               {kTwo, 6, 4},
               {kTwo, 7, 16},
               {kTwo, kLatest, 16},
               {kFromTheStart, 0, 4}});
}

TEST(LearningRateTest, Exponential) {
  const std::string kSmooth = "exponential { decay_steps: 4 decay_rate: 0.25 }";
  const std::string kStairs =
      "exponential { decay_steps: 4 decay_rate: 0.25 staircase: true }";
  // 8 x 4^-(u/4) = 8 x 2^-(u/2).
  ExpectRates({{kSmooth, 0, 8},
               {kSmooth, 1, 8 / std::sqrt(2.0)},
               {kSmooth, 2, 4},
               {kSmooth, 4, 2},
               {kSmooth, 8, 0.5},
               {kStairs, 0, 8},
               {kStairs, 3, 8},
               {kStairs, 4, 2},
               {kStairs, 7, 2},
               {kStairs, 8, 0.5},
               {kSmooth, kLatest, 0},
               {kStairs, kLatest, 0}});
  // One step before the greatest possible stair.
  EXPECT_EQ(Rate("exponential { decay_steps: 1000000000000000"
                 " decay_rate: 0.5 staircase: true }",
                 kLatest - 1),
            8);
}

TEST(LearningRateTest, Polynomial) {
  const std::string kLine =
      "polynomial { decay_steps: 4 end_learning_rate: 2 }";
  const std::string kSquare =
      "polynomial { decay_steps: 4 end_learning_rate: 2 power: 2 }";
  const std::string kRising =
      "polynomial { decay_steps: 4 end_learning_rate: 16 }";
  // 6 (1 - u/4) + 2;  6 (1 - u/4)^2 + 2.
  ExpectRates({{kLine, 0, 8},
               {kLine, 1, 6.5},
               {kLine, 3, 3.5},
               {kLine, 4, 2},
               {kLine, 5, 2},
               {kLine, kLatest, 2},
               {kSquare, 0, 8},
               {kSquare, 1, 6 * 0.5625 + 2},
               {kSquare, 2, 3.5},
               {kSquare, 4, 2},
               {kSquare, 5, 2},
               {kRising, 1, 10},
               {kRising, 4, 16}});
}

TEST(LearningRateTest, PolynomialInCycles) {
  const std::string kLine =
      "polynomial { decay_steps: 4 end_learning_rate: 2 cycle: true }";
  // The first cycle is u <= 4, the second 5 to 8 of 8 steps, the third of 12:
  // 6 (1 - u/4) + 2, 6 (1 - u/8) + 2, 6 (1 - u/12) + 2.
  ExpectRates({{kLine, 0, 8},
               {kLine, 1, 6.5},
               {kLine, 4, 2},
               {kLine, 5, 6 * 0.375 + 2},
               {kLine, 8, 2},
               {kLine, 9, 3.5},
               {kLine, 12, 2},
               {kLine, kLatest, 2}});
}

TEST(LearningRateTest, Cosine) {
  const std::string kDown = "cosine { decay_steps: 4 }";
  const std::string kQuarter = "cosine { decay_steps: 4 alpha: 0.25 }";
  // 8 (1 + cos(pi u/4)) / 2, and 6 of these and 2.
  const double kEighth = (1 + std::sqrt(0.5)) / 2;
  ExpectRates({{kDown, 0, 8},
               {kDown, 1, 8 * kEighth},
               {kDown, 2, 4},
               {kDown, 3, 8 * (1 - kEighth)},
               {kDown, 4, 0},
               {kDown, 5, 0},
               {kDown, kLatest, 0},
               {kQuarter, 0, 8},
               {kQuarter, 1, 6 * kEighth + 2},
               {kQuarter, 2, 5},
               {kQuarter, 4, 2},
               {kQuarter, 9, 2}});
}

// Keras computed these in double, from a base of 0.1; a small rate has the last
// bits of a difference from 1.
TEST(LearningRateTest, AsKeras) {
  for (const ReferenceSchedule& schedule : kReferenceSchedules) {
    const proto::Optimizer config =
        Parse(std::string("learning_rate: 0.1 sgd {} schedule { ") +
              schedule.config + " }");
    for (size_t i = 0; i < schedule.count; ++i) {
      EXPECT_NEAR(LearningRateAt(config, schedule.rates[i].step),
                  schedule.rates[i].rate, 0x1p-52)
          << schedule.config << " at " << schedule.rates[i].step;
    }
  }
}

// The most extreme values that a config may have.
TEST(LearningRateTest, IsAlwaysANumberThatAFloatCanBe) {
  const float most = std::numeric_limits<float>::max();
  for (const char* base : {"0", "1e-45", "1", "3.4028235e38"}) {
    for (const char* schedule : {
             "",
             "exponential { decay_steps: 1 decay_rate: 1e6 }",
             "exponential { decay_steps: 1 decay_rate: 1e-45 }",
             "exponential { decay_steps: 1000000000000000 decay_rate: 1e6 }",
             "polynomial { decay_steps: 1 power: 1000 cycle: true }",
             "polynomial { decay_steps: 1000000000000000 power: 1e-45"
             " cycle: true end_learning_rate: 3.4028235e38 }",
             "polynomial { decay_steps: 7 end_learning_rate: 3.4028235e38 }",
             "cosine { decay_steps: 1 alpha: 1 }",
             "cosine { decay_steps: 1000000000000000 }",
             "warmup_steps: 1000000000000000 warmup_start_rate: 3.4028235e38",
         }) {
      const proto::Optimizer config =
          Parse(std::string("learning_rate: ") + base + " sgd {} schedule { " +
                schedule + " }");
      for (const uint64_t step :
           {uint64_t{0}, uint64_t{1}, uint64_t{2}, kLatest - 1, kLatest}) {
        const float rate = ScalarsAt(config, step, step + 1).learning_rate();
        EXPECT_TRUE(rate >= 0 && rate <= most)
            << base << " " << schedule << " at " << step << ": " << rate;
      }
    }
  }
  EXPECT_EQ(Rate("exponential { decay_steps: 1 decay_rate: 1e6 }", kLatest),
            most);
}

TEST(LearningRateTest, ABaseOf0) {
  for (const char* schedule : {
           "",
           "exponential { decay_steps: 1 decay_rate: 1e6 }",
           "exponential { decay_steps: 7 decay_rate: 0.5 staircase: true }",
           "polynomial { decay_steps: 7 }",
           "polynomial { decay_steps: 7 power: 2 cycle: true }",
           "cosine { decay_steps: 7 }",
           "cosine { decay_steps: 7 alpha: 0.25 }",
           "warmup_steps: 5 cosine { decay_steps: 7 }",
       }) {
    const proto::Optimizer config = Parse(
        absl::StrCat("learning_rate: 0 sgd {} schedule { ", schedule, " }"));
    for (const uint64_t step :
         {uint64_t{0}, uint64_t{1}, uint64_t{6}, uint64_t{100}, kLatest}) {
      EXPECT_EQ(ScalarsAt(config, step, step + 1, 1000).learning_rate(), 0)
          << schedule << " at " << step;
    }
  }
  // A rate of its own is no multiple of the base.
  EXPECT_EQ(LearningRateAt(Parse("learning_rate: 0 sgd {} schedule { piecewise "
                                 "{ pieces { from_step: 3 learning_rate: 4 } "
                                 "} }"),
                           3),
            4);
}

// 1 - beta^t, rounded to float32, by Python's fractions of whole numbers: beta
// is the float32 next to what the job file says.
TEST(BiasCorrectionTest, AsExactFractions) {
  const struct {
    const char* beta;
    uint64_t t;
    float correction;
  } kCases[] = {
      {"0", 1, 1},
      {"0", kLatest, 1},
      {"0.5", 1, 0.5f},
      {"0.5", 3, 0.875f},
      {"0.9", 1, 0x1.9999ap-4f},
      {"0.9", 2, 0x1.851ebep-3f},
      {"0.9", 3, 0x1.15810ap-2f},
      {"0.9", 10, 0x1.4d7a08p-1f},
      {"0.9", 100, 0x1.fffc84p-1f},
      {"0.9", 1000, 1},
      {"0.999", 1, 0x1.0624p-10f},
      {"0.999", 2, 0x1.060272p-9f},
      {"0.999", 3, 0x1.88d16p-9f},
      {"0.999", 10, 0x1.463486p-7f},
      {"0.999", 100, 0x1.85f772p-4f},
      {"0.999", 1000, 0x1.43bccep-1f},
      {"0.999", kLatest, 1},
      // 1 - 2^-24, the greatest that is below 1.
      {"0.99999994", 1, 0x1p-24f},
      {"0.99999994", 3, 0x1.7ffffep-23f},
      {"0.99999994", 10, 0x1.3ffffap-21f},
      {"0.99999994", 1000, 0x1.f3fc3p-15f},
      {"0.99999994", kLatest, 1},
  };
  for (const auto& c : kCases) {
    const std::string beta = c.beta;
    for (const std::string rule : {"adam", "adamw"}) {
      const proto::StepScalars first = ScalarsAt(
          Parse(rule + " { beta1: " + beta + " beta2: 0.75 }"), 0, c.t);
      EXPECT_EQ(first.bias_correction1(), c.correction) << beta << " " << c.t;
      const proto::StepScalars second = ScalarsAt(
          Parse(rule + " { beta1: 0.75 beta2: " + beta + " }"), 0, c.t);
      EXPECT_EQ(second.bias_correction2(), c.correction) << beta << " " << c.t;
    }
  }
}

TEST(ScalarsTest, TheRateGoesByTheStepAndTheCorrectionsByTheUpdate) {
  const proto::StepScalars scalars =
      ScalarsAt(Parse("learning_rate: 8 adam { beta1: 0.5 beta2: 0.75 }"
                      " schedule { polynomial { decay_steps: 8 } }"),
                3, 2);
  EXPECT_EQ(scalars.learning_rate(), 5);
  EXPECT_EQ(scalars.bias_correction1(), 0.75f);
  EXPECT_EQ(scalars.bias_correction2(), 0.4375f);
}

TEST(ScalarsTest, DefaultsOfAdam) {
  for (const char* rule : {"adam {}", "adamw {}"}) {
    const proto::StepScalars scalars = ScalarsAt(Parse(rule), 5, 2);
    EXPECT_EQ(scalars.bias_correction1(), 0x1.851ebep-3f) << "0.9, as above";
    EXPECT_EQ(scalars.bias_correction2(), 0x1.060272p-9f) << "0.999";
  }
}

TEST(ScalarsTest, OthersHaveNoCorrections) {
  for (const char* rule :
       {"sgd {}", "momentum {}", "adagrad {}", "rmsprop {}"}) {
    const proto::StepScalars scalars =
        ScalarsAt(Parse(std::string("learning_rate: 0.1 ") + rule), 5, 2);
    EXPECT_EQ(scalars.learning_rate(), 0.1f);
    EXPECT_EQ(scalars.bias_correction1(), 0) << rule;
    EXPECT_EQ(scalars.bias_correction2(), 0) << rule;
  }
}

}  // namespace
}  // namespace holdfast
