// SPDX-License-Identifier: Apache-2.0

// The data of a job file: what is read, and what is refused.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/job/example_order.h"
#include "common/job/job_file.h"
#include "common/job/testing/job_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(ParseJobFileTest, RulesOfCsvFiles) {
  // The errors of a job with such a data.train.csv, without their place.
  const auto errors = [](const std::string& csv, const std::string& more = "") {
    std::string job = Changed(
        "train { idx { images: \"train-images\" labels: \"train-labels\" } }",
        absl::StrCat("train { csv { files: 'a*.csv' ", csv, " } }"));
    job = absl::StrReplaceAll(job, {{"scale: 0.5", more}});
    std::vector<std::string> lines = ErrorsOf(job);
    for (std::string& line : lines) {
      line = absl::StrReplaceAll(
          line, {{"dir/job.textproto:12: data.train.csv.", ""}});
    }
    return lines;
  };
  const std::string x = "columns { name: 'x' number {} } ";
  const std::string y = "columns { name: 'y' label {} } ";
  EXPECT_THAT(
      errors("columns { number {} } " + y),
      ElementsAre(
          "columns[0]: needs name or range, to say which columns it is for"));
  EXPECT_THAT(errors("columns { name: 'x' } " + x + y),
              ElementsAre("columns[0]: needs number or category or label or "
                          "target or weight or ids"));
  EXPECT_THAT(errors(x),
              ElementsAre("columns: needs one label, or targets: has 0 and 0"));
  EXPECT_THAT(errors(x + y + y),
              ElementsAre("columns: needs one label, or targets: has 2 and 0"));
  EXPECT_THAT(errors(y), ElementsAre("columns: has no number, no category and "
                                     "no ids, and so no inputs"));
  EXPECT_THAT(errors(x + y + "delimiter: '::'"),
              ElementsAre("delimiter: must be one character other than a quote "
                          "or a line end, is \"::\""));
  EXPECT_THAT(
      errors(x + y + "header: false"),
      ElementsAre(
          "columns[0].name: there are no names if header is false: use range",
          "columns[1].name: there are no names if header is false: use range"));
  EXPECT_THAT(errors("columns { range { first: 3 last: 2 } number {} } " + y),
              ElementsAre("columns[0].range[0].last: must be at least first, "
                          "which is 3, is 2"));
  EXPECT_THAT(errors("columns { name: 'c' category {} } " + y),
              ElementsAre("columns[0].category: needs values, or for whole "
                          "numbers from 0 their count, or computed: true"));
  EXPECT_THAT(
      errors("columns { name: 'c' category { computed: true count: 3 } } "
             "columns { name: 'y' label { computed: true values: 'a' } } "
             "columns { name: 'z' number { computed: true mean: 3 } }"),
      ElementsAre("columns[0].category: needs values, or for whole numbers "
                  "from 0 their count, or computed: true",
                  "columns[1].label.computed: replaces values: leave them out",
                  "columns[2].number.computed: replaces mean and stddev: leave "
                  "them out"));
  EXPECT_THAT(
      errors(x + "columns { name: 'y' label { values: 'a' values: 'a' } }"),
      ElementsAre("columns[1].label.values[1]: \"a\" is listed twice"));
  const auto ids = [&](const std::string& fields) {
    return errors("columns { name: 'u' ids { " + fields + " } } " + y);
  };
  EXPECT_THAT(ids("separator: ','"),
              ElementsAre("columns[0].ids.separator: must be one character "
                          "other than the delimiter of cells, is \",\""));
  EXPECT_THAT(ids("separator: '||'"),
              ElementsAre("columns[0].ids.separator: must be one character "
                          "other than the delimiter of cells, is \"||\""));
  EXPECT_THAT(ids("max_ids: 3"),
              ElementsAre("columns[0].ids.max_ids: needs separator: a cell "
                          "without one is a single id"));
  EXPECT_THAT(ids("separator: '|' max_ids: 0"),
              ElementsAre("columns[0].ids.max_ids: must be at least 1, is 0"));
  EXPECT_THAT(ids("numbers: true group: 'g' missing: OWN"),
              ElementsAre("columns[0].ids.group: is for hashed ids: numbers "
                          "are ids without hashing, the same in all columns",
                          "columns[0].ids.missing: must be REFUSE or NONE with "
                          "numbers: an empty cell has no number of its own"));
  EXPECT_THAT(errors(x + y, "scale: 0.5"),
              ElementsAre("dir/job.textproto:14: data.scale: is for arrays: "
                          "columns of CSV files and numbers of TFRecord files "
                          "have a mean and stddev each"));
}

