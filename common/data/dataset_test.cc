// SPDX-License-Identifier: Apache-2.0
#include "common/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/data/idx.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An IDX file of float32, written as big-endian.
std::string Floats(const std::vector<int64_t>& shape,
                   const std::vector<float>& values) {
  std::string file = IdxHeader(shape);
  file[2] = 0x0d;
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    for (int shift = 24; shift >= 0; shift -= 8) {
      file += static_cast<char>(bits >> shift & 0xff);
    }
  }
  return file;
}

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    Write("images", IdxHeader({3, 1, 2}) + std::string("\0\xff\1\2\3\4", 6));
    Write("labels", IdxHeader({3}) + std::string("\5\0\7", 3));
  }

  std::string Path(const std::string& name) {
    return testing::TempDir() + "/" + name;
  }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << content;
  }
  absl::StatusOr<std::unique_ptr<Dataset>> OpenBoth(
      const Dataset::Options& options = {}) {
    return Dataset::OpenIdx(Path("images"), Path("labels"), options);
  }
  std::string OpenError() {
    const absl::Status status = OpenBoth().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  // For a source with classes and without weights.
  std::pair<std::vector<float>, int32_t> ExampleAt(const Dataset& dataset,
                                                   int64_t index) {
    std::vector<float> input(dataset.spec().input_size());
    int32_t label = -1;
    const absl::Status status =
        dataset.Read(index, {absl::MakeSpan(input), &label});
    EXPECT_TRUE(status.ok()) << status;
    return {input, label};
  }
};

TEST_F(DatasetTest, GivesExamples) {
  const auto dataset = OpenBoth();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 3);
  EXPECT_THAT((*dataset)->spec().shape, ElementsAre(1, 2));
  EXPECT_EQ((*dataset)->spec().num_classes, 8);
  EXPECT_EQ((*dataset)->spec().num_targets, 0);
  EXPECT_FALSE((*dataset)->spec().weighted);
  EXPECT_EQ((*dataset)->GreatestLabelPlace(),
            absl::StrCat("label 7 of example 2 (from 0) in \"", Path("labels"),
                         "\""));
  auto [input, label] = ExampleAt(**dataset, 0);
  EXPECT_THAT(input, ElementsAre(0.0f, 255 * (1.0f / 255.0f)));
  EXPECT_EQ(label, 5);
  std::tie(input, label) = ExampleAt(**dataset, 2);
  EXPECT_THAT(input, ElementsAre(3 * (1.0f / 255.0f), 4 * (1.0f / 255.0f)));
  EXPECT_EQ(label, 7);
  EXPECT_FALSE(Dataset::Open(proto::Dataset(), {}).ok());
}

TEST_F(DatasetTest, NormalizesAfterScaling) {
  proto::Data data;
  data.set_scale(0.5f);
  data.mutable_normalization()->set_mean(1);
  data.mutable_normalization()->set_stddev(0.25f);
  const auto dataset = OpenBoth(Dataset::OptionsOf(data));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  // (3 / 2 - 1) / 0.25 and (4 / 2 - 1) / 0.25.
  EXPECT_THAT(ExampleAt(**dataset, 2).first, ElementsAre(2, 4));
}

// Floats are unchanged, and any shape is accepted.
TEST_F(DatasetTest, ReadsTargetsAndWeights) {
  Write("inputs", Floats({2, 3}, {1, 2, 3, 4, 5, -6.5f}));
  Write("targets", Floats({2, 2}, {0.5f, 1.5f, 2.5f, 1e9f}));
  Write("weights", IdxHeader({2}) + "\1\3");
  proto::Dataset config;
  config.mutable_idx()->set_images(Path("inputs"));
  config.mutable_idx()->set_targets(Path("targets"));
  config.mutable_idx()->set_weights(Path("weights"));
  const auto dataset = Dataset::Open(config, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const ExampleSpec& spec = (*dataset)->spec();
  EXPECT_THAT(spec.shape, ElementsAre(3));
  EXPECT_EQ(spec.num_classes, std::nullopt);
  EXPECT_EQ(spec.num_targets, 2);
  EXPECT_TRUE(spec.weighted);
  std::vector<float> input(3), targets(2);
  float weight = 0;
  ASSERT_TRUE((*dataset)
                  ->Read(1, {absl::MakeSpan(input), nullptr,
                             absl::MakeSpan(targets), &weight})
                  .ok());
  EXPECT_THAT(input, ElementsAre(4, 5, -6.5f));
  EXPECT_THAT(targets, ElementsAre(2.5f, 1e9f));
  EXPECT_EQ(weight, 3);

  // Weights are part of what workers must agree on.
  const std::string digest = (*dataset)->digest();
  Write("weights", IdxHeader({2}) + "\1\2");
  EXPECT_NE((*Dataset::Open(config, {}))->digest(), digest);
}

TEST_F(DatasetTest, AnExampleMayBeANumber) {
  Write("images", Floats({3}, {1, 2, 3}));
  const auto dataset = OpenBoth();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->spec().shape, ElementsAre(1));
  EXPECT_THAT(ExampleAt(**dataset, 1).first, ElementsAre(2));
}

