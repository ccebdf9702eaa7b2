// SPDX-License-Identifier: Apache-2.0

// When a model passes its gradients on, and in which memory.
#include "worker/model/gradient_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/types/span.h"
#include "worker/model/testing/sequential_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

class GradientSinkTest : public SequentialTestBase {};

TEST_F(GradientSinkTest, LastLayerComesFirst) {
  auto model = MakeMlp({8, 8, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(2, 4, 3);
  std::vector<int> order;
  ASSERT_TRUE(model
                  ->ComputeGradients(Spans(parameters), examples.batch(),
                                     [&](int v, absl::Span<const float>) {
                                       order.push_back(v);
                                     })
                  .ok());
  EXPECT_THAT(order, ElementsAre(5, 4, 3, 2, 1, 0));
}

TEST_F(GradientSinkTest, GradientsLeaveDuringTheBackwardPass) {
  // When the last layer's gradient arrives, the gradient of the first layer's
  // kernel has not been computed yet: its memory still holds an earlier pass's
  // values.
  auto model = MakeMlp({8, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(2, 4, 3), others(3, 4, 3);
  absl::Span<const float> first_kernel;
  const auto remember = [&](int v, absl::Span<const float> gradient) {
    if (v == 0) first_kernel = gradient;
  };
  ASSERT_TRUE(
      model->ComputeGradients(Spans(parameters), examples.batch(), remember)
          .ok());
  const std::vector<float> before(first_kernel.begin(), first_kernel.end());
  bool seen = false;
  const auto compare = [&](int v, absl::Span<const float> gradient) {
    if (v != 2) return;
    seen = true;
    EXPECT_EQ(first_kernel, absl::MakeConstSpan(before));
  };
  ASSERT_TRUE(
      model->ComputeGradients(Spans(parameters), others.batch(), compare).ok());
  EXPECT_TRUE(seen);
  EXPECT_NE(first_kernel, absl::MakeConstSpan(before));
}

TEST_F(GradientSinkTest, GradientsAreMadeInTheSinksMemory) {
  auto model = MakeMlp({8, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(6, 4, 3);
  const Tensors expected = Gradients(model.get(), parameters, examples.batch());
  // There is no memory for the second layer's kernel.
  Tensors memory;
  for (const std::vector<float>& gradient : expected) {
    memory.emplace_back(gradient.size(), -1);
  }
  memory[2].clear();
  const auto take = [&](int v, absl::Span<const float> gradient) {
    EXPECT_EQ(gradient, absl::MakeConstSpan(expected[v]));
    if (v == 2) return;
    EXPECT_EQ(gradient.data(), memory[v].data());
  };
  const auto memory_of = [&](int v) { return absl::MakeSpan(memory[v]); };
  ASSERT_TRUE(model
                  ->ComputeGradients(Spans(parameters), examples.batch(),
                                     GradientSink(take, memory_of))
                  .ok());
  EXPECT_EQ(memory[0], expected[0]);
}

TEST_F(GradientSinkTest, GradientsStayUntilTheNext) {
  auto model = MakeMlp({8, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(6, 4, 3), larger(50, 4, 3);
  std::vector<absl::Span<const float>> spans(4);
  ASSERT_TRUE(model
                  ->ComputeGradients(
                      Spans(parameters), examples.batch(),
                      [&](int v, absl::Span<const float> g) { spans[v] = g; })
                  .ok());
  const Tensors kept = {{spans[0].begin(), spans[0].end()},
                        {spans[1].begin(), spans[1].end()},
                        {spans[2].begin(), spans[2].end()},
                        {spans[3].begin(), spans[3].end()}};
  ASSERT_TRUE(model->Evaluate(Spans(parameters), larger.batch()).ok());
  for (int v = 0; v < 4; ++v) {
    EXPECT_EQ(spans[v], absl::MakeConstSpan(kept[v]));
  }
  EXPECT_EQ(Gradients(model.get(), parameters, examples.batch()), kept);
}

}  // namespace
}  // namespace holdfast
