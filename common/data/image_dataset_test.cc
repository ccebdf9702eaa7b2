// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/data/dataset.h"
#include "common/data/testing/image_testing.h"
#include "common/data/tfrecord_frame.h"
#include "proto/tf_example.pb.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::google::protobuf::TextFormat;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSize[] = "picture { height: 1 width: 2 } ";

class ImageDatasetTest : public ::testing::Test {
 protected:
  ImageDatasetTest() : folder_(testing::TempDir() + "/images") {
    fs::remove_all(folder_);
    Write("dogs/2.png", Png("\1\2\3\4\5\6"));
    Write("dogs/10.png", Png("\7\7\7\x09\x09\x09"));
    Write("cats/1.png", Png("\x0a\x0b\x0c\x0d\x0e\x0f"));
    Write("cats/.hidden", "?");
    Write("readme.txt", "about cats and dogs");
  }

  static std::string Png(const std::string& pixels) {
    return EncodePng({1, 2, 8, /*color_type=*/2, false, pixels});
  }
  void Write(const std::string& name, const std::string& content) {
    const fs::path path = folder_ + "/" + name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Open(
      const std::string& more = kSize, const Dataset::Options& options = {}) {
    proto::Dataset config;
    EXPECT_TRUE(TextFormat::ParseFromString(
        absl::StrCat("images { folder: '", folder_, "' ", more, " }"),
        &config));
    return Dataset::Open(config, options);
  }
  std::string OpenError(const std::string& more = kSize) {
    return std::string(Open(more).status().message());
  }
  static std::pair<std::vector<float>, int32_t> ExampleAt(
      const Dataset& dataset, int64_t index) {
    std::vector<float> input(dataset.spec().input_size());
    int32_t label = -1;
    const absl::Status status =
        dataset.Read(index, {absl::MakeSpan(input), &label});
    EXPECT_TRUE(status.ok()) << status;
    return {input, label};
  }

  const std::string folder_;
};

// Classes and files are sorted by the bytes of their names.
TEST_F(ImageDatasetTest, EachFolderIsAClass) {
  const auto dataset = Open(kSize, {.scale = 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 3);
  EXPECT_THAT((*dataset)->spec().shape, ElementsAre(1, 2, 3));
  EXPECT_EQ((*dataset)->spec().num_classes, 2);
  EXPECT_EQ(
      (*dataset)->GreatestLabelPlace(),
      absl::StrCat("class 1 (from 0), the folder \"", folder_, "/dogs\""));
  auto [input, label] = ExampleAt(**dataset, 0);
  EXPECT_THAT(input, ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_EQ(label, 0);
  std::tie(input, label) = ExampleAt(**dataset, 1);
  EXPECT_THAT(input, ElementsAre(7, 7, 7, 9, 9, 9));
  EXPECT_EQ(label, 1);
  EXPECT_THAT(ExampleAt(**dataset, 2).first, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(ImageDatasetTest, ClassesComeInTheOrderOfTheJobFile) {
  const auto dataset =
      Open(absl::StrCat(kSize, "classes: 'dogs' classes: 'cats'"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(ExampleAt(**dataset, 0).second, 0);
  // 7 / 255.
  EXPECT_THAT(ExampleAt(**dataset, 0).first[0], 7 * (1.0f / 255.0f));
  EXPECT_EQ(ExampleAt(**dataset, 2).second, 1);
  EXPECT_THAT(OpenError(absl::StrCat(kSize, "classes: 'dogs'")),
              HasSubstr("the folder \"cats\" is none of the `classes`"));
  EXPECT_THAT(OpenError(absl::StrCat(
                  kSize, "classes: 'dogs' classes: 'cats' classes: 'owls'")),
              HasSubstr("there is no folder of the class \"owls\""));
}

// For predictions, images may be in one folder, or in any folders.
TEST_F(ImageDatasetTest, UnlabeledImagesNeedNoFolders) {
  Dataset::Options options;
  options.scale = 1;
  options.unlabeled = true;
  const auto in_folders =
      Open(absl::StrCat(kSize, "classes: 'neither'"), options);
  ASSERT_TRUE(in_folders.ok()) << in_folders.status();
  EXPECT_EQ((*in_folders)->num_examples(), 3);
  EXPECT_EQ((*in_folders)->FileOf(0), "cats/1.png");
  EXPECT_EQ((*in_folders)->spec().num_classes, std::nullopt);
  EXPECT_EQ((*in_folders)->GreatestLabelPlace(), "");

  fs::rename(folder_ + "/cats/1.png", folder_ + "/9.png");
  fs::rename(folder_ + "/dogs/2.png", folder_ + "/2.png");
  fs::remove_all(folder_ + "/cats");
  fs::remove_all(folder_ + "/dogs");
  fs::remove(folder_ + "/readme.txt");
  const auto flat = Open(kSize, options);
  ASSERT_TRUE(flat.ok()) << flat.status();
  ASSERT_EQ((*flat)->num_examples(), 2);
  EXPECT_EQ((*flat)->FileOf(0), "2.png");
  EXPECT_EQ((*flat)->FileOf(1), "9.png");
  EXPECT_THAT(ExampleAt(**flat, 1).first, ElementsAre(10, 11, 12, 13, 14, 15));
  Write("x.txt", "no image");
  EXPECT_THAT(Open(kSize, options).status().message(),
              HasSubstr(folder_ + "/x.txt\": it is neither a PNG"));
}

TEST_F(ImageDatasetTest, ImagesAreBroughtToSize) {
  auto dataset = Open("picture { height: 1 width: 1 channels: 1 resize: CROP }",
                      {.scale = 1, .mean = 1, .stddev = 2});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->spec().shape, ElementsAre(1, 1, 1));
  // The first of 2 pixels: (7 - 1) / 2.
  EXPECT_THAT(ExampleAt(**dataset, 1).first, ElementsAre(3));
  dataset =
      Open("picture { height: 2 width: 1 resize: STRETCH }", {.scale = 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(ExampleAt(**dataset, 1).first, ElementsAre(8, 8, 8, 8, 8, 8));
  EXPECT_THAT(OpenError("picture { height: 2 width: 1 }"),
              AllOf(HasSubstr(folder_ +
                              "/cats/1.png\": the image is 1 high and 2 wide, "
                              "but must be 2 and 1"),
                    HasSubstr("`resize: CROP`")));
}

// Damage that the header does not show is reported when the file is decoded.
TEST_F(ImageDatasetTest, BrokenImagesAreToldOrLeftOut) {
  std::string broken = Png("\1\2\3\4\5\6");
  broken[broken.size() - 20] ^= 1;
  Write("cats/2.png", broken);
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> input(6);
  int32_t label = 0;
  const absl::Status status =
      (*dataset)->Read(1, {absl::MakeSpan(input), &label});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              HasSubstr(folder_ + "/cats/2.png\": the PNG is damaged: "));
  Write("dogs/x.txt", "no image");
  EXPECT_THAT(OpenError(), HasSubstr("dogs/x.txt\": it is neither a PNG"));

  const auto some = Open(absl::StrCat(kSize, "skip_bad_rows: true"));
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ((*some)->num_examples(), 3);
  EXPECT_EQ((*some)->skipped_rows(), 2);
  EXPECT_THAT((*some)->skipped_because(),
              ElementsAre(HasSubstr("cats/2.png"), HasSubstr("dogs/x.txt")));
}

TEST_F(ImageDatasetTest, FoldersWithoutImagesAreRefused) {
  fs::remove_all(folder_);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
  fs::create_directories(folder_);
  EXPECT_THAT(OpenError(), HasSubstr("there are no folders in it"));
  fs::create_directories(folder_ + "/cats");
  EXPECT_THAT(OpenError(), HasSubstr("there are none"));
}

TEST_F(ImageDatasetTest, DigestIsThatOfFilesAndClasses) {
  const std::string digest = (*Open())->digest();
  EXPECT_EQ((*Open())->digest(), digest);
  fs::rename(folder_ + "/dogs/10.png", folder_ + "/dogs/1.png");
  EXPECT_EQ((*Open())->digest(), digest);
  fs::rename(folder_ + "/dogs/1.png", folder_ + "/cats/9.png");
  EXPECT_NE((*Open())->digest(), digest);
}

// A TFRecord of the same images, encoded or as raw pixels, has the same
// examples.
TEST_F(ImageDatasetTest, RecordsOfImagesAreTheSame) {
  std::string encoded, raw;
  for (const auto& [pixels, label] :
       std::vector<std::pair<std::string, int>>{{"\x0a\x0b\x0c\x0d\x0e\x0f", 0},
                                                {"\7\7\7\x09\x09\x09", 1},
                                                {"\1\2\3\4\5\6", 1}}) {
    for (auto* const file : {&encoded, &raw}) {
      proto::tensorflow::Example example;
      auto* entry = example.mutable_features()->add_feature();
      entry->set_key("image");
      entry->mutable_value()->mutable_bytes_list()->add_value(
          file == &raw ? pixels : Png(pixels));
      entry = example.mutable_features()->add_feature();
      entry->set_key("label");
      entry->mutable_value()->mutable_int64_list()->add_value(label);
      AppendTfRecord(example.SerializeAsString(), file);
    }
  }
  int files = 0;
  const auto open = [&](const std::string& file, const std::string& how) {
    const std::string path =
        absl::StrCat(testing::TempDir(), "/images-", files++, ".tfrecord");
    std::ofstream(path, std::ios::binary | std::ios::trunc) << file;
    proto::Dataset config;
    EXPECT_TRUE(TextFormat::ParseFromString(
        absl::StrCat("tfrecord { files: '", path, "' ", how,
                     " features { name: 'label' label {} } }"),
        &config));
    return Dataset::Open(config, {});
  };
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  const std::string image =
      "features { name: 'image' image { height: 1 width: 2 } } ";
  for (const auto& dataset :
       {open(encoded, image), open(encoded, image + "skip_bad_rows: true"),
        open(raw, "features { name: 'image' raw {} } shape: [1, 2, 3]")}) {
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ASSERT_EQ((*dataset)->num_examples(), 3);
    EXPECT_EQ((*dataset)->spec().shape, (*folder)->spec().shape);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ExampleAt(**dataset, i), ExampleAt(**folder, i));
    }
  }

  EXPECT_THAT(open(raw, image).status().message(),
              AllOf(HasSubstr("record 0 (from 0), at byte 0: feature "
                              "\"image\": it is neither a PNG")));
  // A file truncated after its header is detected when it is decoded.
  std::string cut;
  proto::tensorflow::Example example;
  auto* entry = example.mutable_features()->add_feature();
  entry->set_key("image");
  entry->mutable_value()->mutable_bytes_list()->add_value(
      Png("\1\2\3\4\5\6").substr(0, 50));
  entry = example.mutable_features()->add_feature();
  entry->set_key("label");
  entry->mutable_value()->mutable_int64_list()->add_value(0);
  AppendTfRecord(example.SerializeAsString(), &cut);
  const auto broken = open(cut, image);
  ASSERT_TRUE(broken.ok()) << broken.status();
  std::vector<float> input(6);
  int32_t label = 0;
  EXPECT_THAT((*broken)->Read(0, {absl::MakeSpan(input), &label}).message(),
              AllOf(HasSubstr("record 0 (from 0) of \""),
                    HasSubstr("feature \"image\": the PNG is damaged")));
  EXPECT_THAT(open(cut + encoded, image + "skip_bad_rows: true")
                  .value()
                  ->skipped_rows(),
              1);
}

}  // namespace
}  // namespace holdfast
