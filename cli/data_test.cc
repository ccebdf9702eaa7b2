// SPDX-License-Identifier: Apache-2.0
#include "cli/data.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/data/testing/image_testing.h"
#include "common/data/tfrecord_frame.h"
#include "common/process/exit_code.h"
#include "proto/tf_example.pb.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Said {
  int code = 0;
  std::string out;
  std::string error;
};

Said DataSays(std::vector<std::string> args) {
  Said said;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  said.code = DataCommand(args);
  said.out = testing::internal::GetCapturedStdout();
  said.error = testing::internal::GetCapturedStderr();
  return said;
}

std::string Write(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

// The deviation of 1, 2, 3 is sqrt(2 / 3).
TEST(DataCommandTest, TellsOfColumnsAndASchema) {
  const std::string path = Write("people.csv",
                                 "id,age,city,same,grade\n"
                                 "a,1,rome,5,2\n"
                                 "b,2,paris,5,0\n"
                                 "c,NA,rome,5,1\n"
                                 "d,3,,5,1\n"
                                 "e,3\n");
  const Said said = DataSays({"inspect", path});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_THAT(said.out,
              AllOf(HasSubstr("4 rows of 5 columns"),
                    HasSubstr("1 more row has another length; " + path +
                              ": line 6 has 2 cells instead of 5"),
                    HasSubstr("0.816497"), HasSubstr("rome (2), paris (1)")));
  EXPECT_THAT(
      said.out,
      HasSubstr(
          "csv {\n  files: \"" + path +
          "\"\n  missing: \"NA\"\n"
          "  columns { name: \"id\" category { values: \"a\" values: \"b\" "
          "values: \"c\" values: \"d\" } }\n"
          "  columns { name: \"age\" number { mean: 2 stddev: 0.816497 "
          "missing: 2 } }\n"
          "  columns { name: \"city\" category { values: \"rome\" values: "
          "\"paris\" other: OWN } }\n"
          "  # not used: \"same\", the same number in all rows\n"
          "  columns { name: \"grade\" label {} }\n}\n"));
  EXPECT_THAT(DataSays({"inspect", path, "--label=city"}).out,
              HasSubstr("label { values: \"paris\" values: \"rome\" }"));
  EXPECT_THAT(DataSays({"inspect", path, "--target=age"}).out,
              HasSubstr("columns { name: \"age\" target {} }"));
  const Said wrong = DataSays({"inspect", path, "--label=height"});
  EXPECT_EQ(wrong.code, kExitUsage);
  EXPECT_THAT(wrong.error, HasSubstr("there is no column \"height\"; there are "
                                     "id, age, city, same, grade"));
}

TEST(DataCommandTest, TellsOfColumnsWithoutNames) {
  const std::string path = Write("rows.tsv", "1\tx\n2\ty\n");
  const Said said = DataSays({"inspect", path, "--no_header", "--label=1"});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_THAT(said.out,
              HasSubstr("  delimiter: \"\\t\"\n  header: false\n"
                        "  columns { range { first: 0 } number { mean: 1.5 "
                        "stddev: 0.5 } }\n"
                        "  columns { range { first: 1 } label { values: \"x\" "
                        "values: \"y\" } }\n"));
}

TEST(DataCommandTest, TellsOfManyTexts) {
  std::string text = "user,x,y\n,1,0\n";
  for (int i = 0; i < 1001; ++i) absl::StrAppend(&text, "u", i, ",", i, ",1\n");
  const Said said = DataSays({"inspect", Write("users.csv", text)});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_THAT(said.out,
              HasSubstr("  # not used: \"user\", more than 1000 different "
                        "texts; for embedding tables: ids { missing: OWN }\n"));
}

TEST(DataCommandTest, TellsOfLibsvm) {
  const std::string path =
      Write("x.svm", "# none\n+1 3:0.5 17:-2\n-1 7:1\n+1\n");
  const Said said = DataSays({"inspect", path});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_EQ(said.out,
            "3 examples, with 1.0 features on average, 2 at most\n"
            "indices from 3 to 17, values from -2 to 1\n"
            "labels: +1 (2), -1 (1)\n\n"
            "# A schema to start from.\nlibsvm {\n  files: \"" +
                path + "\"\n}\n");
  const Said bad = DataSays({"inspect", Write("bad.svm", "1 3:1\n1 x\n")});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_THAT(bad.error,
              HasSubstr("bad.svm\": line 2: \"x\" is not a feature"));
  EXPECT_EQ(DataSays({"split", path, "--fraction=0.5"}).code, kExitUsage);
}

TEST(DataCommandTest, TellsOfArrays) {
  const std::string path =
      Write("images-idx", std::string("\0\0\x08\x02\0\0\0\2\0\0\0\1\3\5", 14));
  const Said said = DataSays({"inspect", path});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_EQ(said.out, path + ": uint8 [2,1], from 3 to 5, mean 4, stddev 1\n");
}

// The record of an Example with these features, given as text entries.
std::string Record(const std::string& features) {
  proto::tensorflow::Example example;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      features, example.mutable_features()))
      << features;
  return example.SerializeAsString();
}

