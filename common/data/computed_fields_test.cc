// SPDX-License-Identifier: Apache-2.0
#include "common/data/computed_fields.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/clock.h"
#include "common/data/reading_progress.h"
#include "common/data/testing/image_testing.h"
#include "common/data/tfrecord_frame.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/tf_example.pb.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::google::protobuf::TextFormat;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ComputedFieldsTest : public ::testing::Test {
 protected:
  ComputedFieldsTest()
      : folder_(absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  void Write(const std::string& name, const std::string& content) const {
    const fs::path path = folder_ + "/" + name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  // DIR in `text` is the test's folder.
  proto::Data Parse(const std::string& text) const {
    proto::Data data;
    EXPECT_TRUE(TextFormat::ParseFromString(
        absl::StrReplaceAll(text, {{"DIR", folder_}}), &data));
    return data;
  }
  proto::Data FilledIn(const std::string& text) const {
    proto::Data data = Parse(text);
    EXPECT_TRUE(HasComputedFields(data));
    const absl::Status status = FillInComputedFields({}, &data);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_FALSE(HasComputedFields(data));
    return data;
  }
  std::string Error(const std::string& text) const {
    proto::Data data = Parse(text);
    return std::string(FillInComputedFields({}, &data).message());
  }
  // An image with one pixel.
  static std::string Pixel(const std::string& colors) {
    PngImage image;
    image.samples = colors;
    return EncodePng(image);
  }
  static std::vector<std::string> Texts(
      const google::protobuf::RepeatedPtrField<proto::CsvColumn>& columns) {
    std::vector<std::string> texts;
    for (const proto::CsvColumn& column : columns) {
      texts.push_back(column.ShortDebugString());
    }
    return texts;
  }

  const std::string folder_;
};

// The mean of 1, 3, 5, 7 is 4, the variance (9 + 1 + 1 + 9) / 4 = 5. "b2" is
// constant; missing values, empty cells or marks, do not count.
TEST_F(ComputedFieldsTest, NumbersOfTables) {
  Write("1.csv", "b1,a,b2,y\n1,1,8,0\n3,NA,8,0\n");
  Write("2.csv", "b1,a,b2,y\n5,2,8,1\nbad row\n7,,8,1\n");
  const proto::Data data = FilledIn(
      R"(train { csv {
           files: "DIR/*.csv" missing: "NA"
           columns { name: "b*" number { computed: true } }
           columns { name: "a" number { computed: true missing: 0.5 } }
           columns { name: "y" label {} }
         } })");
  const auto& columns = data.train().csv().columns();
  ASSERT_EQ(columns.size(), 4);
  EXPECT_THAT(columns[0].name(), ElementsAre("b1"));
  EXPECT_EQ(columns[0].number().mean(), 4);
  EXPECT_EQ(columns[0].number().stddev(), std::sqrt(5.0));
  EXPECT_THAT(columns[1].name(), ElementsAre("b2"));
  EXPECT_EQ(columns[1].number().mean(), 8);
  EXPECT_EQ(columns[1].number().stddev(), 1);
  EXPECT_EQ(columns[2].number().mean(), 1.5);
  EXPECT_EQ(columns[2].number().stddev(), 0.5);
  EXPECT_EQ(columns[2].number().missing(), 0.5);
  EXPECT_TRUE(columns[3].has_label());
}

// The mean of log 1 and log 9 is log 3, and so is the deviation.
TEST_F(ComputedFieldsTest, LogarithmsOfTables) {
  Write("t.csv", "x,y\n-3,0\n8,1\n,1\n");
  const proto::Data data = FilledIn(
      R"(train { csv {
           files: "DIR/t.csv"
           columns { name: "x" number { computed: true log1p: true missing: 0 } }
           columns { name: "y" label {} }
         } })");
  const proto::CsvColumn::Number& number =
      data.train().csv().columns(0).number();
  EXPECT_TRUE(number.log1p());
  EXPECT_NEAR(number.mean(), std::log(3), 1e-12);
  EXPECT_NEAR(number.stddev(), std::log(3), 1e-12);
}

