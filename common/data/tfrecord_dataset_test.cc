// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/data/dataset.h"
#include "common/data/reading_progress.h"
#include "common/data/tfrecord_frame.h"
#include "proto/tf_example.pb.h"

namespace holdfast {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The record of an Example with these features, given as entries in text
// format.
std::string Record(const std::string& features) {
  proto::tensorflow::Example example;
  EXPECT_TRUE(TextFormat::ParseFromString(features, example.mutable_features()))
      << features;
  return example.SerializeAsString();
}

std::string Feature(const std::string& name, const std::string& value) {
  return absl::StrCat("feature { key: '", name, "' value { ", value, " } } ");
}
std::string Integer(const std::string& name, int64_t value) {
  return Feature(name, absl::StrCat("int64_list { value: ", value, " }"));
}
std::string Float(const std::string& name, float value) {
  return Feature(name, absl::StrCat("float_list { value: ", value, " }"));
}
std::string Bytes(const std::string& name, const std::string& value) {
  return Feature(name, absl::StrCat("bytes_list { value: '", value, "' }"));
}

std::string Path(const std::string& name) {
  return testing::TempDir() + "/" + name;
}

void Write(const std::string& name, const std::vector<std::string>& records) {
  std::string file;
  for (const std::string& record : records) AppendTfRecord(record, &file);
  std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << file;
}

absl::StatusOr<std::unique_ptr<Dataset>> Open(
    const std::string& features, const std::string& files,
    const Dataset::Options& options = {}) {
  proto::Dataset config;
  EXPECT_TRUE(TextFormat::ParseFromString(
      absl::StrCat("tfrecord { files: '", Path(files), "' ", features, " }"),
      &config));
  return Dataset::Open(config, options);
}

std::string OpenError(const std::string& features,
                      const std::vector<std::string>& records) {
  Write("wrong.tfrecord", records);
  const absl::Status status = Open(features, "wrong.tfrecord").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

struct Example {
  std::vector<float> input;
  int32_t label = -1;
  std::vector<float> targets;
  float weight = -1;
};

Example ExampleAt(const Dataset& dataset, int64_t index) {
  Example example;
  example.input.resize(dataset.spec().input_size());
  example.targets.resize(dataset.spec().num_targets);
  const absl::Status status =
      dataset.Read(index, {absl::MakeSpan(example.input), &example.label,
                           absl::MakeSpan(example.targets), &example.weight});
  EXPECT_TRUE(status.ok()) << status;
  return example;
}

constexpr char kRaw[] =
    "features { name: 'x' raw {} } features { name: 'y' label {} } "
    "shape: 1 shape: 2 ";
constexpr char kNumbers[] =
    "features { name: 'a' numbers {} } features { name: 'y' label {} } ";

TEST(TfRecordDatasetTest, TellsHowFarReadingIs) {
  const std::string record = Record(Float("a", 1) + Integer("y", 0) +
                                    Bytes("unused", std::string(3 << 20, 'x')));
  Write("large.tfrecord", {record, record, record, record});
  const SteadyClock clock;
  std::vector<std::string> lines;
  ReadingProgress progress(
      {&clock, [&lines](const std::string& line) { lines.push_back(line); },
       absl::ZeroDuration()});
  Dataset::Options options;
  options.reading.progress = &progress;
  ASSERT_TRUE(Open(kNumbers, "large.tfrecord", options).ok());
  EXPECT_THAT(lines,
              ElementsAre(HasSubstr("large.tfrecord\": 6.3 MB of 12.6 MB")));
}

// Concatenated in the order of the job file, not of the record.
TEST(TfRecordDatasetTest, FeaturesMakeAnInput) {
  Write("tables-1.tfrecord",
        {Record(Float("unused", 9) + Integer("y", 3) +
                Feature("b", "int64_list { value: 5 value: -7 }") +
                Float("a", 1.5f) + Float("w", 2)),
         Record(Integer("y", 0) + Float("w", 0) + Float("a", -1) +
                Feature("b", "float_list { value: 2 value: 4 }"))});
  Write("tables-2.tfrecord",
        {Record(Integer("y", 1) + Integer("w", 7) + Feature("a", "") +
                Feature("b", "int64_list { value: 0 value: 0 }"))});
  const auto dataset = Open(
      "features { name: 'a' numbers { mean: 0.5 stddev: 2 missing: 3 } } "
      "features { name: 'b' numbers { size: 2 } } "
      "features { name: 'y' label {} } features { name: 'w' weight {} } ",
      "tables-*.tfrecord");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 3);
  EXPECT_THAT((*dataset)->spec().shape, ElementsAre(3));
  EXPECT_EQ((*dataset)->spec().num_classes, 4);
  EXPECT_TRUE((*dataset)->spec().weighted);
  EXPECT_EQ((*dataset)->GreatestLabelPlace(),
            absl::StrCat("label 3 of record 0 (from 0) in \"",
                         Path("tables-1.tfrecord"), "\""));
  Example example = ExampleAt(**dataset, 0);
  EXPECT_THAT(example.input, ElementsAre(0.5f, 5, -7));
  EXPECT_EQ(example.label, 3);
  EXPECT_EQ(example.weight, 2);
  EXPECT_THAT(ExampleAt(**dataset, 1).input, ElementsAre(-0.75f, 2, 4));
  example = ExampleAt(**dataset, 2);
  EXPECT_THAT(example.input, ElementsAre(1.25f, 0, 0));
  EXPECT_EQ(example.weight, 7);
}

TEST(TfRecordDatasetTest, ReadsRawArraysAsArraysAreRead) {
  Write("raw.tfrecord", {Record(Bytes("x", "\\000\\377") + Integer("y", 1))});
  auto dataset = Open(kRaw, "raw.tfrecord");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->spec().shape, ElementsAre(1, 2));
  EXPECT_THAT(ExampleAt(**dataset, 0).input,
              ElementsAre(0, 255 * (1.0f / 255.0f)));
  dataset = Open(kRaw, "raw.tfrecord", {.scale = 0.5f, .mean = 1, .stddev = 4});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(ExampleAt(**dataset, 0).input,
              ElementsAre(-0.25f, (127.5f - 1) / 4));
  Write("raw.tfrecord",
        {Record(Bytes("x", "\\001\\002\\377\\377") + Integer("y", 1))});
  dataset = Open(
      "features { name: 'x' raw { type: INT16 } } shape: 2 "
      "features { name: 'y' label {} } ",
      "raw.tfrecord");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(ExampleAt(**dataset, 0).input, ElementsAre(513, -1));
}

