// SPDX-License-Identifier: Apache-2.0
#include "worker/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast {
namespace {

using ::testing::HasSubstr;

TEST(CheckParametersTest, WantsValuesForEachVariable) {
  proto::Variable kernel;
  kernel.set_name("dense/kernel");
  kernel.add_shape(2);
  kernel.add_shape(3);
  proto::Variable scalar;
  scalar.set_name("temperature");
  const std::vector<proto::Variable> variables = {kernel, scalar};
  const std::vector<float> six(6), five(5), one(1);

  EXPECT_TRUE(CheckParameters(variables, {six, one}).ok());
  EXPECT_THAT(
      CheckParameters(variables, {five, one}).message(),
      HasSubstr("variable \"dense/kernel\": the model was given 5 values, its "
                "shape is [2,3]"));
  EXPECT_THAT(CheckParameters(variables, {six, {}}).message(),
              HasSubstr("variable \"temperature\""));
  EXPECT_THAT(CheckParameters(variables, {six}).message(),
              HasSubstr("values of 1 variables; it has 2"));
}

TEST(CheckBatchTest, WantsInputsAndLabelsThatFit) {
  const std::vector<float> inputs(6);
  const std::vector<int32_t> labels = {0, 2};
  EXPECT_TRUE(CheckBatch({inputs, labels}, 3, 3).ok());
  EXPECT_THAT(CheckBatch({}, 3, 3).message(), HasSubstr("no examples"));
  EXPECT_THAT(CheckBatch({inputs, labels}, 4, 3).message(),
              HasSubstr("6 input values for 2 examples; the model takes 4"));
  EXPECT_THAT(CheckBatch({inputs, labels}, 3, 2).message(),
              HasSubstr("example 1 of the batch has the label 2; the model "
                        "knows the classes 0 to 1"));
  const std::vector<int64_t> positions = {8, 9, 10};
  EXPECT_TRUE(
      CheckBatch({inputs, labels, absl::MakeConstSpan(positions).first(2)}, 3,
                 3)
          .ok());
  EXPECT_THAT(CheckBatch({inputs, labels, positions}, 3, 3).message(),
              HasSubstr("the batch has 3 positions for 2 examples"));
  const std::vector<int32_t> negative = {-1, 0};
  EXPECT_THAT(CheckBatch({inputs, negative}, 3, 2).message(),
              HasSubstr("example 0 of the batch has the label -1"));
}

}  // namespace
}  // namespace holdfast