TEST_F(ComputedFieldsTest, ValuesOfTables) {
  Write("t.csv", "rome;\"x;y\";cat\nparis;;dog\nrome;z;ant\n?;z;dog\n");
  const proto::Data data = FilledIn(
      R"(train { csv {
           files: "DIR/t.csv" missing: "?" delimiter: ";" header: false
           columns {
             range { last: 1 }
             category { computed: true other: OWN }
           }
           columns { range { first: 2 } label { computed: true } }
         } })");
  EXPECT_THAT(
      Texts(data.train().csv().columns()),
      ElementsAre("range { } category { values: \"paris\" values: "
                  "\"rome\" other: OWN }",
                  "range { first: 1 } category { values: \"x;y\" values: \"z\" "
                  "other: OWN }",
                  "range { first: 2 } label { values: \"ant\" values: \"cat\" "
                  "values: \"dog\" }"));
}

// The star is part of the column's name, not a pattern.
TEST_F(ComputedFieldsTest, ANameMayHaveAStar) {
  Write("t.csv", "a*,ab,y\n1,7,0\n3,7,0\n");
  const proto::Data data = FilledIn(
      "train { csv { files: 'DIR/t.csv' columns { name: 'a*' number { "
      "computed: true } } } }");
  EXPECT_THAT(Texts(data.train().csv().columns()),
              ElementsAre("range { } number { mean: 2 stddev: 1 }",
                          "name: \"ab\" number { mean: 7 stddev: 1 }"));
}

// The test set gets the training set's values: its own file does not even
// exist.
TEST_F(ComputedFieldsTest, TheTestSetHasThoseOfTheTrainingSet) {
  Write("t.csv", "a,b,y\n1,8,no\n3,8,yes\n");
  const std::string columns =
      "columns { name: 'a' name: 'b' number { computed: true } } columns { "
      "name: 'y' label { computed: true } }";
  const proto::Data data = FilledIn(absl::StrCat(
      "train { csv { files: 'DIR/t.csv' ", columns,
      " } } test { csv { files: 'DIR/none.csv' ", columns, " } }"));
  EXPECT_EQ(Texts(data.test().csv().columns()),
            Texts(data.train().csv().columns()));
  EXPECT_EQ(data.test().csv().columns_size(), 3);
  EXPECT_EQ(data.test().csv().columns(0).number().mean(), 2);
  EXPECT_THAT(
      Error(absl::StrCat("train { csv { files: 'DIR/t.csv' ", columns,
                         " } } test { csv { files: 'DIR/t.csv' columns { name: "
                         "'a' number { computed: true } } } }")),
      HasSubstr("must be in data.train in the same words"));
}

// Floats 1, 3 and 5, 7, integers 4 and 8.
TEST_F(ComputedFieldsTest, FeaturesOfRecords) {
  std::string file;
  for (const auto& [first, integer, label] :
       {std::tuple(1.0f, 4, "yes"), std::tuple(5.0f, 8, "no")}) {
    proto::tensorflow::Example example;
    auto* entry = example.mutable_features()->add_feature();
    entry->set_key("f");
    entry->mutable_value()->mutable_float_list()->add_value(first);
    entry->mutable_value()->mutable_float_list()->add_value(first + 2);
    entry = example.mutable_features()->add_feature();
    entry->set_key("i");
    entry->mutable_value()->mutable_int64_list()->add_value(integer);
    entry = example.mutable_features()->add_feature();
    entry->set_key("y");
    entry->mutable_value()->mutable_bytes_list()->add_value(label);
    AppendTfRecord(example.SerializeAsString(), &file);
  }
  AppendTfRecord("no example", &file);
  Write("t.tfrecord", file);
  const std::string features =
      "features { name: 'f' numbers { size: 2 computed: true } } features { "
      "name: 'i' numbers { computed: true } } features { name: 'y' label { "
      "computed: true } } features { name: 'w' weight {} }";
  const proto::Data data = FilledIn(absl::StrCat(
      "train { tfrecord { files: 'DIR/t.tfrecord' ", features,
      " } } test { tfrecord { files: 'DIR/none' ", features, " } }"));
  for (const proto::Dataset* dataset : {&data.train(), &data.test()}) {
    const auto& found = dataset->tfrecord().features();
    ASSERT_EQ(found.size(), 4);
    EXPECT_EQ(found[0].numbers().size(), 2);
    EXPECT_EQ(found[0].numbers().mean(), 4);
    EXPECT_EQ(found[0].numbers().stddev(), std::sqrt(5.0));
    EXPECT_EQ(found[1].numbers().mean(), 6);
    EXPECT_EQ(found[1].numbers().stddev(), 2);
    EXPECT_THAT(found[2].label().values(), ElementsAre("no", "yes"));
  }
}

