#include "worker/input/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "worker/input/idx.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
};

TEST_F(DatasetTest, GivesExamples) {
  const auto dataset = Dataset::ReadIdxFiles(Path("images"), Path("labels"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 3);
  EXPECT_THAT((*dataset)->example_shape(), ElementsAre(1, 2));
  EXPECT_EQ((*dataset)->num_classes(), 8);
  std::vector<float> input(2);
  int32_t label = -1;
  ASSERT_TRUE((*dataset)->Read(0, absl::MakeSpan(input), &label).ok());
  EXPECT_THAT(input, ElementsAre(0.0f, 255 * (1.0f / 255.0f)));
  EXPECT_EQ(label, 5);
  ASSERT_TRUE((*dataset)->Read(2, absl::MakeSpan(input), &label).ok());
  EXPECT_THAT(input, ElementsAre(3 * (1.0f / 255.0f), 4 * (1.0f / 255.0f)));
  EXPECT_EQ(label, 7);
}

TEST_F(DatasetTest, ReadsWhatTheJobNames) {
  proto::Dataset config;
  config.mutable_idx()->set_images("images");
  config.mutable_idx()->set_labels(Path("labels"));
  const auto dataset = Dataset::Read(config, testing::TempDir(), {2.0f});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> input(2);
  int32_t label = -1;
  ASSERT_TRUE((*dataset)->Read(2, absl::MakeSpan(input), &label).ok());
  EXPECT_THAT(input, ElementsAre(6, 8));
  EXPECT_FALSE(Dataset::Read(proto::Dataset(), "").ok());
}

TEST_F(DatasetTest, NormalizesAfterScaling) {
  proto::Data data;
  data.set_scale(0.5f);
  data.mutable_normalization()->set_mean(1);
  data.mutable_normalization()->set_stddev(0.25f);
  const PixelValue value = PixelValueOf(data);
  const auto dataset =
      Dataset::ReadIdxFiles(Path("images"), Path("labels"), value);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> input(2);
  int32_t label = -1;
  ASSERT_TRUE((*dataset)->Read(2, absl::MakeSpan(input), &label).ok());
  // (3 / 2 - 1) / 0.25 and (4 / 2 - 1) / 0.25.
  EXPECT_THAT(input, ElementsAre(2, 4));
  EXPECT_EQ(value.Of(0), -4);
  EXPECT_EQ(PixelValueOf(proto::Data()).Of(255), 255 * (1.0f / 255.0f));
}

// `cat images labels | sha256sum` of the files that the constructor writes.
TEST_F(DatasetTest, DigestIsThatOfBothFiles) {
  const auto dataset = Dataset::ReadIdxFiles(Path("images"), Path("labels"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->digest(),
            "d46bf18934b036e361ba38b3ac6f6bed9ca70da44ef69c2b8200e2f3b3575418");
  Write("labels", IdxHeader({3}) + std::string("\5\0\6", 3));
  const auto other = Dataset::ReadIdxFiles(Path("images"), Path("labels"));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE((*other)->digest(), (*dataset)->digest());
}

TEST_F(DatasetTest, RefusesFilesThatDiffer) {
  Write("labels", IdxHeader({2}) + std::string("\5\0", 2));
  const absl::Status status =
      Dataset::ReadIdxFiles(Path("images"), Path("labels")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr(Path("images") + "\" says at byte 4 that it "
                                       "holds 3 images"),
            HasSubstr(Path("labels") + "\" at byte 4 that it holds 2")));
}

TEST_F(DatasetTest, RefusesFilesInTheOthersPlace) {
  EXPECT_THAT(
      Dataset::ReadIdxFiles(Path("labels"), Path("images")).status().message(),
      AllOf(HasSubstr(Path("labels")),
            HasSubstr("the array has 1 dimensions, wanted are 3")));
}

}  // namespace
}  // namespace holdfast