TEST(DataCommandTest, TellsOfFeaturesAndASchema) {
  std::string file;
  AppendTfRecord(
      Record(
          "feature { key: 'age' value { float_list { value: 1 } } } "
          "feature { key: 'id' value { bytes_list { value: 'ab' } } } "
          "feature { key: 'label' value { int64_list { value: 3 } } } "
          "feature { key: 'two' value { int64_list { value: 5 value: 5 } } } "
          "feature { key: 'vary' value { int64_list { value: 5 } } }"),
      &file);
  AppendTfRecord(
      Record("feature { key: 'age' value { float_list { value: 3 } } } "
             "feature { key: 'id' value { bytes_list { value: 'abc' } } } "
             "feature { key: 'label' value { int64_list { value: 0 } } } "
             "feature { key: 'vary' value { int64_list { value: 5 value: 6 } } "
             "}"),
      &file);
  const std::string path = Write("some.tfrecord", file);
  const Said said = DataSays({"inspect", path});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_THAT(
      said.out,
      AllOf(HasSubstr("2 records\n"),
            ContainsRegex("age +float_list +0 +1 +- +1 +3 +2 +1\n"),
            ContainsRegex("id +bytes_list +0 +1 +2-3 "),
            ContainsRegex("two +int64_list +1 +2 +- +5 +5 +5 +0\n"),
            ContainsRegex("vary +int64_list +0 +1-2 "),
            HasSubstr("\"label\" is assumed to be the label"),
            HasSubstr(
                "tfrecord {\n  files: \"" + path +
                "\"\n"
                "  features { name: \"age\" numbers { mean: 2 stddev: 1 "
                "} }\n"
                "  # not used: \"id\"\n"
                "  features { name: \"label\" label {} }\n"
                "  features { name: \"two\" numbers { size: 2 missing: "
                "5 } }\n"
                "  # not used: \"vary\", which does not always have the same "
                "number of values\n}\n")));
  EXPECT_THAT(DataSays({"inspect", path, "--target=age"}).out,
              HasSubstr("features { name: \"age\" target {} }"));
  EXPECT_THAT(DataSays({"inspect", path, "--label=none"}).error,
              HasSubstr("there is no feature \"none\"; there are age, id, "));
}

TEST(DataCommandTest, TellsOfImages) {
  const std::string folder = testing::TempDir() + "/shown";
  std::filesystem::create_directories(folder + "/cats");
  std::filesystem::create_directories(folder + "/dogs");
  const std::string png = EncodePng({2, 3, 8, 2, false, std::string(18, 'x')});
  Write("shown/cats/1.png", png);
  Write("shown/cats/2.jpg", EncodeJpeg(4, 3, 1, std::string(12, 'x')));
  Write("shown/dogs/1.png", png);
  Write("shown/dogs/2.png", "none");
  const Said said = DataSays({"inspect", folder});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_THAT(
      said.out,
      AllOf(
          HasSubstr("3 images in 2 classes\n"),
          ContainsRegex("cats +2 +- +2 x 3 \\(1\\), 4 x 3 \\(1\\) +JPEG, grey "
                        "\\(1\\), PNG, 8 bits, RGB \\(1\\)"),
          ContainsRegex("dogs +1 +1 +2 x 3 \\(1\\) +PNG, 8 bits, RGB"),
          HasSubstr("1 file cannot be read; the first:\n\"" + folder +
                    "/dogs/2.png\": it is neither"),
          HasSubstr("images {\n  folder: \"" + folder +
                    "\"\n  classes: \"cats\"\n  classes: \"dogs\"\n"
                    "  picture { height: 2 width: 3 resize: CROP }\n"
                    "  skip_bad_rows: true\n}\n")));
  std::string file;
  proto::tensorflow::Example example;
  auto* const entry = example.mutable_features()->add_feature();
  entry->set_key("picture");
  entry->mutable_value()->mutable_bytes_list()->add_value(png);
  AppendTfRecord(example.SerializeAsString(), &file);
  EXPECT_THAT(
      DataSays({"inspect", Write("pictures.tfrecord", file)}).out,
      AllOf(HasSubstr("1: 2 x 3, the first PNG, 8 bits, RGB"),
            HasSubstr("features { name: \"picture\" image { height: 2 width: 3 "
                      "} }"),
            HasSubstr("It has no label or target")));
}

TEST(DataCommandTest, SaysWhatIsWrong) {
  EXPECT_EQ(DataSays({}).code, kExitUsage);
  EXPECT_EQ(DataSays({"look"}).code, kExitUsage);
  EXPECT_EQ(DataSays({"inspect"}).code, kExitUsage);
  EXPECT_EQ(DataSays({"inspect", "--help"}).code, kExitDone);
  EXPECT_EQ(DataSays({"inspect", testing::TempDir() + "/none.csv"}).code,
            kExitFailed);
  EXPECT_THAT(DataSays({"inspect", Write("empty.csv", "a,b\n")}).error,
              HasSubstr("has no rows"));
  EXPECT_THAT(
      DataSays({"inspect", "x", "--format=xml"}).error,
      HasSubstr("must be csv, tsv, npy, idx, tfrecord, libsvm or images"));
  EXPECT_THAT(DataSays({"inspect", "x", "--label=a", "--target=b"}).error,
              HasSubstr("mutually exclusive"));
}

}  // namespace
}  // namespace holdfast