// Pixels 10, 20, 30 and 40, 50, 60 x 0.5: mean 17.5, variance
// 25 (0.25 + 2.25 + 6.25) 2 / 6.
TEST_F(ComputedFieldsTest, NormalizationOfImages) {
  Write("images/a/1.png", Pixel("\x0a\x14\x1e"));
  Write("images/b/1.png", Pixel("\x28\x32\x3c"));
  const proto::Data data = FilledIn(
      "train { images { folder: 'DIR/images' picture { height: 1 width: 1 } } "
      "} scale: 0.5 normalization { computed: true }");
  EXPECT_FLOAT_EQ(data.normalization().mean(), 17.5);
  EXPECT_FLOAT_EQ(data.normalization().stddev(),
                  std::sqrt(25 * (0.25 + 2.25 + 6.25) * 2 / 6));
}

TEST_F(ComputedFieldsTest, WhatCannotBeComputedIsTold) {
  Write("t.csv", "a,y\n,0\n,1\n");
  const auto error = [this](const std::string& column) {
    return Error(absl::StrCat("train { csv { files: 'DIR/t.csv' columns { ",
                              column, " } } }"));
  };
  EXPECT_THAT(error("name: 'a' number { computed: true }"),
              HasSubstr("column \"a\" of the training set: it has no values"));
  EXPECT_THAT(error("name: 'b' number { computed: true }"),
              HasSubstr("t.csv\": line 1: there is no column \"b\""));
  Write("t.csv",
        "a,y\nsmall,0\nf\xfc"
        "r,1\n");
  EXPECT_THAT(error("name: 'a' category { computed: true }"),
              HasSubstr("column \"a\" of the training set: the value "
                        "\"f\\374r\" is not UTF-8"));
  Write("t.csv", "");
  EXPECT_THAT(error("name: 'a' number { computed: true }"),
              HasSubstr("there are no rows"));
  EXPECT_THAT(
      Error("train { csv { files: 'DIR/none' columns { name: 'a' number "
            "{ computed: true } } } }"),
      HasSubstr(folder_ + "/none"));
}

TEST_F(ComputedFieldsTest, TellsHowFarItIs) {
  std::string table = "a,y\n";
  for (int i = 0; i < 10000; ++i) absl::StrAppend(&table, i % 7, ",0\n");
  Write("t.csv", table);
  const SteadyClock clock;
  std::vector<std::string> lines;
  ReadingProgress progress(
      {&clock, [&lines](const std::string& line) { lines.push_back(line); },
       absl::ZeroDuration()});
  proto::Data data = Parse(
      "train { csv { files: 'DIR/t.csv' columns { name: 'a' number { "
      "computed: true } } } }");
  ReadingOptions reading;
  reading.progress = &progress;
  ASSERT_TRUE(FillInComputedFields(reading, &data).ok());
  ASSERT_EQ(lines.size(), 2);
  EXPECT_THAT(lines[1], HasSubstr("for computed fields"));
  EXPECT_THAT(lines[1], HasSubstr("8192 rows"));
}

