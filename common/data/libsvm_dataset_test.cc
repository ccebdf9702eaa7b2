// SPDX-License-Identifier: Apache-2.0
#include "common/data/libsvm_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/data/data_cache.h"
#include "common/data/dataset.h"
#include "google/protobuf/text_format.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Example {
  int32_t label = -99;
  float target = -99;
  std::vector<uint64_t> ids;
  std::vector<float> values;
};

class LibsvmDatasetTest : public ::testing::Test {
 protected:
  LibsvmDatasetTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  std::string Path(const std::string& name) { return folder_ + "/" + name; }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << content;
  }
  void WriteGzip(const std::string& name, const std::string& content) {
    const gzFile file = gzopen(Path(name).c_str(), "wb");
    ASSERT_NE(file, nullptr);
    gzputs(file, content.c_str());
    ASSERT_EQ(gzclose(file), Z_OK);
  }

  // `text` is a Libsvm, in which FOLDER stands for the test's folder.
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& text) {
    proto::Dataset config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrReplaceAll(text, {{"FOLDER", folder_}}),
        config.mutable_libsvm()));
    Dataset::Options options;
    options.unlabeled = unlabeled_;
    options.reading.cache = cache_;
    return Dataset::Open(config, options);
  }
  // For one file with this content.
  absl::StatusOr<std::unique_ptr<Dataset>> OpenText(
      const std::string& content, const std::string& more = "") {
    Write("data.svm", content);
    return Open("files: 'FOLDER/data.svm' " + more);
  }
  std::string ErrorOf(const std::string& content,
                      const std::string& more = "") {
    const absl::Status status = OpenText(content, more).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return absl::StrReplaceAll(
        status.message(),
        {{absl::StrCat("cannot read libsvm file \"", Path("data.svm"), "\": "),
          ""}});
  }
  static Example At(const Dataset& dataset, int64_t index) {
    Example example;
    example.ids.resize(dataset.spec().max_ids());
    example.values.resize(example.ids.size());
    uint32_t count = 99;
    ExampleMemory to;
    to.label = &example.label;
    to.targets = absl::MakeSpan(&example.target, dataset.spec().num_targets);
    to.ids = absl::MakeSpan(example.ids);
    to.id_counts = absl::MakeSpan(&count, 1);
    to.id_values = absl::MakeSpan(example.values);
    const absl::Status status = dataset.Read(index, to);
    EXPECT_TRUE(status.ok()) << status;
    example.ids.resize(count);
    example.values.resize(count);
    return example;
  }

  const std::string folder_ = testing::TempDir() + "/libsvm_dataset_test";
  bool unlabeled_ = false;
  const DataCache* cache_ = nullptr;
};

TEST_F(LibsvmDatasetTest, ReadsLines) {
  const auto dataset = OpenText(
      "# of nobody\n"
      "+1 1:0.5 18446744073709551615:-2e3  7:+1 # the first\n"
      "\n"
      "-1\r\n"
      "  -1.0\t0:3");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const ExampleSpec& spec = (*dataset)->spec();
  EXPECT_EQ((*dataset)->num_examples(), 3);
  EXPECT_THAT(spec.shape, ElementsAre(0));
  ASSERT_EQ(spec.id_fields.size(), 1);
  EXPECT_EQ(spec.id_fields[0].name, "features");
  EXPECT_EQ(spec.id_fields[0].max_ids, 3);
  EXPECT_EQ(spec.id_fields[0].origin, "numbers");
  EXPECT_TRUE(spec.id_values);
  EXPECT_EQ(spec.num_classes, 2);
  EXPECT_EQ(spec.num_targets, 0);
  const Example first = At(**dataset, 0);
  EXPECT_EQ(first.label, 1);
  EXPECT_THAT(first.ids, ElementsAre(1, ~uint64_t{0}, 7));
  EXPECT_THAT(first.values, ElementsAre(0.5f, -2000, 1));
  EXPECT_EQ(At(**dataset, 1).label, 0);
  EXPECT_THAT(At(**dataset, 1).ids, IsEmpty());
  EXPECT_EQ(At(**dataset, 2).label, 0);
  EXPECT_THAT(At(**dataset, 2).values, ElementsAre(3));
  EXPECT_EQ((*dataset)->GreatestLabelPlace(),
            absl::StrCat("label 1 in line 2 of \"", Path("data.svm"), "\""));
  EXPECT_EQ((*dataset)->footprint().memory, 3 * 8);
}

TEST_F(LibsvmDatasetTest, ReadsClassesAndTargets) {
  auto dataset = OpenText("0 1:1\n4 1:1\n1 1:1\n");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->spec().num_classes, 5);
  EXPECT_EQ(At(**dataset, 1).label, 4);

  dataset = OpenText("0.25 1:1\n-1 1:1\n", "targets: true");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->spec().num_classes, std::nullopt);
  EXPECT_EQ((*dataset)->spec().num_targets, 1);
  EXPECT_EQ(At(**dataset, 0).target, 0.25f);
  EXPECT_EQ(At(**dataset, 1).target, -1);

  // For predictions: with any label, or none.
  unlabeled_ = true;
  dataset = OpenText("1:1 3:2\n? 5:1\n");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(At(**dataset, 0).ids, ElementsAre(1, 3));
  EXPECT_THAT(At(**dataset, 1).ids, ElementsAre(5));
}

