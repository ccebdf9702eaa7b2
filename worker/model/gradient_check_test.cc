// SPDX-License-Identifier: Apache-2.0
#include "worker/model/gradient_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast {
namespace {

using ::testing::HasSubstr;

// The loss of an example x is w x^2 + b, where b is not trained; in training,
// if the example has a position, times the position. The model can be made to
// lie.
class Parabola final : public Model {
 public:
  enum class Lie { kNone, kValue, kSize, kMissing, kTwice, kNotTrained, kLoss };

  explicit Parabola(Lie lie) : lie_(lie) {}

  std::vector<proto::Variable> Variables() const override {
    proto::Variable w, b;
    w.set_name("w");
    b.set_name("b");
    b.set_trainable(false);
    return {w, b};
  }

  absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink) override {
    std::vector<float> gradient(lie_ == Lie::kSize ? 2 : 1);
    for (int64_t i = 0; i < batch.size(); ++i) {
      gradient[0] +=
          Weight(batch, i) * batch.inputs[i] * batch.inputs[i] / batch.size();
    }
    if (lie_ == Lie::kValue) gradient[0] *= 1.01f;
    if (lie_ != Lie::kMissing) sink(0, gradient);
    if (lie_ == Lie::kTwice) sink(0, gradient);
    if (lie_ == Lie::kNotTrained) sink(1, gradient);
    return Loss(parameters, batch);
  }

  absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const Batch& batch) override {
    BatchResult result = Loss(parameters, {batch.inputs, batch.labels});
    if (lie_ == Lie::kLoss) result.loss_sum += 1;
    return result;
  }

 private:
  static float Weight(const Batch& batch, int64_t i) {
    return batch.positions.empty() ? 1 : batch.positions[i];
  }

  static BatchResult Loss(absl::Span<const absl::Span<const float>> parameters,
                          const Batch& batch) {
    BatchResult result;
    result.examples = batch.size();
    for (int64_t i = 0; i < batch.size(); ++i) {
      const double x = batch.inputs[i];
      result.loss_sum +=
          Weight(batch, i) * (parameters[0][0] * x * x + parameters[1][0]);
    }
    return result;
  }

  const Lie lie_;
};

TEST(GradientCheckTest, FindsWhatIsWrong) {
  const std::vector<float> inputs = {1, 2};
  const std::vector<int32_t> labels = {0, 0};
  const auto check = [&](Parabola::Lie lie) {
    Parabola model(lie);
    return CheckGradients(&model, {{3}, {5}}, {inputs, labels});
  };
  using Lie = Parabola::Lie;
  EXPECT_EQ(check(Lie::kNone), absl::OkStatus());
  EXPECT_THAT(check(Lie::kValue).message(),
              HasSubstr("variable \"w\": element 0 has the gradient 2.525, the "
                        "difference of losses gives 2.5"));
  EXPECT_THAT(check(Lie::kSize).message(),
              HasSubstr("variable \"w\": has 1 elements, its gradient 2"));
  EXPECT_THAT(check(Lie::kMissing).message(),
              HasSubstr("variable \"w\": has 0 gradients"));
  EXPECT_THAT(check(Lie::kTwice).message(),
              HasSubstr("variable \"w\": has 2 gradients"));
  EXPECT_THAT(check(Lie::kNotTrained).message(),
              HasSubstr("variable \"b\": has 1 gradients"));
  EXPECT_THAT(check(Lie::kLoss).message(), HasSubstr("finds the loss"));
}

TEST(GradientCheckTest, IsOfTheLossInTraining) {
  const std::vector<float> inputs = {1, 2};
  const std::vector<int32_t> labels = {0, 0};
  const std::vector<int64_t> positions = {3, 1};
  const auto check = [&](Parabola::Lie lie) {
    Parabola model(lie);
    return CheckGradients(&model, {{3}, {5}}, {inputs, labels, positions});
  };
  EXPECT_EQ(check(Parabola::Lie::kNone), absl::OkStatus());
  // (3 x 1 + 1 x 4) / 2, changed by the lie.
  EXPECT_THAT(
      check(Parabola::Lie::kValue).message(),
      HasSubstr("has the gradient 3.535, the difference of losses gives "
                "3.5"));
}

}  // namespace
}  // namespace holdfast