TEST(ParseJobFileTest, RulesOfTfRecordFiles) {
  // The errors of a job with such a data.train.tfrecord, without their place.
  const auto errors = [](const std::string& tfrecord) {
    std::vector<std::string> lines = ErrorsOf(Changed(
        "train { idx { images: \"train-images\" labels: \"train-labels\" } }",
        absl::StrCat("train { tfrecord { files: 'a*' ", tfrecord, " } }")));
    for (std::string& line : lines) {
      line = absl::StrReplaceAll(
          line, {{"dir/job.textproto:12: data.train.tfrecord.", ""}});
    }
    return lines;
  };
  const std::string x = "features { name: 'x' raw {} } ";
  const std::string y = "features { name: 'y' label {} } ";
  const std::string shape = "shape: 2 ";
  EXPECT_THAT(errors(x + y),
              ElementsAre("features[0].raw: needs data.train.tfrecord.shape"));
  EXPECT_THAT(errors("features { raw {} } " + y + shape),
              ElementsAre("features[0].name: must be set"));
  EXPECT_THAT(errors(x + x + y + shape),
              ElementsAre("features[1].name: \"x\" is listed twice",
                          "features: has more inputs than raw or image, which "
                          "must be the only input"));
  const std::string image =
      "features { name: 'x' image { height: 2 width: 2 channels: 2 } } ";
  EXPECT_THAT(errors(image + y),
              ElementsAre("features[0].image.channels: must be 1 (gray) or 3 "
                          "(red, green and blue), is 2"));
  EXPECT_THAT(
      errors("features { name: 'x' image { height: 2 width: 2 } } " + y +
             shape),
      ElementsAre(
          "shape: is not for images, which have the shape of their `image`"));
  EXPECT_THAT(
      errors(y),
      ElementsAre("features: has no numbers, raw or image, and so no input",
                  "dir/job.textproto:14: data.scale: is for arrays: "
                  "columns of CSV files and numbers of TFRecord files "
                  "have a mean and stddev each"));
  EXPECT_THAT(errors(x + shape +
                     "features { name: 'w' weight {} } "
                     "features { name: 'v' weight {} }"),
              ElementsAre("features: needs one label, or targets: has 0 and 0",
                          "features: takes one weight, has 2"));
  EXPECT_THAT(
      errors(x + shape +
             "features { name: 'y' label { values: 'a' "
             "values: 'a' } }"),
      ElementsAre("features[1].label.values[1]: \"a\" is listed twice"));
}

TEST(ParseJobFileTest, ATestSetHasNothingComputedOfItsOwn) {
  const auto job_of = [](const std::string& train, const std::string& test) {
    return absl::StrReplaceAll(
        Changed("train { idx { images: \"train-images\" labels: "
                "\"train-labels\" } }",
                "train { " + train + " }"),
        {{"test { idx { images: \"/data/test-images\" labels: "
          "\"/data/test-labels\" } }",
          "test { " + test + " }"},
         {"scale: 0.5", ""}});
  };
  const auto is_right = [&](const std::string& train, const std::string& test) {
    return ParseJobFile(job_of(train, test), "job.textproto").status();
  };
  const auto errors = [&](const std::string& train, const std::string& test) {
    return ErrorsOf(job_of(train, test));
  };
  const auto csv = [](const std::string& number) {
    return "csv { files: 'x' columns { name: 'x' number { " + number +
           " } } columns { name: 'c' category { computed: true } } "
           "columns { name: 'y' label { computed: true } } }";
  };
  EXPECT_EQ(is_right(csv("computed: true"), csv("computed: true")),
            absl::OkStatus());
  EXPECT_EQ(is_right(csv("computed: true missing: 0"), csv("mean: 3")),
            absl::OkStatus());
  EXPECT_THAT(errors(csv("mean: 3"), csv("computed: true")),
              ElementsAre(HasSubstr(
                  "data.test.csv.columns[0]: computed values come from the "
                  "training set: data.train must have the same entry")));
  const auto records = [](const std::string& numbers) {
    return "tfrecord { files: 'x' features { name: 'x' numbers { " + numbers +
           " } } features { name: 'y' label { computed: true } } }";
  };
  EXPECT_EQ(is_right(records("computed: true"), records("computed: true")),
            absl::OkStatus());
  EXPECT_THAT(
      errors(records("computed: true size: 2"), records("computed: true")),
      ElementsAre(
          HasSubstr("data.test.tfrecord.features[0]: computed values")));
  const std::string images =
      "images { folder: 'x' picture { height: 1 width: 1 } }";
  EXPECT_EQ(is_right(images, images), absl::OkStatus());
  EXPECT_THAT(errors("csv { files: 'x' columns { name: 'x' number {} } "
                     "columns { name: 'y' label {} } }",
                     images),
              ElementsAre(HasSubstr("data.test.images: needs classes")));
  EXPECT_THAT(ErrorsOf(Changed("scale: 0.5",
                               "normalization { computed: true stddev: 2 }")),
              ElementsAre(HasSubstr("data.normalization.computed: replaces "
                                    "mean and stddev")));
}

TEST(ParseJobFileTest, NothingIsDoneToTheInputsOfARegisteredSource) {
  const auto errors =
      ErrorsOf(Changed("train { idx { images: \"train-images\" labels: "
                       "\"train-labels\" } }",
                       "train { registered { name: 'mine' } }"));
  ASSERT_EQ(errors.size(), 1);
  EXPECT_THAT(errors[0], HasSubstr("data.scale: is for arrays: a registered "
                                   "source makes its inputs"));
}