// Copied from a declaration: no file is read.
TEST_F(ComputedFieldsTest, AreCopied) {
  const std::string written =
      "train { csv { files: 'mine.csv' columns { name: 'b*' number { computed: "
      "true } } } } test { csv { files: 'other.csv' columns { name: 'b*' "
      "number { computed: true } } } } normalization { computed: true }";
  const proto::Data resolved = Parse(
      "train { csv { columns { name: 'b1' number { mean: 1 } } } } test "
      "{ csv { columns { name: 'b1' number { mean: 1 } } } } "
      "normalization { mean: 7 }");
  proto::Data data = Parse(written);
  EXPECT_TRUE(HasOpenFields(data));
  EXPECT_EQ(CopyOpenFields(resolved, &data), absl::OkStatus());
  EXPECT_FALSE(HasOpenFields(data));
  EXPECT_THAT(data.train().csv().files(), ElementsAre("mine.csv"));
  EXPECT_THAT(data.test().csv().files(), ElementsAre("other.csv"));
  EXPECT_THAT(Texts(data.test().csv().columns()),
              ElementsAre("name: \"b1\" number { mean: 1 }"));
  EXPECT_EQ(data.normalization().mean(), 7);

  data = Parse(written);
  EXPECT_THAT(CopyOpenFields({}, &data).message(),
              HasSubstr("data.normalization is computed, but"));
  data = Parse(written);
  data.clear_normalization();
  EXPECT_THAT(CopyOpenFields({}, &data).message(),
              HasSubstr("data.train has fields that are computed, but"));
  // Fields that are not computed are unchanged.
  data = Parse("train { csv { columns { name: 'x' number { mean: 3 } } } }");
  EXPECT_EQ(CopyOpenFields(resolved, &data), absl::OkStatus());
  EXPECT_EQ(data.train().csv().columns(0).number().mean(), 3);
}

TEST_F(ComputedFieldsTest, ClassesOfImagesAreThoseOfTheTrainingSet) {
  for (const char* name : {"owl", "cat", "dog"}) {
    fs::create_directories(absl::StrCat(folder_, "/", name));
  }
  const std::string train = "train { images { folder: 'DIR' } }";
  proto::Data data = Parse(train + " test { images { folder: 'none' } }");
  EXPECT_TRUE(HasOpenFields(data));
  EXPECT_FALSE(HasComputedFields(data));
  EXPECT_EQ(FillInImageClasses(&data), absl::OkStatus());
  EXPECT_THAT(data.train().images().classes(),
              ElementsAre("cat", "dog", "owl"));
  EXPECT_THAT(data.test().images().classes(), ElementsAre("cat", "dog", "owl"));
  EXPECT_FALSE(HasOpenFields(data));

  proto::Data copy = Parse(train);
  EXPECT_EQ(CopyOpenFields(data, &copy), absl::OkStatus());
  EXPECT_THAT(copy.train().images().classes(),
              ElementsAre("cat", "dog", "owl"));

  data = Parse(train +
               " test { images { folder: 'none' classes: ['dog', 'cat', "
               "'owl'] } }");
  EXPECT_THAT(FillInImageClasses(&data).message(),
              HasSubstr("data.test.images.classes are dog, cat, owl, those of "
                        "the training set cat, dog, owl"));
  fs::create_directory(folder_ + "/\xfc");
  data = Parse(train);
  EXPECT_THAT(FillInImageClasses(&data).message(),
              HasSubstr("the name of the folder \"\\374\" is not UTF-8"));
  data = Parse("train { csv {} }");
  EXPECT_EQ(FillInImageClasses(&data), absl::OkStatus());
  EXPECT_TRUE(data.train().has_csv());
}

}  // namespace
}  // namespace holdfast
