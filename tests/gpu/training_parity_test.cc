// SPDX-License-Identifier: Apache-2.0

// Models that are trained on the device and the CPU.

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tests/gpu/case_count.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/parity.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/registry.h"
#include "worker/model/replicated.h"

namespace holdfast {
namespace {

class TrainingParityTest : public DeviceComparison {
 protected:
  // Steps of a loss curve.
  const size_t steps_ = DeviceIsSlow() ? 5 : 100;

  // The mean losses of the first steps of gradient descent, with a replica of
  // the model on each of `backends`.
  std::vector<double> Losses(const proto::Model& config,
                             const std::vector<int64_t>& shape,
                             const std::vector<Backend*>& backends) {
    constexpr int64_t kExamples = 32;
    constexpr int kClasses = 10;
    std::vector<double> losses;
    const auto model = CreateReplicatedModel(config, {shape, kClasses}, 1,
                                             backends, ModelRegistry());
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return losses;
    std::vector<std::vector<float>> parameters;
    for (const proto::Variable& variable : (*model)->Variables()) {
      int64_t size = 1;
      for (const int64_t dimension : variable.shape()) size *= dimension;
      parameters.push_back(RandomValues(size, 100 + parameters.size()));
      for (float& value : parameters.back()) value *= 0.3f;
    }
    int64_t example_size = 1;
    for (const int64_t dimension : shape) example_size *= dimension;
    const std::vector<float> inputs = RandomValues(kExamples * example_size, 1);
    std::vector<int32_t> labels(kExamples);
    std::vector<int64_t> positions(kExamples);
    for (int64_t i = 0; i < kExamples; ++i) {
      labels[i] = i * 7 % kClasses;
      positions[i] = i;
    }
    for (size_t step = 0; step < steps_; ++step) {
      std::vector<std::vector<float>> gradients(parameters.size());
      const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                       parameters.end());
      const auto result = (*model)->ComputeGradients(
          spans, {inputs, labels, positions},
          [&](int variable, absl::Span<const float> gradient) {
            gradients[variable].assign(gradient.begin(), gradient.end());
          });
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return losses;
      losses.push_back(result->loss_sum / kExamples);
      for (size_t v = 0; v < parameters.size(); ++v) {
        for (size_t i = 0; i < gradients[v].size(); ++i) {
          parameters[v][i] -= 0.1f * gradients[v][i];
        }
      }
    }
    return losses;
  }
};

// The losses of 100 steps of gradient descent, on the device and the CPU.
TEST_F(TrainingParityTest, LossCurves) {
  const std::pair<const char*, std::vector<int64_t>> models[] = {
      {R"pb(layers { dense { units: 64 } }
            layers { relu {} }
            layers { dropout { rate: 0.2 } }
            layers { dense { units: 10 } }
            loss { softmax_cross_entropy {} })pb",
       {20}},
      {R"pb(layers { conv2d { filters: 6 kernel_size: 3 padding: SAME } }
            layers { relu {} }
            layers { max_pool2d { size: 2 } }
            layers {
              residual {
                layers { layer_norm {} }
                layers { conv2d { filters: 6 kernel_size: 3 padding: SAME } }
                layers { tanh {} }
              }
            }
            layers { global_average_pool2d {} }
            layers { dense { units: 10 } }
            loss { softmax_cross_entropy {} })pb",
       {8, 8, 2}}};
  for (const auto& [text, shape] : models) {
    SCOPED_TRACE(text);
    proto::Model config;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        text, config.mutable_sequential()));
    const std::vector<double> expected = Losses(config, shape, {cpu_.get()});
    const std::vector<double> made = Losses(config, shape, {device_.get()});
    ASSERT_EQ(made.size(), steps_);
    ASSERT_EQ(expected.size(), steps_);
    for (size_t i = 0; i < made.size(); ++i) {
      // Rounding differences accumulate and grow from step to step.
      EXPECT_NEAR(made[i], expected[i], 1e-2 * expected[i]) << "step " << i;
    }
    EXPECT_LT(made.back(), made.front());
    ++g_cases;
  }
}

// Three replicas of a model on the device and as many on the CPU; two runs give
// the same bits, whatever the timing of the threads.
TEST_F(TrainingParityTest, Replicas) {
  if (!DeviceHasTwins()) GTEST_SKIP() << "only one device can exist at a time";
  proto::Model config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(layers { conv2d { filters: 6 kernel_size: 3 padding: SAME } }
           layers { batch_norm {} }
           layers { relu {} }
           layers { flatten {} }
           layers { dropout { rate: 0.2 } }
           layers { dense { units: 64 } }
           layers { relu {} }
           layers { dense { units: 10 } }
           loss { softmax_cross_entropy {} })pb",
      config.mutable_sequential()));
  const std::vector<int64_t> shape = {8, 8, 2};
  auto second = MakeDeviceUnderTest();
  auto third = MakeDeviceUnderTest();
  ASSERT_TRUE(second.ok() && third.ok());
  const auto cpu_2 = *CpuBackend::Create({});
  const auto cpu_3 = *CpuBackend::Create({});
  const std::vector<double> expected =
      Losses(config, shape, {cpu_.get(), cpu_2.get(), cpu_3.get()});
  const std::vector<Backend*> devices = {device_.get(), second->get(),
                                         third->get()};
  const std::vector<double> made = Losses(config, shape, devices);
  ASSERT_EQ(made.size(), steps_);
  ASSERT_EQ(expected.size(), steps_);
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_NEAR(made[i], expected[i],
                DeviceHasTheCpusBits() ? 0 : 1e-2 * expected[i])
        << "step " << i;
  }
  EXPECT_EQ(Losses(config, shape, devices), made);
  ++g_cases;
}

}  // namespace
}  // namespace holdfast
