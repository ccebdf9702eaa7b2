// SPDX-License-Identifier: Apache-2.0
#include "common/data/subset_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "absl/status/status.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

// Example i has the label i.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t num_examples) : num_examples_(num_examples) {}
  int64_t num_examples() const override { return num_examples_; }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    *to.label = index;
    return absl::OkStatus();
  }
  std::string GreatestLabelPlace() const override { return "here"; }
  const std::string& digest() const override { return digest_; }
  Footprint footprint() const override { return {}; }

 private:
  const int64_t num_examples_;
  const ExampleSpec spec_ = {{1}};
  const std::string digest_ = "digest";
};

proto::Data Holdout(double fraction, uint64_t seed,
                    proto::Data::Shuffle shuffle = proto::Data::FULL) {
  proto::Data data;
  data.mutable_holdout()->set_fraction(fraction);
  data.mutable_holdout()->set_seed(seed);
  data.set_shuffle(shuffle);
  return data;
}

std::vector<int32_t> LabelsOf(const Dataset& dataset) {
  std::vector<int32_t> labels(dataset.num_examples(), -1);
  for (size_t i = 0; i < labels.size(); ++i) {
    EXPECT_TRUE(dataset.Read(i, {{}, &labels[i]}).ok());
  }
  return labels;
}

TEST(SubsetDatasetTest, EveryExampleIsInOnePart) {
  for (const int64_t size : {2, 3, 100, 1001}) {
    for (const double fraction : {0.001, 0.2, 0.999}) {
      const auto parts = SubsetDataset::HoldOut(std::make_shared<Numbers>(size),
                                                Holdout(fraction, 5));
      ASSERT_TRUE(parts.ok()) << parts.status();
      EXPECT_GE(parts->kept->num_examples(), 1);
      EXPECT_GE(parts->held_out->num_examples(), 1);
      EXPECT_EQ(parts->kept->digest(), "digest");
      std::vector<int32_t> all = LabelsOf(*parts->kept);
      const std::vector<int32_t> rest = LabelsOf(*parts->held_out);
      all.insert(all.end(), rest.begin(), rest.end());
      EXPECT_EQ(static_cast<int64_t>(all.size()), size);
      EXPECT_EQ(static_cast<int64_t>(std::set(all.begin(), all.end()).size()),
                size);
    }
  }
}

TEST(SubsetDatasetTest, SeedAndFractionDecide) {
  const auto held_out = [](double fraction, uint64_t seed) {
    const auto parts = SubsetDataset::HoldOut(std::make_shared<Numbers>(1000),
                                              Holdout(fraction, seed));
    const std::vector<int32_t> labels = LabelsOf(*parts->held_out);
    return std::set<int32_t>(labels.begin(), labels.end());
  };
  EXPECT_EQ(held_out(0.2, 1).size(), 200u);
  EXPECT_EQ(held_out(0.2, 1), held_out(0.2, 1));
  EXPECT_NE(held_out(0.2, 1), held_out(0.2, 2));
  // They are spread over the whole set: of 1000 places 200 are expected in each
  // half, with a deviation of 9.
  int in_first_half = 0;
  for (const int32_t label : held_out(0.4, 3)) in_first_half += label < 500;
  EXPECT_NEAR(in_first_half, 200, 50);
}

// The same examples in any order; without FULL, in the order of the data. Sizes
// around words of 64 bits and blocks of 256.
TEST(SubsetDatasetTest, PartsKeepTheOrderOfTheDataUnlessItIsFull) {
  for (const int64_t size : {2, 63, 64, 65, 255, 256, 257, 1001, 5000}) {
    for (const double fraction : {0.001, 0.2, 0.5, 0.999}) {
      const proto::Data full = Holdout(fraction, 5);
      const auto marks = HeldOutExamples(size, full.holdout());
      ASSERT_TRUE(marks.ok()) << marks.status();
      std::vector<int32_t> kept, held_out;
      for (int64_t i = 0; i < size; ++i) {
        ((*marks)[i] ? held_out : kept).push_back(static_cast<int32_t>(i));
      }
      const auto whole = std::make_shared<Numbers>(size);
      for (const auto shuffle : {proto::Data::BLOCKS, proto::Data::NONE}) {
        const auto parts =
            SubsetDataset::HoldOut(whole, Holdout(fraction, 5, shuffle));
        ASSERT_TRUE(parts.ok()) << parts.status();
        EXPECT_EQ(LabelsOf(*parts->kept), kept);
        EXPECT_EQ(LabelsOf(*parts->held_out), held_out);
        EXPECT_LE(parts->kept->footprint().memory, size * 1.25 / 8 + 40);
      }
      const auto parts = SubsetDataset::HoldOut(whole, full);
      std::vector<int32_t> drawn = LabelsOf(*parts->held_out);
      std::sort(drawn.begin(), drawn.end());
      EXPECT_EQ(drawn, held_out);
      EXPECT_EQ(parts->kept->footprint().memory, 0);
    }
  }
}

TEST(SubsetDatasetTest, OneExampleCannotBeDivided) {
  EXPECT_THAT(
      SubsetDataset::HoldOut(std::make_shared<Numbers>(1), Holdout(0.5, 1))
          .status()
          .message(),
      HasSubstr("there is one example"));
}

}  // namespace
}  // namespace holdfast