// `cat images labels | sha256sum` of the files that the constructor writes.
TEST_F(DatasetTest, DigestIsThatOfBothFiles) {
  const auto dataset = OpenBoth();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->digest(),
            "d46bf18934b036e361ba38b3ac6f6bed9ca70da44ef69c2b8200e2f3b3575418");
  Write("labels", IdxHeader({3}) + std::string("\5\0\6", 3));
  const auto other = OpenBoth();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE((*other)->digest(), (*dataset)->digest());
}

TEST_F(DatasetTest, RefusesFilesThatDoNotBelongTogether) {
  Write("labels", IdxHeader({2}) + std::string("\5\0", 2));
  EXPECT_THAT(OpenError(), AllOf(HasSubstr(Path("images") + "\" holds 3"),
                                 HasSubstr(Path("labels") + "\" labels of 2")));
  Write("labels", IdxHeader({3, 1, 2}) + std::string(6, '\0'));
  EXPECT_THAT(OpenError(), AllOf(HasSubstr(Path("labels")),
                                 HasSubstr("has the shape [3,1,2]")));
}

TEST_F(DatasetTest, RefusesLabelsThatAreNoClasses) {
  Write("labels", Floats({3}, {0, 1, 2}));
  EXPECT_THAT(OpenError(), AllOf(HasSubstr(Path("labels") + "\" holds float32"),
                                 HasSubstr("name the array as `targets`")));
  std::string labels = IdxHeader({3}) + "\1\xff\1";
  labels[2] = 0x09;
  Write("labels", labels);
  EXPECT_THAT(OpenError(), HasSubstr("label -1 of example 1 (from 0)"));
}

TEST_F(DatasetTest, RefusesWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  Write("images", Floats({3, 2}, {1, 2, 3, nan, -inf, 6}));
  const auto dataset = OpenBoth();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> input(2);
  int32_t label = 0;
  const ExampleMemory memory = {absl::MakeSpan(input), &label};
  EXPECT_TRUE((*dataset)->Read(0, memory).ok());
  const absl::Status status = (*dataset)->Read(1, memory);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("value 1 of example 1 (both from 0)"),
                    HasSubstr(Path("images")), HasSubstr("is nan")));
  EXPECT_THAT((*dataset)->Read(2, memory).message(),
              HasSubstr("value 0 of example 2"));

  Write("targets", Floats({3}, {1, 2, inf}));
  proto::Dataset config;
  config.mutable_idx()->set_images(Path("images"));
  config.mutable_idx()->set_targets(Path("targets"));
  EXPECT_THAT(Dataset::Open(config, {}).status().message(),
              HasSubstr("the target of example 2 (from 0)"));
  Write("targets", Floats({3}, {1, 2, 3}));
  Write("weights", Floats({3}, {1, -2, 3}));
  config.mutable_idx()->set_weights(Path("weights"));
  EXPECT_THAT(Dataset::Open(config, {}).status().message(),
              AllOf(HasSubstr("the weight of example 1 (from 0)"),
                    HasSubstr("is -2; it must be finite, and not below 0")));
}

TEST_F(DatasetTest, ReadsNumPysFiles) {
  const auto npy = [](const std::string& descr, const std::string& shape,
                      const std::string& values) {
    const std::string header =
        absl::StrCat("{'descr': '", descr,
                     "', 'fortran_order': False, 'shape': ", shape, ", }\n");
    return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) +
           '\0' + header + values;
  };
  Write("x.npy", npy("|u1", "(2, 2)", "\1\2\3\4"));
  Write("y.npy", npy("|u1", "(2,)", "\6\5"));
  proto::Dataset config;
  config.mutable_npy()->set_inputs(Path("x.npy"));
  config.mutable_npy()->set_labels(Path("y.npy"));
  const auto dataset = Dataset::Open(config, {.scale = 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto [input, label] = ExampleAt(**dataset, 1);
  EXPECT_THAT(input, ElementsAre(3, 4));
  EXPECT_EQ(label, 5);
}

}  // namespace
}  // namespace holdfast
