#include "worker/trainer/slowed_model.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/fake_model.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

class HandClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch();
};

TEST(SlowedModelTest, GradientsTakeSoManyTimesAsLong) {
  HandClock clock;
  FakeModel model;
  // A computation takes 20 ms: with 40 more it is three times that.
  model.on_compute = [&](int64_t) { clock.now += absl::Milliseconds(20); };
  std::vector<absl::Duration> slept;
  SlowedModel slowed(&model, 3, &clock, [&](absl::Duration duration) {
    slept.push_back(duration);
  });
  EXPECT_EQ(slowed.Variables().size(), 2);

  const std::vector<float> a = {5, 5}, b = {5, 5, 5};
  const std::vector<absl::Span<const float>> parameters = {a, b};
  const std::vector<float> inputs = {7};
  const std::vector<int32_t> labels = {5};
  const Batch batch = {inputs, labels};
  std::vector<int> sunk;
  const auto result = slowed.ComputeGradients(
      parameters, batch,
      [&](int variable, absl::Span<const float>) { sunk.push_back(variable); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss_sum, 5);
  EXPECT_THAT(sunk, ElementsAre(1, 0));
  EXPECT_THAT(slept, ElementsAre(absl::Milliseconds(40)));

  const auto evaluated = slowed.Evaluate(parameters, batch);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_EQ(evaluated->correct, 1);
  EXPECT_EQ(slept.size(), 1);
}

}  // namespace
}  // namespace holdfast
