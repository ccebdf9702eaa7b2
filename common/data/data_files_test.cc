// SPDX-License-Identifier: Apache-2.0
#include "common/data/data_files.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

proto::Dataset Parse(const std::string& text) {
  proto::Dataset dataset;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &dataset));
  return dataset;
}

// The job in a checkpoint has no paths, but keeps the kind of its data.
proto::Dataset Set(const std::string& text, AnswerKind answers,
                   const std::vector<std::string>& files) {
  proto::Dataset dataset = Parse(text);
  EXPECT_EQ(SetDataFiles(files, answers, &dataset), absl::OkStatus());
  return dataset;
}

TEST(SetDataFilesTest, ArraysComeInOrder) {
  const proto::Dataset labels =
      Set("npy { inputs: \"old\" }", AnswerKind::kLabels, {"x", "y", "w"});
  EXPECT_EQ(labels.npy().inputs(), "x");
  EXPECT_EQ(labels.npy().labels(), "y");
  EXPECT_EQ(labels.npy().targets(), "");
  EXPECT_EQ(labels.npy().weights(), "w");
  const proto::Dataset targets =
      Set("idx { labels: \"old\" }", AnswerKind::kTargets, {"x", "y"});
  EXPECT_EQ(targets.idx().images(), "x");
  EXPECT_EQ(targets.idx().labels(), "");
  EXPECT_EQ(targets.idx().targets(), "y");
  const proto::Dataset inputs = Set("idx {}", AnswerKind::kNone, {"x"});
  EXPECT_EQ(inputs.idx().images(), "x");
  EXPECT_EQ(inputs.idx().labels(), "");
}

TEST(SetDataFilesTest, TablesTakeAll) {
  const proto::Dataset table = Set("csv { files: \"old\" delimiter: \";\" }",
                                   AnswerKind::kLabels, {"a-*.csv", "b.csv"});
  ASSERT_EQ(table.csv().files_size(), 2);
  EXPECT_EQ(table.csv().files(1), "b.csv");
  EXPECT_EQ(table.csv().delimiter(), ";");
  const proto::Dataset records =
      Set("tfrecord { files: \"old\" }", AnswerKind::kLabels, {"a", "b"});
  EXPECT_EQ(records.tfrecord().files_size(), 2);
  const proto::Dataset images =
      Set("images { folder: \"old\" }", AnswerKind::kLabels, {"new"});
  EXPECT_EQ(images.images().folder(), "new");
}

TEST(SetDataFilesTest, CountsFiles) {
  proto::Dataset npy = Parse("npy {}");
  EXPECT_THAT(SetDataFiles({"x"}, AnswerKind::kLabels, &npy).message(),
              HasSubstr("inputs, labels, and weights"));
  EXPECT_THAT(SetDataFiles({"x"}, AnswerKind::kTargets, &npy).message(),
              HasSubstr("inputs, targets, and"));
  EXPECT_THAT(SetDataFiles({"x", "y"}, AnswerKind::kNone, &npy).message(),
              HasSubstr("without answers have one file"));
  proto::Dataset nothing;
  EXPECT_TRUE(absl::IsInvalidArgument(
      SetDataFiles({"x"}, AnswerKind::kNone, &nothing)));
}

TEST(AnswersOfTest, AreAsFilesOrSchemaSay) {
  const auto answers = [](const std::string& text) {
    return AnswersOf(Parse(text));
  };
  EXPECT_EQ(answers("npy { labels: 'y' }"), AnswerKind::kLabels);
  EXPECT_EQ(answers("npy { targets: 'y' }"), AnswerKind::kTargets);
  EXPECT_EQ(answers("idx { targets: 'y' }"), AnswerKind::kTargets);
  EXPECT_EQ(answers("csv { columns { target {} } }"), AnswerKind::kTargets);
  EXPECT_EQ(answers("csv { columns { label {} } }"), AnswerKind::kLabels);
  EXPECT_EQ(answers("tfrecord { features { target {} } }"),
            AnswerKind::kTargets);
  EXPECT_EQ(answers("images { folder: 'x' }"), AnswerKind::kLabels);
}

TEST(RemoveAnswersTest, LeavesInputs) {
  proto::Dataset npy = Parse(
      "npy { inputs: \"x\" labels: \"y\" targets: \"t\" weights: \"w\" }");
  RemoveAnswers(&npy);
  EXPECT_EQ(npy.ShortDebugString(), "npy { inputs: \"x\" }");
  proto::Dataset table = Parse(
      R"pb(csv {
             columns {
               name: "y"
               label {}
             }
             columns {
               name: "a"
               number {}
             }
             columns {
               name: "t"
               target {}
             }
             columns {
               name: "w"
               weight {}
             }
             columns {
               name: "b"
               category { count: 2 }
             }
           })pb");
  RemoveAnswers(&table);
  ASSERT_EQ(table.csv().columns_size(), 2);
  EXPECT_EQ(table.csv().columns(0).name(0), "a");
  EXPECT_EQ(table.csv().columns(1).name(0), "b");
  proto::Dataset records = Parse(
      R"pb(tfrecord {
             features {
               name: "y"
               label {}
             }
             features {
               name: "a"
               numbers {}
             }
           })pb");
  RemoveAnswers(&records);
  ASSERT_EQ(records.tfrecord().features_size(), 1);
  EXPECT_EQ(records.tfrecord().features(0).name(), "a");
  proto::Dataset images = Parse("images { folder: 'x' classes: 'a' }");
  RemoveAnswers(&images);
  EXPECT_EQ(images.ShortDebugString(), "images { folder: \"x\" }");
}

}  // namespace
}  // namespace holdfast
