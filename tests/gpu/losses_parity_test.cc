// SPDX-License-Identifier: Apache-2.0

// Losses and their gradients on the device and the CPU.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/parity.h"
#include "tests/gpu/shapes.h"

namespace holdfast {
namespace {

class LossesParityTest : public DeviceComparison {
 protected:
  using Loss = std::function<absl::StatusOr<LossSums>(Backend*, ConstMatrix,
                                                      const Targets&, Matrix*)>;

  // Compares the loss of `z` on the device with the loss on the CPU.
  void CompareLoss(const std::string& name, const Values& z,
                   const Targets& targets, const Loss& loss) {
    std::vector<LossSums> told;
    const auto run = [&](Backend* backend, Matrix z,
                         Matrix* dz) -> absl::Status {
      const auto sums = loss(backend, z, targets, dz);
      if (!sums.ok()) return sums.status();
      told.push_back(*sums);
      return absl::OkStatus();
    };
    Compare(name, {z, Values::Unset(z.rows, z.cols)}, kRounding,
            [&](Backend* backend, const Matrices& x) {
              absl::Status status = run(backend, x[0], nullptr);
              Matrix dz = x[1];
              status.Update(run(backend, x[0], &dz));
              // The gradient overwrites the outputs.
              Matrix in_place = x[0];
              status.Update(run(backend, x[0], &in_place));
              return status;
            });
    for (const LossSums& sums : told) {
      SCOPED_TRACE(name);
      const LossSums& expected = told.front();
      EXPECT_NEAR(sums.loss, expected.loss, 1e-6 * std::abs(expected.loss));
      EXPECT_EQ(sums.correct, expected.correct);
      ASSERT_EQ(sums.absolute_error.has_value(),
                expected.absolute_error.has_value());
      EXPECT_NEAR(sums.absolute_error.value_or(0),
                  expected.absolute_error.value_or(0),
                  1e-9 * expected.absolute_error.value_or(0));
      EXPECT_EQ(sums.squared_error.has_value(),
                expected.squared_error.has_value());
      EXPECT_NEAR(sums.squared_error.value_or(0),
                  expected.squared_error.value_or(0),
                  1e-9 * expected.squared_error.value_or(0));
    }
  }
};

TEST_F(LossesParityTest, Losses) {
  const std::pair<const char*, Loss> losses[] = {
      {"SoftmaxCrossEntropy", std::mem_fn(&Backend::SoftmaxCrossEntropy)},
      {"SigmoidCrossEntropy", std::mem_fn(&Backend::SigmoidCrossEntropy)},
      {"MeanSquaredError", std::mem_fn(&Backend::MeanSquaredError)},
      {"MeanAbsoluteError", std::mem_fn(&Backend::MeanAbsoluteError)},
      {"Huber", [](Backend* backend, ConstMatrix z, const Targets& targets,
                   Matrix* dz) { return backend->Huber(z, targets, 1, dz); }}};
  for (const Shape shape : Shapes()) {
    const auto [m, n] = shape;
    std::vector<int32_t> labels(m);
    for (int64_t i = 0; i < m; ++i) labels[i] = i * 7 % n;
    Values z = Values::Random(m, n, 1);
    for (float& value : z.values) value = std::round(value * 4);
    const std::vector<float> numbers = RandomValues(m * n, 2);
    std::vector<float> weights(m);
    for (int64_t i = 0; i < m; ++i) weights[i] = static_cast<float>(i % 3);
    const Targets of_labels = {labels};
    const Targets of_weighted = {labels, {}, weights};
    const Targets of_numbers = {{}, numbers, weights};
    for (const auto& [name, loss] : losses) {
      for (const Targets* const targets :
           {&of_labels, &of_weighted, &of_numbers}) {
        if (targets == &of_numbers && &loss == &losses[0].second) continue;
        CompareLoss(Name(name, shape), z, *targets, loss);
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

}  // namespace
}  // namespace holdfast