TEST(TfRecordDatasetTest, ReadsTargetsAndNamesOfClasses) {
  Write("targets.tfrecord",
        {Record(Float("a", 1) + Float("t", 0.25f) +
                Feature("u", "float_list { value: 1 value: 2 }"))});
  const auto targets = Open(
      "features { name: 'a' numbers {} } "
      "features { name: 'u' target { size: 2 } } features { name: 't' target "
      "{} }",
      "targets.tfrecord");
  ASSERT_TRUE(targets.ok()) << targets.status();
  EXPECT_EQ((*targets)->spec().num_classes, std::nullopt);
  EXPECT_THAT(ExampleAt(**targets, 0).targets, ElementsAre(1, 2, 0.25f));

  const std::string labels =
      "features { name: 'a' numbers {} } "
      "features { name: 'y' label { values: 'cat' values: 'dog' } }";
  Write("names.tfrecord", {Record(Float("a", 1) + Bytes("y", "dog"))});
  const auto names = Open(labels, "names.tfrecord");
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_EQ((*names)->spec().num_classes, 2);
  EXPECT_EQ(ExampleAt(**names, 0).label, 1);
  EXPECT_THAT(OpenError(labels, {Record(Float("a", 1) + Bytes("y", "cow"))}),
              HasSubstr("feature \"y\": the label \"cow\" is none of the 2"));
}

TEST(TfRecordDatasetTest, DigestIsThatOfTheRecords) {
  const std::string one = Record(Float("a", 1) + Integer("y", 0));
  const std::string two = Record(Float("a", 2) + Integer("y", 1));
  Write("both.tfrecord", {one, two});
  Write("part-1.tfrecord", {one});
  Write("part-2.tfrecord", {two});
  Write("other.tfrecord", {two, one});
  const auto digest = [](const std::string& files) {
    const auto dataset = Open(kNumbers, files);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return (*dataset)->digest();
  };
  EXPECT_EQ(digest("both.tfrecord"), digest("part-?.tfrecord"));
  EXPECT_NE(digest("both.tfrecord"), digest("other.tfrecord"));
}

