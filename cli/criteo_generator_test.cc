// SPDX-License-Identifier: Apache-2.0
#include "cli/criteo_generator.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using Part = CriteoGenerator::Part;
using ::testing::MatchesRegex;

CriteoGenerator::Options Small(uint64_t seed = 0) {
  CriteoGenerator::Options options;
  options.seed = seed;
  for (uint32_t& each : options.cardinalities) each = std::min(each, 500u);
  return options;
}

std::string Lines(const CriteoGenerator& generator, Part part, int64_t count) {
  std::string lines;
  for (int64_t i = 0; i < count; ++i) generator.Make(part, i, &lines);
  return lines;
}

TEST(CriteoGeneratorTest, MakesTheLayout) {
  const CriteoGenerator generator(Small());
  const std::string text = Lines(generator, Part::kTrain, 500);
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.back(), "");
  lines.pop_back();
  ASSERT_EQ(lines.size(), 500);
  std::vector<int> missing(40);
  for (const std::string& line : lines) {
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    ASSERT_EQ(cells.size(), 40);
    EXPECT_THAT(cells[0], MatchesRegex("[01]"));
    for (int i = 1; i < 14; ++i)
      EXPECT_THAT(cells[i], MatchesRegex("(-?[0-9]+)?"));
    for (int i = 14; i < 40; ++i) {
      EXPECT_THAT(cells[i], MatchesRegex("([0-9a-f]{8})?"));
    }
    for (int i = 0; i < 40; ++i) missing[i] += cells[i].empty();
  }
  // Most cells of I12 and C22 are missing, and none of I2 and C1.
  EXPECT_GT(missing[12], 300);
  EXPECT_GT(missing[35], 300);
  EXPECT_EQ(missing[2], 0);
  EXPECT_EQ(missing[14], 0);
}

// The same on every machine: these bytes are from the machine on which this
// test was written.
TEST(CriteoGeneratorTest, TheSeedSaysAllBytes) {
  const CriteoGenerator kaggle({/*seed=*/7});
  EXPECT_EQ(Sha256::Hex(Lines(kaggle, Part::kTrain, 1000)),
            "0d8c034f60066426bbbadee2ad794f387f5a66011ff9a8b20a5ddbbb2d3c34de");
  EXPECT_EQ(Sha256::Hex(Lines(kaggle, Part::kTest, 1000)),
            "209c2275ac98ab1d11b0081c1334d61bbccc9cc79d8ab27f73558e828e6da55e");
  EXPECT_NE(Lines(CriteoGenerator({/*seed=*/8}), Part::kTrain, 10),
            Lines(kaggle, Part::kTrain, 10));
  // An example does not depend on others.
  std::string alone;
  kaggle.Make(Part::kTrain, 999, &alone);
  const std::string all = Lines(kaggle, Part::kTrain, 1000);
  EXPECT_EQ(all.substr(all.size() - alone.size()), alone);
}

TEST(CriteoGeneratorTest, LabelsAreAsLikelyAsTheModelSays) {
  constexpr int64_t kExamples = 40000;
  const CriteoGenerator generator(Small(/*seed=*/3));
  double clicks = 0;
  // Indexed by tenths of the probability.
  std::vector<double> expected(10), found(10);
  std::vector<std::pair<float, bool>> logits, without_pairs;
  for (int64_t i = 0; i < kExamples; ++i) {
    const auto example = generator.Make(Part::kTest, i, nullptr);
    const double p = CriteoGenerator::Probability(example.logit);
    EXPECT_NEAR(CriteoGenerator::LogProbability(example.logit), std::log(p),
                1e-9);
    clicks += example.clicked;
    expected[static_cast<int>(p * 10)] += p;
    found[static_cast<int>(p * 10)] += example.clicked;
    logits.emplace_back(example.logit, example.clicked);
    without_pairs.emplace_back(example.logit - example.pairs, example.clicked);
  }
  EXPECT_NEAR(clicks / kExamples, CriteoGenerator::kClickRate, 0.02);
  for (int i = 0; i < 10; ++i) {
    EXPECT_NEAR(found[i], expected[i], 6 * std::sqrt(expected[i]) + 1) << i;
  }
  // There is something to learn, and a part of it only from pairs.
  const double auc = AreaUnderCurveOf(logits);
  EXPECT_GT(auc, 0.72);
  EXPECT_LT(auc, 0.95);
  EXPECT_GT(auc, AreaUnderCurveOf(without_pairs) + 0.02);
}

TEST(CriteoGeneratorTest, RareIdsAreLeftOut) {
  constexpr int64_t kExamples = 20000;
  CriteoGenerator::Options options = Small();
  options.examples = kExamples;
  options.min_occurrences = 50;
  const CriteoGenerator generator(options);
  // l - 7 sqrt(l) = 50 has l = 129.73
  EXPECT_NEAR(CriteoGenerator::FewestExpected(50), 129.73, 0.01);
  std::vector<std::map<uint32_t, int>> counts(kCriteoCategories);
  for (int64_t i = 0; i < kExamples; ++i) {
    const auto example = generator.Make(Part::kTrain, i, nullptr);
    for (int field = 0; field < kCriteoCategories; ++field) {
      ++counts[field][example.ids[field]];
    }
  }
  for (int field = 0; field < kCriteoCategories; ++field) {
    EXPECT_LE(generator.cardinalities()[field], options.cardinalities[field]);
    for (const auto& [id, count] : counts[field]) {
      EXPECT_LE(id, generator.cardinalities()[field]);
      EXPECT_GE(count, 50) << "C" << field + 1 << " " << id;
    }
  }
  EXPECT_GT(counts[2].size(), 10);
  EXPECT_EQ(generator.cardinalities()[8], 3);
}

TEST(AreaUnderCurveOfTest, CountsPairs) {
  // Of 2 x 3 pairs, 4 are in the right order and 1 is a tie.
  EXPECT_DOUBLE_EQ(
      AreaUnderCurveOf(
          {{2, true}, {1, true}, {1, false}, {1.5, false}, {0, false}}),
      4.5 / 6);
  EXPECT_TRUE(std::isnan(AreaUnderCurveOf({{1, true}})));
}

}  // namespace
}  // namespace holdfast
