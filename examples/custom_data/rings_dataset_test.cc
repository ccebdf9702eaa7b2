// SPDX-License-Identifier: Apache-2.0
#include "examples/custom_data/rings_dataset.h"

#include <cmath>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast_examples {
namespace {

using ::holdfast::DatasetContext;
using ::testing::HasSubstr;

struct Example {
  float input[2];
  int32_t label = -1;
};

Example Read(const holdfast::Dataset& dataset, int64_t index) {
  Example example;
  holdfast::ExampleMemory memory;
  memory.input = absl::MakeSpan(example.input);
  memory.label = &example.label;
  EXPECT_TRUE(dataset.Read(index, memory).ok());
  return example;
}

std::unique_ptr<holdfast::Dataset> Make(
    const std::map<std::string, std::string>& options) {
  auto made = RingsDataset::Create({options});
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

TEST(RingsDatasetTest, PointsLieOnTheRingsOfTheirClasses) {
  const auto dataset =
      Make({{"examples", "1000"}, {"rings", "3"}, {"noise", "0.1"}});
  EXPECT_EQ(dataset->num_examples(), 1000);
  EXPECT_EQ(dataset->spec().num_classes, 3);
  std::map<int32_t, int> counts;
  for (int64_t i = 0; i < 1000; ++i) {
    const Example example = Read(*dataset, i);
    ++counts[example.label];
    EXPECT_NEAR(std::hypot(example.input[0], example.input[1]),
                1 + example.label, 0.1001);
  }
  ASSERT_EQ(counts.size(), 3);
  for (const auto& [label, count] : counts) EXPECT_NEAR(count, 333, 60);
}

TEST(RingsDatasetTest, AnExampleFollowsFromIndexAndSeed) {
  const auto one = Make({{"examples", "10"}, {"seed", "5"}});
  const auto same = Make({{"examples", "10"}, {"seed", "5"}});
  const auto other = Make({{"examples", "10"}, {"seed", "6"}});
  EXPECT_EQ(Read(*one, 7).input[0], Read(*same, 7).input[0]);
  EXPECT_NE(Read(*one, 7).input[0], Read(*one, 8).input[0]);
  EXPECT_NE(Read(*one, 7).input[0], Read(*other, 7).input[0]);
  EXPECT_EQ(one->digest(), same->digest());
  EXPECT_NE(one->digest(), other->digest());
}

TEST(RingsDatasetTest, NamesAWrongOption) {
  const auto error = [](const DatasetContext& context) {
    return std::string(RingsDataset::Create(context).status().message());
  };
  EXPECT_THAT(error({}), HasSubstr("option examples is required"));
  EXPECT_THAT(error({{{"examples", "many"}}}),
              HasSubstr("option examples is \"many\""));
  EXPECT_THAT(error({{{"examples", "9"}, {"noise", "2"}}}),
              HasSubstr("option noise is \"2\""));
  EXPECT_THAT(error({{{"examples", "9"}, {"wings", "2"}}}),
              HasSubstr("there is no option \"wings\""));
}

}  // namespace
}  // namespace holdfast_examples