TEST_F(LibsvmDatasetTest, ReadsSeveralFilesPlainOrPacked) {
  Write("b-1.svm", "1 1:1\n0 2:1 3:1");
  WriteGzip("b-2.svm.gz", "1 4:1\n");
  Write("a.svm", "0 5:1\n");
  const auto dataset = Open("files: 'FOLDER/b-*' files: 'FOLDER/a.svm'");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->num_examples(), 4);
  EXPECT_THAT(At(**dataset, 0).ids, ElementsAre(1));
  EXPECT_THAT(At(**dataset, 1).ids, ElementsAre(2, 3));
  EXPECT_THAT(At(**dataset, 2).ids, ElementsAre(4));
  EXPECT_THAT(At(**dataset, 3).ids, ElementsAre(5));
  // Neither the division into files nor comments matter.
  const auto one = OpenText("1 1:1 # x\n0 2:1 3:1\n1 4:1\n0 5:1\n");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ((*one)->digest(), (*dataset)->digest());

  std::filesystem::create_directories(Path("cache"));
  const auto cache = DataCache::Open(Path("cache"), [](const std::string&) {});
  ASSERT_TRUE(cache.ok()) << cache.status();
  cache_ = cache->get();
  const auto cached = Open("files: 'FOLDER/b-*' files: 'FOLDER/a.svm'");
  ASSERT_TRUE(cached.ok()) << cached.status();
  EXPECT_EQ((*cached)->digest(), (*dataset)->digest());
  EXPECT_EQ((*cached)->footprint().memory, 4 * 8);
}

TEST_F(LibsvmDatasetTest, SaysWhichLineIsNoExample) {
  const auto error = [&](const std::string& line) {
    return ErrorOf("1 1:1\n# none\n" + line + "\n0 2:1\n");
  };
  EXPECT_THAT(error("1 3:1 4"),
              HasSubstr("line 3: \"4\" is not a feature, \"index:value\""));
  EXPECT_THAT(error("1 -3:1"), HasSubstr("\"-3:1\" is not a feature"));
  EXPECT_THAT(error("1 18446744073709551616:1"), HasSubstr("is not a feature"));
  EXPECT_THAT(error("1 3:nan"), HasSubstr("\"3:nan\" is not a feature"));
  EXPECT_THAT(error("1 3:1e39"), HasSubstr("the range of float32"));
  EXPECT_THAT(error("1 qid:3 1:1"), HasSubstr("\"qid:3\" is not a feature"));
  EXPECT_THAT(error("3:1"), HasSubstr("line 3: the label is missing"));
  EXPECT_THAT(error("0.5 3:1"),
              AllOf(HasSubstr("line 3: the label \"0.5\" is not a class"),
                    HasSubstr("`targets: true`")));
  EXPECT_THAT(error("-2 3:1"), HasSubstr("the label \"-2\" is not a class"));
  EXPECT_THAT(error("2147483647 3:1"), HasSubstr("is not a class"));
  EXPECT_THAT(ErrorOf("x 3:1\n", "targets: true"),
              HasSubstr("line 1: the target \"x\" is not a number"));
  EXPECT_THAT(ErrorOf("1e39 3:1\n", "targets: true"),
              HasSubstr("is not a number in the range of float32"));
  EXPECT_THAT(ErrorOf("1 1:1\n-1 1:1\n0 1:1\n"),
              HasSubstr(absl::StrCat("line 3: the label 0 contradicts that "
                                     "in line 2 of \"",
                                     Path("data.svm"),
                                     "\": labels are -1 and "
                                     "1, or whole numbers from 0")));
  EXPECT_THAT(ErrorOf("2 1:1\n-1 1:1\n", "skip_bad_rows: true"),
              HasSubstr("line 2: the label -1 contradicts that in line 1"));
  EXPECT_THAT(ErrorOf("# nothing\n"), HasSubstr("there are no examples"));
  EXPECT_EQ(Open("files: 'FOLDER/none'").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(LibsvmDatasetTest, LeavesBadLinesOutWhereItMay) {
  const auto dataset =
      OpenText("1 1:1\nx 1:1 2:2\n0 1:x 1:1\n9 1: 2:2 3:3\n0 2:1\n",
               "skip_bad_rows: true");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 2);
  EXPECT_EQ((*dataset)->spec().num_classes, 2);
  EXPECT_EQ((*dataset)->spec().max_ids(), 1);
  EXPECT_EQ((*dataset)->skipped_rows(), 3);
  EXPECT_THAT(
      (*dataset)->skipped_because(),
      ElementsAre(HasSubstr("line 2: the label \"x\""),
                  HasSubstr("line 3: \"1:x\""), HasSubstr("line 4: \"1:\"")));
  EXPECT_THAT(
      ErrorOf("x 1:1\n", "skip_bad_rows: true"),
      HasSubstr("there are no examples without errors; the first error: "
                "line 1: the label \"x\""));
}

// Even if a mapped file changes, nothing is written beyond the memory of an
// example.
TEST_F(LibsvmDatasetTest, SaysThatAFileHasChanged) {
  const auto dataset = OpenText("1 1:1    \n0 2:1 3:1\n");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto write = [&](int64_t place, const std::string& text) {
    std::fstream file(Path("data.svm"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(place);
    file << text;
  };
  uint64_t ids[2];
  float values[2];
  int32_t label = 0;
  uint32_t count = 0;
  ExampleMemory to;
  to.label = &label;
  to.ids = absl::MakeSpan(ids);
  to.id_counts = absl::MakeSpan(&count, 1);
  to.id_values = absl::MakeSpan(values);
  for (const char* text : {"1 1:1 1:1 2:1", "1 1:x", "9 1:1"}) {
    write(0, text);
    const absl::Status status = (*dataset)->Read(0, to);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_THAT(status.message(), HasSubstr("was changed while it was read"));
  }
}

}  // namespace
}  // namespace holdfast