TEST(ParseJobFileTest, AHoldoutStandsForATestSet) {
  const std::string test =
      "  test { idx { images: \"/data/test-images\" labels: "
      "\"/data/test-labels\" } }\n";
  EXPECT_TRUE(ParseJobFile(Changed(test, "holdout { fraction: 0.2 seed: 3 }"),
                           "job.textproto")
                  .ok());
  EXPECT_THAT(ErrorsOf(Changed("scale: 0.5", "holdout { fraction: 0.2 }")),
              ElementsAre("dir/job.textproto:14: data.holdout: replaces "
                          "data.test, which is also set"));
  EXPECT_THAT(ErrorsOf(Changed(test, "holdout { fraction: 1 }\n")),
              ElementsAre("dir/job.textproto:13: data.holdout.fraction: must "
                          "be below 1, is 1"));
}

TEST(ParseJobFileTest, SaysTheOrderOfExamples) {
  const auto shuffle_of = [](const std::string& fields) {
    const auto job =
        ParseJobFile(Changed("scale: 0.5", fields), "job.textproto");
    EXPECT_TRUE(job.ok()) << job.status();
    return ShuffleOf(job->data());
  };
  EXPECT_EQ(shuffle_of("").kind, Shuffle::Kind::kFull);
  EXPECT_EQ(shuffle_of("shuffle: NONE").kind, Shuffle::Kind::kNone);
  EXPECT_EQ(shuffle_of("shuffle: BLOCKS").kind, Shuffle::Kind::kBlocks);
  EXPECT_EQ(shuffle_of("shuffle: BLOCKS").block, 4096);
  EXPECT_EQ(shuffle_of("shuffle: BLOCKS shuffle_block: 10").block, 10);
  EXPECT_THAT(ErrorsOf(Changed("scale: 0.5", "shuffle_block: 10")),
              ElementsAre("dir/job.textproto:14: data.shuffle_block: is for "
                          "shuffle: BLOCKS"));
  EXPECT_THAT(
      ErrorsOf(Changed("scale: 0.5", "shuffle: BLOCKS shuffle_block: 0")),
      ElementsAre("dir/job.textproto:14: data.shuffle_block: must be at least "
                  "1, is 0"));
  // Workers with another order are rejected; the default is unchanged.
  const auto digest_of = [](const std::string& fields) {
    return JobDigest(
        *ParseJobFile(Changed("scale: 0.5", fields), "job.textproto"));
  };
  EXPECT_EQ(digest_of("shuffle: FULL"), digest_of(""));
  EXPECT_NE(digest_of("shuffle: NONE"), digest_of(""));
  EXPECT_NE(digest_of("shuffle: BLOCKS"), digest_of("shuffle: NONE"));
  EXPECT_NE(digest_of("shuffle: BLOCKS"),
            digest_of("shuffle: BLOCKS shuffle_block: 10"));
}

// Columns by position, in TSV.
TEST(ParseJobFileTest, ReadsCsvFiles) {
  const auto job = ParseJobFile(
      absl::StrReplaceAll(
          Changed(
              "train { idx { images: \"train-images\" labels: \"train-labels\" "
              "} }",
              "train { csv { files: 'a*.csv' files: '/b.csv' header: false "
              "delimiter: '\\t' columns { range { first: 1 last: 4 } category "
              "{ count: 3 } } columns { range { first: 0 } target {} } columns "
              "{ range { first: 9 } weight {} } columns { range { first: 10 } "
              "ids "
              "{} } columns { range { first: 11 } ids { separator: ' ' "
              "max_ids: "
              "3 group: 'g' missing: OWN } } } }"),
          {{"scale: 0.5", ""}}),
      "dir/job.textproto");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->data().train().csv().files(),
              ElementsAre("dir/a*.csv", "/b.csv"));
}

TEST(ParseJobFileTest, ReadsFilesOfIds) {
  for (const char* kind : {"criteo", "libsvm"}) {
    const std::string text = Changed(
        "train { idx { images: \"train-images\" labels: \"train-labels\" } }",
        absl::StrCat("train { ", kind, " { files: 'day*' } }"));
    const auto job = ParseJobFile(
        absl::StrReplaceAll(text, {{"scale: 0.5", ""}}), "dir/job.textproto");
    ASSERT_TRUE(job.ok()) << job.status();
    proto::Dataset train = job->data().train();
    const std::vector<std::string*> paths = DataPaths(&train);
    ASSERT_THAT(paths, SizeIs(1));
    EXPECT_EQ(*paths[0], "dir/day*");
    proto::Job elsewhere = *job;
    *DataPaths(elsewhere.mutable_data()->mutable_train())[0] = "/day*";
    EXPECT_EQ(JobDigest(elsewhere), JobDigest(*job));
    EXPECT_THAT(
        ErrorsOf(text),
        ElementsAre("dir/job.textproto:14: data.scale: is for arrays: "
                    "the format defines how its numbers are transformed"));
  }
}

}  // namespace
}  // namespace holdfast
