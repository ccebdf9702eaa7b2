// SPDX-License-Identifier: Apache-2.0
#include "cli/data_split.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/data/dataset.h"
#include "common/data/npy.h"
#include "common/data/subset_dataset.h"
#include "common/data/tfrecord_file.h"
#include "common/data/tfrecord_frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRows = 10;

class DataSplitTest : public ::testing::Test {
 protected:
  DataSplitTest()
      : folder_(absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    options_.fraction = 0.3;
    options_.seed = 9;
  }

  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::string Read(const std::string& name) const {
    std::stringstream content;
    content << std::ifstream(folder_ + "/" + name, std::ios::binary).rdbuf();
    return content.str();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // Rows that hold their own number.
  static std::string Table(int begin, int end) {
    std::string text = "number,class\n";
    for (int i = begin; i < end; ++i) absl::StrAppend(&text, i, ",0\n");
    return text;
  }
  // float32 [kRows, 2]: 0, 1, 2, ...
  static std::string Array() {
    std::string file("\x93NUMPY\1\0", 8);
    const std::string header =
        "{'descr': '<f4', 'fortran_order': False, 'shape': (10, 2), }\n";
    file += static_cast<char>(header.size());
    file += '\0';
    file += header;
    std::vector<float> values;
    for (int i = 0; i < 2 * kRows; ++i) values.push_back(i);
    return file.append(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(float));
  }

  // The examples on which a job with such a holdout evaluates.
  std::set<float> HeldOut(const std::string& table) const {
    proto::Dataset config;
    config.mutable_csv()->add_files(table);
    proto::CsvColumn* column = config.mutable_csv()->add_columns();
    column->add_name("number");
    column->mutable_number();
    column = config.mutable_csv()->add_columns();
    column->add_name("class");
    column->mutable_label();
    proto::Data data;
    data.mutable_holdout()->set_fraction(options_.fraction);
    data.mutable_holdout()->set_seed(options_.seed);
    auto parts = SubsetDataset::HoldOut(*Dataset::Open(config, {}), data);
    EXPECT_TRUE(parts.ok()) << parts.status();
    std::set<float> held_out;
    for (int64_t i = 0; i < parts->held_out->num_examples(); ++i) {
      float input = -1;
      int32_t label = -1;
      ExampleMemory memory;
      memory.input = absl::MakeSpan(&input, 1);
      memory.label = &label;
      EXPECT_TRUE(parts->held_out->Read(i, memory).ok());
      held_out.insert(input);
    }
    return held_out;
  }

  const std::string folder_;
  SplitOptions options_;
};

TEST_F(DataSplitTest, TheTestFileHasWhatAHoldoutHoldsOut) {
  const std::string table = Write("table.csv", Table(0, kRows));
  const std::set<float> held_out = HeldOut(table);
  ASSERT_EQ(held_out.size(), 3);
  const auto parts = SplitCsv({table}, ',', /*header=*/true, options_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2);
  EXPECT_EQ((*parts)[0].path, folder_ + "/table-train.csv");
  EXPECT_EQ((*parts)[0].examples, 7);
  EXPECT_EQ((*parts)[1].examples, 3);
  std::string train = "number,class\n", test = train;
  for (int i = 0; i < kRows; ++i) {
    absl::StrAppend(held_out.count(i) > 0 ? &test : &train, i, ",0\n");
  }
  EXPECT_EQ(Read("table-train.csv"), train);
  EXPECT_EQ(Read("table-test.csv"), test);
}

TEST_F(DataSplitTest, SeveralTablesAreOne) {
  Write("part-1.csv", Table(0, 4));
  Write("part-2.csv", Table(4, kRows));
  const std::set<float> held_out = HeldOut(Write("table.csv", Table(0, kRows)));
  const auto parts =
      SplitCsv({folder_ + "/part-*.csv"}, ',', /*header=*/true, options_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  std::set<float> split;
  for (const char* name : {"part-1-test.csv", "part-2-test.csv"}) {
    const std::vector<std::string> lines =
        absl::StrSplit(Read(name), '\n', absl::SkipEmpty());
    ASSERT_EQ(lines[0], "number,class");
    for (size_t i = 1; i < lines.size(); ++i) split.insert(std::stof(lines[i]));
  }
  EXPECT_EQ(split, held_out);
}

TEST_F(DataSplitTest, CellsStayAsTheyAre) {
  const std::string row = "\"a\"\"b\",\"c\nd\",\" e \",f g,,\"x;y\"\n";
  const std::string table = Write("t.csv", row + row);
  options_.fraction = 0.5;
  ASSERT_TRUE(SplitCsv({table}, ',', /*header=*/false, options_).ok());
  EXPECT_EQ(Read("t-train.csv"), "\"a\"\"b\",\"c\nd\",\" e \",f g,,x;y\n");
  EXPECT_EQ(Read("t-test.csv"), Read("t-train.csv"));
}

TEST_F(DataSplitTest, ArraysAreCutAlike) {
  const std::string x = Write("x.npy", Array());
  const std::string y = Write("y.npy", Array());
  options_.out = folder_ + "/parts";
  fs::create_directory(options_.out);
  const auto parts = SplitArrays({x, y}, /*is_npy=*/true, options_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->size(), 4);
  const std::set<float> held_out = HeldOut(Write("table.csv", Table(0, kRows)));
  for (const char* name : {"x", "y"}) {
    for (const bool test : {false, true}) {
      const auto array = ReadNpy(absl::StrCat(
          options_.out, "/", name, test ? "-test.npy" : "-train.npy"));
      ASSERT_TRUE(array.ok()) << array.status();
      EXPECT_THAT(array->shape, ElementsAre(test ? 3 : 7, 2));
      for (int64_t row = 0; row < array->rows(); ++row) {
        const float first = array->FloatAt(2 * row);
        EXPECT_EQ(array->FloatAt(2 * row + 1), first + 1);
        EXPECT_EQ(held_out.count(first / 2), test ? 1 : 0);
      }
    }
  }
}

TEST_F(DataSplitTest, RecordsAreOneSetInAllFiles) {
  const auto records = [](int begin, int end) {
    std::string file;
    for (int i = begin; i < end; ++i) AppendTfRecord(absl::StrCat(i), &file);
    return file;
  };
  Write("a.tfrecord", records(0, 4));
  Write("b.tfrecord", records(4, kRows));
  const std::set<float> held_out = HeldOut(Write("table.csv", Table(0, kRows)));
  const auto parts = SplitTfRecord({folder_ + "/?.tfrecord"}, options_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 4);
  std::vector<float> all;
  for (const SplitPart& part : *parts) {
    const bool test = absl::StrContains(part.path, "-test.tfrecord");
    auto reader = TfRecordReader::Open(part.path);
    ASSERT_TRUE(reader.ok()) << reader.status();
    TfRecordReader::Record record;
    int64_t examples = 0;
    for (; *reader->Next(&record); ++examples) {
      EXPECT_TRUE(record.intact);
      all.push_back(std::stof(std::string(record.data)));
      EXPECT_EQ(held_out.count(all.back()), test ? 1 : 0);
    }
    EXPECT_EQ(part.examples, examples);
  }
  EXPECT_EQ(all.size(), kRows);
  EXPECT_EQ(std::set<float>(all.begin(), all.end()).size(), kRows);
}

TEST_F(DataSplitTest, DamagedRecordsAreNotCopied) {
  std::string file;
  for (int i = 0; i < kRows; ++i) AppendTfRecord("record", &file);
  file[kTfRecordHeaderBytes] ^= 1;
  const absl::Status status =
      SplitTfRecord({Write("a.tfrecord", file)}, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("its checksum is wrong"));
  EXPECT_THAT(Names(), ElementsAre("a.tfrecord"));
}

// Classes 0 to 2 with the numbers 0 to 3, 4, and 5 to 9, in files named after
// them.
TEST_F(DataSplitTest, FoldersOfImagesStayFoldersOfAllClasses) {
  const std::set<float> held_out = HeldOut(Write("table.csv", Table(0, kRows)));
  const std::string images = folder_ + "/images";
  const auto class_of = [](int i) { return i < 4 ? 0 : i < 5 ? 1 : 2; };
  for (int i = 0; i < kRows; ++i) {
    fs::create_directories(absl::StrCat(images, "/", class_of(i)));
    Write(absl::StrCat("images/", class_of(i), "/", i, ".png"),
          absl::StrCat("pixels of ", i));
  }
  const auto parts = SplitImages(images + "/", options_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2);
  EXPECT_EQ((*parts)[0].path, folder_ + "/images-train");
  EXPECT_EQ((*parts)[0].examples, 7);
  EXPECT_EQ((*parts)[1].path, folder_ + "/images-test");
  EXPECT_EQ((*parts)[1].examples, 3);
  for (int i = 0; i < kRows; ++i) {
    const std::string file = absl::StrCat("/", class_of(i), "/", i, ".png");
    const bool test = held_out.count(static_cast<float>(i)) > 0;
    EXPECT_EQ(Read((test ? "images-test" : "images-train") + file),
              absl::StrCat("pixels of ", i));
    EXPECT_FALSE(
        fs::exists(folder_ + (test ? "/images-train" : "/images-test") + file));
  }
  for (const char* part : {"/images-train/", "/images-test/"}) {
    for (const char* name : {"0", "1", "2"}) {
      EXPECT_TRUE(fs::is_directory(folder_ + part + name));
    }
  }
  EXPECT_THAT(Names(), ElementsAre("images", "images-test", "images-train",
                                   "table.csv"));

  EXPECT_EQ(SplitImages(images, options_).status().code(),
            absl::StatusCode::kAlreadyExists);
  options_.force = true;
  options_.fraction = 0.5;
  const auto replaced = SplitImages(images, options_);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ((*replaced)[1].examples, 5);
}

TEST_F(DataSplitTest, ReplacesNothingUnlessItIsTold) {
  const std::string table = Write("table.csv", Table(0, kRows));
  Write("table-test.csv", "mine");
  const absl::Status status =
      SplitCsv({table}, ',', /*header=*/true, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("table-test.csv\" already exists"));
  EXPECT_THAT(Names(), ElementsAre("table-test.csv", "table.csv"));
  EXPECT_EQ(Read("table-test.csv"), "mine");
  options_.force = true;
  EXPECT_TRUE(SplitCsv({table}, ',', /*header=*/true, options_).ok());
  EXPECT_THAT(Read("table-test.csv"), StartsWith("number,class\n"));
}

TEST_F(DataSplitTest, LeavesNothingBehindAnError) {
  const std::string table = Write("table.csv", Table(0, kRows) + "\"open,0\n");
  EXPECT_THAT(
      SplitCsv({table}, ',', /*header=*/true, options_).status().message(),
      HasSubstr("never closed"));
  EXPECT_THAT(Names(), ElementsAre("table.csv"));
}

TEST_F(DataSplitTest, RefusesWhatCannotBe) {
  const std::string one = Write("one.csv", Table(0, 1));
  EXPECT_THAT(
      SplitCsv({one}, ',', /*header=*/true, options_).status().message(),
      HasSubstr("there is one example"));
  for (const double fraction : {0.0, 1.0}) {
    options_.fraction = fraction;
    EXPECT_THAT(
        SplitCsv({one}, ',', /*header=*/true, options_).status().message(),
        HasSubstr("--fraction="));
  }
  options_.fraction = 0.5;
  const std::string x = Write("x.npy", Array());
  EXPECT_THAT(SplitArrays({x, x}, /*is_npy=*/true, options_).status().message(),
              HasSubstr("two files have parts with the same name"));
}

}  // namespace
}  // namespace holdfast
