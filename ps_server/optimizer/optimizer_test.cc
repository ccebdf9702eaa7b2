#include "ps_server/optimizer/optimizer.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

// Applies `gradients` one after the other to a single element.
std::vector<float> Train(const proto::Optimizer& config, float value,
                         const std::vector<float>& gradients) {
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config);
  proto::StepScalars scalars;
  scalars.set_learning_rate(config.learning_rate());
  std::vector<float> slots(optimizer->num_slots(), 0.0f);
  std::vector<float*> slot_pointers;
  for (float& slot : slots) slot_pointers.push_back(&slot);
  std::vector<float> values;
  for (const float gradient : gradients) {
    float next = 0;
    optimizer->Apply(1, scalars, &value, &gradient, slot_pointers, &next);
    value = next;
    values.push_back(value);
  }
  return values;
}

TEST(OptimizerTest, Sgd) {
  proto::Optimizer config;
  config.set_learning_rate(0.5f);
  config.mutable_sgd();
  // 1 - 0.5 * 2 = 0;  0 - 0.5 * -1 = 0.5;  unchanged by 0.
  EXPECT_THAT(Train(config, 1, {2, -1, 0}), ElementsAre(0, 0.5f, 0.5f));
}

TEST(OptimizerTest, Momentum) {
  proto::Optimizer config;
  config.set_learning_rate(0.1f);
  config.mutable_momentum()->set_momentum(0.9f);
  // a = 1;    w = 1 - 0.1             = 0.9
  // a = 1.9;  w = 0.9 - 0.19          = 0.71
  // a = 1.71; w = 0.71 - 0.171        = 0.539
  EXPECT_THAT(Train(config, 1, {1, 1, 0}),
              ElementsAre(FloatEq(0.9f), FloatEq(0.71f), FloatEq(0.539f)));
}

TEST(OptimizerTest, Nesterov) {
  proto::Optimizer config;
  config.set_learning_rate(0.1f);
  config.mutable_momentum()->set_momentum(0.9f);
  config.mutable_momentum()->set_nesterov(true);
  // a = 1;    w = 1 - (0.1 + 0.09 * 1)       = 0.81
  // a = 1.9;  w = 0.81 - (0.1 + 0.09 * 1.9)  = 0.539
  // a = 1.71; w = 0.539 - (0 + 0.09 * 1.71)  = 0.3851
  EXPECT_THAT(Train(config, 1, {1, 1, 0}),
              ElementsAre(FloatEq(0.81f), FloatEq(0.539f), FloatEq(0.3851f)));
}

TEST(OptimizerTest, SameBitsHoweverTheElementsAreCut) {
  proto::Optimizer config;
  config.set_learning_rate(0.37f);
  config.mutable_momentum()->set_momentum(0.83f);
  config.mutable_momentum()->set_nesterov(true);
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config);
  proto::StepScalars scalars;
  scalars.set_learning_rate(config.learning_rate());

  constexpr size_t kCount = 1031;
  std::vector<float> value(kCount), gradient(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    value[i] = 1.0f / static_cast<float>(i + 3);
    gradient[i] = 7.0f / static_cast<float>(2 * i + 1);
  }
  auto run = [&](size_t piece) {
    std::vector<float> slot(kCount, 0.25f), next(kCount);
    for (size_t at = 0; at < kCount; at += piece) {
      float* slots[] = {slot.data() + at};
      optimizer->Apply(std::min(piece, kCount - at), scalars, &value[at],
                       &gradient[at], slots, &next[at]);
    }
    next.insert(next.end(), slot.begin(), slot.end());
    return next;
  };
  const std::vector<float> whole = run(kCount);
  EXPECT_EQ(run(1), whole);
  EXPECT_EQ(run(7), whole);
}

}  // namespace
}  // namespace holdfast
