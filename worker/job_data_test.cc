// SPDX-License-Identifier: Apache-2.0
#include "worker/job_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/job/example_order.h"
#include "common/job/job_file.h"
#include "google/protobuf/text_format.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobDataTest : public ::testing::Test {
 protected:
  JobDataTest() {
    std::ofstream(Path("table.csv")) << "a,b,y\n1,2,0\n3,4,1\n5,6,2\n7,8,1\n";
  }

  static std::string Path(const std::string& name) {
    return testing::TempDir() + "/" + name;
  }
  // `text` is a Data, in which TABLE stands for a Csv of the columns a and b.
  absl::StatusOr<JobData> Read(const std::string& text) {
    proto::Data data;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrReplaceAll(text,
                            {{"TABLE",
                              "csv { columns { name: 'a' name: 'b' number {} } "
                              "columns { name: 'y' label {} } }"}}),
        &data));
    for (proto::Dataset* const set :
         {data.mutable_train(), data.mutable_test()}) {
      if (set->has_csv()) set->mutable_csv()->add_files(Path("table.csv"));
    }
    if (!data.test().has_csv()) data.clear_test();
    return JobData::Open(data, {&registry_});
  }

  const DatasetRegistry registry_;
};

TEST(CheckIdsAlikeTest, TellsWhichFieldIsMadeInAnotherWay) {
  const std::vector<IdField> trained = {
      {"user", 1, "numbers"}, {"tags", 4, "texts of the group \"t\""}};
  std::vector<IdField> tested = trained;
  EXPECT_TRUE(CheckIdsAlike(tested, trained).ok());
  tested[0].max_ids = 3;  // the maximum may differ
  tested[1].origin.clear();
  EXPECT_TRUE(CheckIdsAlike(tested, trained).ok());
  tested[1].origin = "numbers";
  const absl::Status status = CheckIdsAlike(tested, trained);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("the ids of \"tags\" are numbers in the test set, and "
                        "texts of the group \"t\" in the training set"));
}

TEST_F(JobDataTest, ReadsBothSets) {
  const auto data = Read("train { TABLE } test { TABLE }");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train_set().num_examples(), 4);
  EXPECT_THAT(data->train_set().spec().shape, ElementsAre(2));
  const auto test_set = data->OpenTestSet();
  ASSERT_TRUE(test_set.ok()) << test_set.status();
  EXPECT_EQ((*test_set)->num_examples(), 4);
}

TEST_F(JobDataTest, ATestSetMayBeHeldOutOrMissing) {
  const auto held_out = Read("train { TABLE } holdout { fraction: 0.25 }");
  ASSERT_TRUE(held_out.ok()) << held_out.status();
  EXPECT_EQ(held_out->train_set().num_examples(), 3);
  EXPECT_EQ((*held_out->OpenTestSet())->num_examples(), 1);
  const auto none = Read("train { TABLE }");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(*none->OpenTestSet(), nullptr);
}

// Three epochs in each order: the examples that are evaluated on are never
// among them, and are the same for every order.
TEST_F(JobDataTest, WhatIsHeldOutIsNeverTrainedOn) {
  const auto read = [](const Dataset& dataset, int64_t index) {
    std::vector<float> input(2);
    int32_t label;
    EXPECT_TRUE(dataset.Read(index, {absl::MakeSpan(input), &label}).ok());
    return input[0];
  };
  std::set<float> tested;
  for (const std::string shuffle :
       {"FULL", "BLOCKS shuffle_block: 2", "NONE"}) {
    const std::string text = absl::StrCat(
        "train { TABLE } holdout { fraction: 0.25 } shuffle: ", shuffle);
    const auto data = Read(text);
    ASSERT_TRUE(data.ok()) << data.status();
    proto::Data config;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("train { csv {} } shuffle: ", shuffle), &config));
    const ExampleOrder order(/*seed=*/7, data->train_set().num_examples(),
                             ShuffleOf(config));
    std::multiset<float> seen;
    for (int64_t position = 0; position < 9; ++position) {
      seen.insert(read(data->train_set(), order.At(position)));
    }
    const auto test_set = data->OpenTestSet();
    ASSERT_TRUE(test_set.ok()) << test_set.status();
    ASSERT_EQ((*test_set)->num_examples(), 1);
    const float held_out = read(**test_set, 0);
    for (const float row : {1, 3, 5, 7}) {
      EXPECT_EQ(seen.count(row), row == held_out ? 0 : 3) << shuffle;
    }
    tested.insert(held_out);
  }
  EXPECT_EQ(tested.size(), 1);
}

TEST_F(JobDataTest, ATestSetMustBeLikeTheTrainingSet) {
  const auto error = [this](const std::string& test) {
    const auto data = Read("train { TABLE } test { " + test + " }");
    EXPECT_TRUE(data.ok()) << data.status();
    const absl::Status status = data->OpenTestSet().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error("csv { columns { name: 'a' number {} } "
                    "columns { name: 'y' label {} } }"),
              HasSubstr("the test set have the shape [1], those of the "
                        "training set [2]"));
  EXPECT_THAT(error("csv { columns { name: 'a' name: 'b' number {} } "
                    "columns { name: 'y' target {} } }"),
              HasSubstr("the test set have 1 targets, those of the training "
                        "set labels"));
  const std::string numbers = "columns { name: 'b' number {} } ";
  const std::string y = "columns { name: 'y' label {} } ";
  const auto with_ids = [&](const std::string& train, const std::string& test) {
    const auto data = Read("train { csv { " + numbers + y + train +
                           " } } test { csv { " + numbers + y + test + " } }");
    EXPECT_TRUE(data.ok()) << data.status();
    return data->OpenTestSet().status();
  };
  EXPECT_THAT(with_ids("columns { name: 'a' ids {} }", "").message(),
              HasSubstr("the test set have no ids, those of the training set "
                        "ids of the fields a"));
  EXPECT_EQ(with_ids("columns { name: 'a' ids {} }",
                     "columns { name: 'a' ids { separator: '|' max_ids: 7 } }"),
            absl::OkStatus());
  EXPECT_EQ(with_ids("columns { name: 'a' ids {} }",
                     "columns { name: 'a' ids { group: 'a' } }"),
            absl::OkStatus());
  EXPECT_THAT(with_ids("columns { name: 'a' ids {} }",
                       "columns { name: 'a' ids { numbers: true } }")
                  .message(),
              HasSubstr("the ids of \"a\" are numbers in the test set, and "
                        "texts of the group \"a\" in the training set"));
  EXPECT_THAT(with_ids("columns { range { first: 0 } ids {} }",
                       "columns { range { first: 0 } ids { group: 'b' } }")
                  .message(),
              HasSubstr("the ids of \"a\" are texts of the group "
                        "\"b\" in the test set"));
}

}  // namespace
}  // namespace holdfast