TEST(TfRecordDatasetTest, WhatDoesNotFitIsToldByRecordAndFeature) {
  const std::string good = Record(Float("a", 1) + Integer("y", 0));
  const auto error = [&](const std::string& features) {
    return OpenError(kNumbers, {good, Record(features)});
  };
  EXPECT_THAT(error(Integer("y", 0)),
              AllOf(HasSubstr("wrong.tfrecord\": record 1 (from 0), at byte "),
                    HasSubstr("feature \"a\": is missing; set a substitute")));
  EXPECT_THAT(error(Float("a", 1)), HasSubstr("feature \"y\": is missing"));
  EXPECT_THAT(error(Float("a", 1) + Float("y", 1)),
              HasSubstr("\"y\": is a float_list, but must be an int64_list"));
  EXPECT_THAT(error(Float("a", 1) + Integer("y", -1)),
              HasSubstr("\"y\": label -1: classes are whole numbers from 0"));
  EXPECT_THAT(error(Bytes("a", "1") + Integer("y", 1)),
              HasSubstr("\"a\": is a bytes_list, but must be a float_list or "
                        "an int64_list"));
  EXPECT_THAT(
      error(Feature("a", "float_list { value: 1 value: 2 }") + Integer("y", 1)),
      HasSubstr("\"a\": holds 2 values, but must hold 1, the feature's"));
  EXPECT_THAT(error(Feature("a", "float_list { value: nan }")),
              HasSubstr("\"a\": value 0 (from 0) is nan"));
  EXPECT_THAT(OpenError(kNumbers, {good, "text"}),
              HasSubstr("its bytes do not parse as a tf.train.Example"));
  EXPECT_THAT(OpenError(kRaw, {Record(Bytes("x", "abc") + Integer("y", 1))}),
              HasSubstr("\"x\": holds 3 bytes, but [1,2] of uint8 are 2"));
  EXPECT_THAT(OpenError(kRaw, {Record(Feature("x",
                                              "bytes_list { value: 'ab' "
                                              "value: 'cd' }") +
                                      Integer("y", 1))}),
              HasSubstr("\"x\": holds 2 values, but must hold one"));
  EXPECT_THAT(
      OpenError(absl::StrCat(kNumbers, "features { name: 'w' weight {} }"),
                {Record(Float("a", 1) + Integer("y", 1) + Float("w", -1))}),
      HasSubstr("\"w\": the weight -1 is below 0"));
  EXPECT_THAT(OpenError(absl::StrCat(kNumbers, "shape: 2"), {good}),
              HasSubstr("the shape [2] takes 2 numbers; the features make 1"));
  EXPECT_THAT(OpenError(kNumbers, {}), HasSubstr("there are no records"));
}

TEST(TfRecordDatasetTest, BadRecordsCanBeLeftOut) {
  const std::string skip = absl::StrCat(kNumbers, "skip_bad_rows: true");
  std::string file;
  AppendTfRecord(Record(Float("a", 1) + Integer("y", 9) + Float("a", 2)),
                 &file);
  AppendTfRecord(Record(Integer("y", 99)), &file);
  const size_t damaged = file.size();
  AppendTfRecord(Record(Float("a", 1) + Integer("y", 9)), &file);
  file[damaged + 20] ^= 1;
  AppendTfRecord(Record(Float("a", 3) + Integer("y", 1)), &file);
  std::ofstream(Path("some.tfrecord"), std::ios::binary) << file;
  const auto dataset = Open(skip, "some.tfrecord");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 2);
  EXPECT_EQ((*dataset)->spec().num_classes, 10);
  EXPECT_EQ((*dataset)->skipped_rows(), 2);
  EXPECT_THAT((*dataset)->skipped_because(),
              ElementsAre(HasSubstr("feature \"a\": is missing"),
                          HasSubstr("record 2 (from 0), at byte ")));
  // If two features have the same name, the last counts.
  EXPECT_THAT(ExampleAt(**dataset, 0).input, ElementsAre(2));
  EXPECT_THAT(ExampleAt(**dataset, 1).input, ElementsAre(3));
  EXPECT_THAT(OpenError(skip, {Record(""), "text"}),
              HasSubstr("there are no records without errors; the first"));
}

}  // namespace
}  // namespace holdfast
