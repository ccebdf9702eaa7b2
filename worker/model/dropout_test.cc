// SPDX-License-Identifier: Apache-2.0

// What dropout layers drop, and when.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/random.h"
#include "worker/model/gradient_check.h"
#include "worker/model/testing/sequential_testing.h"

namespace holdfast {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

class DropoutTest : public SequentialTestBase {
 protected:
  // The output of the layers, in training, for 64 ones in the example at
  // `position`. Computed from the gradient of a dense layer's kernel, which is
  // 0: the output is 0, its target 1, so that dz = -2 and dW = -2 y.
  std::vector<float> InTraining(const std::string& layers, uint64_t seed,
                                int64_t position) {
    const auto model = Make(layers +
                                "layers { dense { units: 1 use_bias: false } }"
                                "loss { mean_squared_error {} }",
                            64, seed);
    const std::vector<float> ones(64, 1);
    std::vector<float> y =
        Gradients(model.get(), {std::vector<float>(64, 0)},
                  {ones, {1}, absl::MakeConstSpan(&position, 1)})[0];
    for (float& value : y) value /= -2;
    return y;
  }
};

// An activation at the end, and dropout at both ends and between: the mask is
// the same in every pass.
TEST_F(DropoutTest, AgreesWithFiniteDifferences) {
  const auto model = Make(R"pb(
                            layers { dropout { rate: 0.25 } }
                            layers { dense { units: 8 } }
                            layers { tanh {} }
                            layers { dropout { rate: 0.5 } }
                            layers { dropout { rate: 0 } }
                            layers { dense { units: 3 } }
                            layers { sigmoid {} }
                            layers { dropout { rate: 0.25 } }
                            loss { mean_squared_error {} }
                          )pb",
                          6);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(5, 6, 3);
  EXPECT_EQ(CheckGradients(model.get(), parameters, examples.training_batch()),
            absl::OkStatus());
  // Checks that something was dropped.
  const auto in_training =
      model->ComputeGradients(Spans(parameters), examples.training_batch(),
                              [](int, absl::Span<const float>) {});
  const auto in_evaluation =
      model->Evaluate(Spans(parameters), examples.batch());
  ASSERT_TRUE(in_training.ok() && in_evaluation.ok());
  EXPECT_NE(in_training->loss_sum, in_evaluation->loss_sum);
}

TEST_F(DropoutTest, FollowsSeedLayerAndPosition) {
  const std::string dropout = "layers { dropout { rate: 0.5 } }";
  const std::vector<float> y = InTraining(dropout, 7, 3);
  EXPECT_THAT(y, Contains(0));
  EXPECT_THAT(y, Contains(2));
  EXPECT_THAT(y, Each(AnyOf(0, 2)));
  EXPECT_EQ(InTraining(dropout, 7, 3), y);
  EXPECT_NE(InTraining(dropout, 8, 3), y);
  EXPECT_NE(InTraining(dropout, 7 + (uint64_t{1} << 32), 3), y);
  EXPECT_NE(InTraining(dropout, 7, 4), y);
  // In the second layer; relu leaves ones as they are.
  EXPECT_NE(InTraining("layers { relu {} }" + dropout, 7, 3), y);
  // The place counts, not the name.
  EXPECT_EQ(InTraining("layers { name: 'other' dropout { rate: 0.5 } }", 7, 3),
            y);
  // The masks of two layers are independent: elements that neither drops are
  // multiplied by 4.
  const std::vector<float> twice = InTraining(dropout + dropout, 7, 3);
  EXPECT_THAT(twice, Contains(4));
  for (int i = 0; i < 64; ++i) {
    EXPECT_TRUE(twice[i] == 0 || (twice[i] == 4 && y[i] == 2)) << i;
  }
  EXPECT_NE(twice, y);
}

// A known answer, so that a job's masks stay what they are: Philox4x32 of
// ({position, 0, element / 4, 0}, key) in words below 2^31, with the key that
// is the first two words of ({layer, 0, 0, 0x6c617965}, seed).
TEST_F(DropoutTest, IsAsDocumented) {
  const auto words = Philox4x32({1, 0, 0, 0x6c617965}, {7, 9});
  std::vector<float> expected;
  for (uint32_t block = 0; block < 16; ++block) {
    for (const uint32_t word :
         Philox4x32({3, 5, block, 0}, {words[0], words[1]})) {
      expected.push_back(word < 0x80000000 ? 0 : 2);
    }
  }
  EXPECT_EQ(InTraining("layers { relu {} } layers { dropout { rate: 0.5 } }",
                       uint64_t{9} << 32 | 7, int64_t{5} << 32 | 3),
            expected);
}

// The gradient of the mean over a batch is the mean over its examples, whose
// values, small integers, are exact; the masks do not depend on the rest of the
// batch.
TEST_F(DropoutTest, IsTheSameHoweverTheBatchIsCut) {
  const std::string dropout = "layers { dropout { rate: 0.5 } }";
  const auto model = Make(dropout +
                              "layers { dense { units: 1 use_bias: false } }"
                              "loss { mean_squared_error {} }",
                          64, 7);
  const std::vector<int64_t> positions = {3, 100, 4, 99};
  const std::vector<float> ones(4 * 64, 1);
  const std::vector<int32_t> labels(4, 1);
  std::vector<float> sum(64);
  for (const int64_t position : positions) {
    const std::vector<float> y = InTraining(dropout, 7, position);
    for (int i = 0; i < 64; ++i) sum[i] += y[i];
  }
  for (float& value : sum) value *= -2.0f / 4;
  EXPECT_EQ(Gradients(model.get(), {std::vector<float>(64, 0)},
                      {ones, labels, positions})[0],
            sum);
}

TEST_F(DropoutTest, NeedsPositionsInTrainingAlone) {
  const auto model = Make(R"pb(
                            layers {
                              name: "thin"
                              dropout { rate: 0.5 }
                            }
                            layers { dense { units: 3 } }
                            loss { softmax_cross_entropy {} }
                          )pb",
                          4);
  const auto plain = MakeMlp({3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(5, 4, 3);
  const auto ignore = [](int, absl::Span<const float>) { FAIL(); };
  const absl::Status status =
      model->ComputeGradients(Spans(parameters), examples.batch(), ignore)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("layer \"thin\""));
  EXPECT_THAT(status.message(), HasSubstr("the batch has no positions"));
  const auto expected = plain->Evaluate(Spans(parameters), examples.batch());
  ASSERT_TRUE(expected.ok());
  for (const Batch& batch : {examples.batch(), examples.training_batch()}) {
    const auto result = model->Evaluate(Spans(parameters), batch);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->loss_sum, expected->loss_sum);
  }
}

TEST_F(DropoutTest, OfNothingIsTheIdentity) {
  const auto model = Make(R"pb(
                            layers { dense { units: 5 } }
                            layers { dropout {} }
                            layers { relu {} }
                            layers { dense { units: 3 } }
                            loss { softmax_cross_entropy {} }
                          )pb",
                          4);
  const auto plain = MakeMlp({5, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(6, 4, 3);
  const Tensors expected = Gradients(plain.get(), parameters, examples.batch());
  EXPECT_EQ(Gradients(model.get(), parameters, examples.batch()), expected);
  EXPECT_EQ(Gradients(model.get(), parameters, examples.training_batch()),
            expected);
}

}  // namespace
}  // namespace holdfast
