// SPDX-License-Identifier: Apache-2.0
#include "worker/job_resolution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/text_format.h"

namespace holdfast {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::HasSubstr;

class JobResolutionTest : public ::testing::Test {
 protected:
  JobResolutionTest() : table_(testing::TempDir() + "/table.csv") {
    Write("a,y\n1,0\n3,1\n");
  }

  void Write(const std::string& content) const {
    std::ofstream(table_, std::ios::trunc) << content;
  }
  // `number` is the content of the message `number`.
  proto::Job Parse(const std::string& number) const {
    proto::Job job;
    EXPECT_TRUE(TextFormat::ParseFromString(
        absl::StrReplaceAll("data { train { csv { files: 'TABLE' columns { "
                            "name: 'a' number { NUMBER } } columns { name: 'y' "
                            "label {} } } } }",
                            {{"TABLE", table_}, {"NUMBER", number}}),
        &job));
    return job;
  }
  absl::Status Resolve(
      const absl::StatusOr<std::optional<proto::Job>>& declared,
      proto::Job* job) {
    return ResolveJob(
        [&] {
          ++asked_;
          return declared;
        },
        {&registry_}, job);
  }
  static double Mean(const proto::Job& job) {
    return job.data().train().csv().columns(0).number().mean();
  }

  const std::string table_;
  const DatasetRegistry registry_;
  int asked_ = 0;
};

TEST_F(JobResolutionTest, WhatWasNotDeclaredIsComputed) {
  proto::Job job = Parse("computed: true");
  EXPECT_EQ(Resolve(std::nullopt, &job), absl::OkStatus());
  EXPECT_EQ(Mean(job), 2);
  EXPECT_EQ(asked_, 1);
  EXPECT_FALSE(job.data().train().csv().columns(0).number().computed());
}

// Another worker, or the chief of a job that continues: the file would give 50.
TEST_F(JobResolutionTest, WhatWasDeclaredIsNotComputedAgain) {
  Write("a,y\n40,0\n60,1\n");
  proto::Job job = Parse("computed: true");
  EXPECT_EQ(Resolve(Parse("mean: 2 stddev: 1"), &job), absl::OkStatus());
  EXPECT_EQ(Mean(job), 2);
  EXPECT_EQ(job.data().train().csv().files(0), table_);
}

TEST_F(JobResolutionTest, NobodyIsAskedWhereNothingIsComputed) {
  proto::Job job = Parse("mean: 7");
  EXPECT_EQ(Resolve(absl::InternalError("asked"), &job), absl::OkStatus());
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(Mean(job), 7);
}

TEST_F(JobResolutionTest, WhatGoesWrongIsTold) {
  proto::Job job = Parse("computed: true");
  EXPECT_EQ(Resolve(absl::UnavailableError("no ps"), &job).message(), "no ps");
  std::string table = "a,y\n";
  for (int i = 0; i < 60000; ++i)
    absl::StrAppend(&table, "a long value ", i, ",0\n");
  Write(table);
  job = Parse("computed: true");
  job.mutable_data()
      ->mutable_train()
      ->mutable_csv()
      ->mutable_columns(0)
      ->mutable_category()
      ->set_computed(true);
  EXPECT_THAT(Resolve(std::nullopt, &job).message(),
              HasSubstr("there are too many of them"));
}

TEST_F(JobResolutionTest, WhoeverHasNoPartTakesWhatWasDeclared) {
  proto::Job job = Parse("computed: true");
  EXPECT_EQ(ResolveFrom(Parse("mean: 2"), &job), absl::OkStatus());
  EXPECT_EQ(Mean(job), 2);
  job = Parse("computed: true");
  EXPECT_THAT(ResolveFrom(proto::Job(), &job).message(),
              HasSubstr("the job was declared without them"));
  job = Parse("mean: 7");
  EXPECT_EQ(ResolveFrom(proto::Job(), &job), absl::OkStatus());
}

}  // namespace
}  // namespace holdfast
