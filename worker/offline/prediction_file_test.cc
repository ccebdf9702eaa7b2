// SPDX-License-Identifier: Apache-2.0
#include "worker/offline/prediction_file.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using Kind = PredictionColumns::Kind;

proto::Job Parse(const std::string& text) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

constexpr char kSoftmax[] =
    "model { sequential { loss { softmax_cross_entropy {} } } }";

// exp(0) / (exp(0) + 3 exp(0)) = 0.25, as exp(log 3) = 3.
TEST(PredictionFileTest, ClassesHaveProbabilities) {
  const PredictionColumns columns =
      ColumnsOf(Parse(kSoftmax), 2, /*predict_class=*/true);
  EXPECT_EQ(columns.kind, Kind::kSoftmax);
  EXPECT_EQ(PredictionHeader(columns, 2),
            "example,class,probability_0,probability_1\n");
  const float log_of_3 = 1.0986123f;
  const std::vector<std::string> cells =
      absl::StrSplit(PredictionLine(columns, 7, {0, log_of_3}), ',');
  ASSERT_EQ(cells.size(), 4);
  EXPECT_EQ(cells[0], "7");
  EXPECT_EQ(cells[1], "1");
  EXPECT_NEAR(std::atof(cells[2].c_str()), 0.25, 1e-7);
  EXPECT_NEAR(std::atof(cells[3].c_str()), 0.75, 1e-7);
  // The first of equal outputs is predicted; large outputs do not overflow.
  EXPECT_EQ(PredictionLine(columns, 8, {1000, 1000}), "8,0,0.5,0.5\n");
}

// 1 / (1 + exp(-log 3)) = 1 / (1 + 1/3) = 0.75.
TEST(PredictionFileTest, ClickModelsHaveTheProbabilityOfLabelOne) {
  for (const char* model :
       {"logistic_regression {}", "factorization_machine {}",
        "wide_and_deep {}", "deep_fm {}", "dlrm {}"}) {
    const PredictionColumns columns =
        ColumnsOf(Parse(absl::StrCat("model { ", model, " }")), 1,
                  /*predict_class=*/true);
    EXPECT_EQ(PredictionHeader(columns, 1), "example,class,probability\n");
    const float log_of_3 = 1.0986123f;
    const std::vector<std::string> cells =
        absl::StrSplit(PredictionLine(columns, 7, {log_of_3}), ',');
    ASSERT_EQ(cells.size(), 3);
    EXPECT_EQ(cells[1], "1");
    EXPECT_NEAR(std::atof(cells[2].c_str()), 0.75, 1e-7);
  }
}

TEST(PredictionFileTest, ATableNamesItsClasses) {
  const PredictionColumns columns = ColumnsOf(
      Parse(std::string(kSoftmax) + R"pb(
        data {
          train { csv { columns { label { values: "a,b" values: "plain" } } } }
        })pb"),
      2, /*predict_class=*/true);
  EXPECT_EQ(PredictionHeader(columns, 2),
            "example,class,\"probability_a,b\",probability_plain\n");
  EXPECT_EQ(PredictionLine(columns, 0, {1, 1}), "0,\"a,b\",0.5,0.5\n");
}

TEST(PredictionFileTest, FoldersAndRecordsNameClassesToo) {
  for (const char* data :
       {"images { classes: 'cat' classes: 'dog' }",
        "tfrecord { features { label { values: 'cat' values: 'dog' } } }"}) {
    const PredictionColumns columns = ColumnsOf(
        Parse(absl::StrCat(kSoftmax, " data { train { ", data, " } }")), 2,
        /*predict_class=*/true);
    EXPECT_EQ(PredictionHeader(columns, 2),
              "example,class,probability_cat,probability_dog\n");
    EXPECT_EQ(PredictionLine(columns, 0, {1, 1}), "0,cat,0.5,0.5\n");
  }
}

TEST(PredictionFileTest, ExamplesThatAreFilesAreNamed) {
  PredictionColumns columns = ColumnsOf({}, 1, /*predict_class=*/false);
  columns.file_of = [](int64_t example) {
    return absl::StrCat("a,", example, ".png");
  };
  EXPECT_EQ(PredictionHeader(columns, 1), "example,file,output\n");
  EXPECT_EQ(PredictionLine(columns, 3, {2}), "3,\"a,3.png\",2\n");
}

// An output above 0 predicts class 1.
TEST(PredictionFileTest, OneOutputTellsTwoClasses) {
  const PredictionColumns columns = ColumnsOf(
      Parse("model { sequential { loss { sigmoid_cross_entropy {} } } }"), 1,
      /*predict_class=*/true);
  EXPECT_EQ(PredictionHeader(columns, 1), "example,class,probability\n");
  EXPECT_EQ(PredictionLine(columns, 0, {0}), "0,0,0.5\n");
  EXPECT_EQ(PredictionLine(columns, 1, {100}), "1,1,1\n");
}

TEST(PredictionFileTest, NumbersAreAsTheyAre) {
  const proto::Job job = Parse(
      R"pb(model { sequential { loss { mean_squared_error {} } } }
           data {
             train {
               csv {
                 columns {
                   name: "x"
                   number {}
                 }
                 columns {
                   name: "price"
                   name: "area"
                   target {}
                 }
               }
             }
           })pb");
  const PredictionColumns named = ColumnsOf(job, 2, /*predict_class=*/false);
  EXPECT_EQ(PredictionHeader(named, 2), "example,price,area\n");
  EXPECT_EQ(PredictionLine(named, 3, {1.5f, 0.1f}), "3,1.5,0.100000001\n");
  // As many names as outputs, or none.
  const PredictionColumns three = ColumnsOf(job, 3, /*predict_class=*/false);
  EXPECT_EQ(PredictionHeader(three, 3), "example,output_0,output_1,output_2\n");
  EXPECT_EQ(PredictionHeader(ColumnsOf({}, 1, false), 1), "example,output\n");
}

TEST(PredictionFileTest, IsThereWhenItIsWhole) {
  const std::string path = testing::TempDir() + "/predictions.csv";
  {
    auto file = PredictionFile::Create(path, {}, 2);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ((*file)->Add({1, 2, 3, 4}), absl::OkStatus());
    EXPECT_FALSE(std::ifstream(path).good());
    ASSERT_EQ((*file)->Add({5, 6}), absl::OkStatus());
    ASSERT_EQ((*file)->Finish(), absl::OkStatus());
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "example,output_0,output_1\n0,1,2\n1,3,4\n2,5,6\n");
  // A file that is not finished leaves the existing one unchanged.
  { ASSERT_TRUE(PredictionFile::Create(path, {}, 1).ok()); }
  EXPECT_TRUE(std::ifstream(path).good());
  EXPECT_FALSE(std::ifstream(path + ".tmp").good());
  EXPECT_FALSE(PredictionFile::Create("/nowhere/x.csv", {}, 1).ok());
}

}  // namespace
}  // namespace holdfast
