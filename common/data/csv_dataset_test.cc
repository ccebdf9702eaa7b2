// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/clock.h"
#include "common/data/data_cache.h"
#include "common/data/dataset.h"
#include "common/data/id_hash.h"
#include "common/data/reading_progress.h"
#include "google/protobuf/text_format.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The contents of one example.
struct Example {
  std::vector<float> input;
  int32_t label = -1;
  std::vector<float> targets;
  float weight = -1;
  // Indexed by field.
  std::vector<std::vector<uint64_t>> ids;
};

class CsvDatasetTest : public ::testing::Test {
 protected:
  CsvDatasetTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  std::string Path(const std::string& name) { return folder_ + "/" + name; }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << content;
  }

  // `schema` is a Csv, in which FOLDER stands for the test's folder.
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& schema) {
    return OpenConfig("csv {" + schema + "}");
  }
  // Likewise, a Dataset.
  absl::StatusOr<std::unique_ptr<Dataset>> OpenConfig(const std::string& text) {
    proto::Dataset config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrReplaceAll(text, {{"FOLDER", folder_}}), &config));
    Dataset::Options options;
    options.unlabeled = unlabeled_;
    options.reading.threads = threads_;
    options.reading.cache = cache_;
    options.reading.progress = progress_;
    return Dataset::Open(config, options);
  }
  // For table.csv.
  absl::StatusOr<std::unique_ptr<Dataset>> OpenTable(
      const std::string& content, const std::string& schema) {
    Write("table.csv", content);
    return Open("files: 'FOLDER/table.csv' " + schema);
  }
  std::string ErrorOf(const std::string& content, const std::string& schema) {
    const absl::Status status = OpenTable(content, schema).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::string begin =
        absl::StrCat("cannot read CSV file \"", Path("table.csv"), "\": ");
    EXPECT_THAT(std::string(status.message()), StartsWith(begin));
    return std::string(status.message().substr(begin.size()));
  }
  static Example At(const Dataset& dataset, int64_t index) {
    const ExampleSpec& spec = dataset.spec();
    Example example;
    example.input.assign(spec.input_size(), -99);
    example.targets.assign(spec.num_targets, -99);
    std::vector<uint64_t> ids(spec.max_ids(), 99);
    std::vector<uint32_t> counts(spec.id_fields.size(), 99);
    const absl::Status status =
        dataset.Read(index, {absl::MakeSpan(example.input), &example.label,
                             absl::MakeSpan(example.targets), &example.weight,
                             absl::MakeSpan(ids), absl::MakeSpan(counts)});
    EXPECT_TRUE(status.ok()) << status;
    auto first = ids.begin();
    for (size_t field = 0; field < counts.size(); ++field) {
      EXPECT_LE(counts[field], spec.id_fields[field].max_ids);
      example.ids.emplace_back(first, first + counts[field]);
      first += spec.id_fields[field].max_ids;
    }
    return example;
  }

  const std::string folder_ = testing::TempDir() + "/csv_dataset_test";
  bool unlabeled_ = false;
  int threads_ = 1;
  const DataCache* cache_ = nullptr;
  ReadingProgress* progress_ = nullptr;
};

constexpr char kPeople[] =
    "name,age,city,income,grade\n"
    "ann,30,paris,1e3,2\n"
    "\"bob, jr\",40,\"new\nyork\",-5.5,0\n"
    "cy,50,rome,+7,1\n";

constexpr char kPeopleSchema[] = R"(
  columns { name: 'age' number { mean: 40 stddev: 10 } }
  columns { name: 'city'
            category { values: 'rome' values: 'paris' values: 'new\nyork' } }
  columns { name: 'income' number {} }
  columns { name: 'grade' label {} }
)";

TEST_F(CsvDatasetTest, ReadsNumbersCategoriesAndLabels) {
  const auto dataset = OpenTable(kPeople, kPeopleSchema);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 3);
  EXPECT_THAT((*dataset)->spec().shape, ElementsAre(5));
  EXPECT_EQ((*dataset)->spec().num_classes, 3);
  EXPECT_EQ((*dataset)->GreatestLabelPlace(),
            absl::StrCat("label 2 in line 2 of \"", Path("table.csv"), "\""));
  EXPECT_THAT(At(**dataset, 0).input, ElementsAre(-1, 0, 1, 0, 1000));
  EXPECT_THAT(At(**dataset, 1).input, ElementsAre(0, 0, 0, 1, -5.5f));
  EXPECT_THAT(At(**dataset, 2).input, ElementsAre(1, 1, 0, 0, 7));
  EXPECT_EQ(At(**dataset, 0).label, 2);
  EXPECT_EQ(At(**dataset, 2).label, 1);
}

TEST_F(CsvDatasetTest, ReadsTargetsWeightsAndNamedClasses) {
  auto dataset = OpenTable("x,y1,y2,w\n1,2,3,0.5\n4,5,6,0\n", R"(
    columns { name: 'w' weight {} }
    columns { name: 'y*' target {} }
    columns { name: 'x' number {} })");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->spec().num_targets, 2);
  EXPECT_TRUE((*dataset)->spec().weighted);
  EXPECT_EQ((*dataset)->spec().num_classes, std::nullopt);
  EXPECT_EQ((*dataset)->GreatestLabelPlace(), "");
  const Example example = At(**dataset, 1);
  EXPECT_THAT(example.input, ElementsAre(4));
  EXPECT_THAT(example.targets, ElementsAre(5, 6));
  EXPECT_EQ(example.weight, 0);

  dataset = OpenTable("x,y\n1,cat\n2,dog\n", R"(
    columns { name: 'x' number {} }
    columns { name: 'y'
              label { values: 'bird' values: 'dog' values: 'cat' } })");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->spec().num_classes, 3);
  EXPECT_EQ(At(**dataset, 0).label, 2);
  EXPECT_EQ(At(**dataset, 1).label, 1);
}

// The layout of UCI's files: no header, the class first, then an image's
// pixels.
TEST_F(CsvDatasetTest, ReadsColumnsByPlace) {
  const auto dataset = OpenTable("1\t10\t20\t30\t40\n0\t50\t60\t70\t80\n", R"(
    delimiter: '\t' header: false shape: [2, 2, 1]
    columns { range { first: 1 last: 4 } number { stddev: 10 } }
    columns { range { first: 0 } label {} })");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 2);
  EXPECT_THAT((*dataset)->spec().shape, ElementsAre(2, 2, 1));
  EXPECT_THAT(At(**dataset, 1).input, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(At(**dataset, 0).label, 1);
}

TEST_F(CsvDatasetTest, DoesWithMissingValuesWhatItIsTold) {
  const auto dataset = OpenTable("x,c,n,y\n,,,0\nNA,b,7,0\n-999,a,2,0\n", R"(
    missing: 'NA' missing: '-999'
    columns { name: 'x' number { mean: 1 stddev: 2 missing: 5 } }
    columns { name: 'c' category { values: 'a' values: 'b' other: OWN } }
    columns { name: 'n' category { count: 3 other: NONE } }
    columns { name: 'y' label {} })");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->spec().shape, ElementsAre(7));
  EXPECT_THAT(At(**dataset, 0).input, ElementsAre(2, 0, 0, 1, 0, 0, 0));
  EXPECT_THAT(At(**dataset, 1).input, ElementsAre(2, 0, 1, 0, 0, 0, 0));
  EXPECT_THAT(At(**dataset, 2).input, ElementsAre(2, 1, 0, 0, 0, 0, 1));
}

uint64_t Id(const std::string& group, const std::string& text) {
  return IdHash(IdSeed(group), text);
}

TEST_F(CsvDatasetTest, ReadsIds) {
  const std::string content =
      "user,tags,n,x,y\n"
      "ann,a|b|a,18446744073709551615,1,0\n"
      "bob,,7,2,1\n"
      "ann, c | |d,0,3,1\n";
  const std::string schema = R"(
    columns { name: 'user' ids {} }
    columns { name: 'tags' ids { separator: '|' max_ids: 4 missing: NONE } }
    columns { name: 'n' ids { numbers: true } }
    columns { name: 'y' label {} } columns { name: 'x' number {} })";
  const auto dataset = OpenTable(content, schema);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const ExampleSpec& spec = (*dataset)->spec();
  EXPECT_THAT(spec.shape, ElementsAre(1));
  EXPECT_FALSE(spec.id_values);
  ASSERT_EQ(spec.id_fields.size(), 3);
  EXPECT_EQ(spec.id_fields[0].name, "user");
  EXPECT_EQ(spec.id_fields[0].max_ids, 1);
  EXPECT_EQ(spec.id_fields[1].name, "tags");
  EXPECT_EQ(spec.id_fields[1].max_ids, 4);
  EXPECT_EQ(spec.id_fields[0].origin, "texts of the group \"user\"");
  EXPECT_EQ(spec.id_fields[2].origin, "numbers");
  EXPECT_EQ(spec.max_ids(), 6);
  const auto tag = [](const std::string& text) { return Id("tags", text); };
  EXPECT_THAT(At(**dataset, 0).ids,
              ElementsAre(ElementsAre(Id("user", "ann")),
                          ElementsAre(tag("a"), tag("b"), tag("a")),
                          ElementsAre(~uint64_t{0})));
  EXPECT_THAT(At(**dataset, 0).input, ElementsAre(1));
  EXPECT_EQ(At(**dataset, 1).label, 1);
  EXPECT_THAT(At(**dataset, 1).ids, ElementsAre(ElementsAre(Id("user", "bob")),
                                                IsEmpty(), ElementsAre(7)));
  EXPECT_THAT(At(**dataset, 2).ids,
              ElementsAre(ElementsAre(Id("user", "ann")),
                          ElementsAre(tag("c"), tag("d")), ElementsAre(0)));
  // 8 bytes per id, 4 for the number of tags, and x and y.
  EXPECT_EQ((*dataset)->footprint().memory, 3 * (8 + 4 + 4 * 8 + 8 + 4 + 4));

  std::filesystem::create_directories(Path("cache"));
  const auto cache = DataCache::Open(Path("cache"), [](const std::string&) {});
  ASSERT_TRUE(cache.ok()) << cache.status();
  cache_ = cache->get();
  for (int i = 0; i < 2; ++i) {
    const auto cached = OpenTable(content, schema);
    ASSERT_TRUE(cached.ok()) << cached.status();
    EXPECT_EQ((*cached)->digest(), (*dataset)->digest());
    for (int example = 0; example < 3; ++example) {
      EXPECT_EQ(At(**cached, example).ids, At(**dataset, example).ids);
    }
  }
}

TEST_F(CsvDatasetTest, ReadsTablesOfIdsAlone) {
  const auto dataset = OpenTable("a,1,b\nc,0,-\n", R"(
    header: false missing: '-'
    columns { range { first: 1 } label {} }
    columns { range { first: 2 } ids { group: 'g' missing: OWN } }
    columns { range { first: 0 } ids {} })");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const ExampleSpec& spec = (*dataset)->spec();
  EXPECT_THAT(spec.shape, ElementsAre(0));
  EXPECT_EQ(spec.input_size(), 0);
  EXPECT_EQ(spec.num_classes, 2);
  ASSERT_EQ(spec.id_fields.size(), 2);
  EXPECT_EQ(spec.id_fields[0].name, "column 2");
  EXPECT_EQ(spec.id_fields[1].name, "column 0");
  EXPECT_THAT(
      At(**dataset, 0).ids,
      ElementsAre(ElementsAre(Id("g", "b")), ElementsAre(Id("column 0", "a"))));
  EXPECT_THAT(
      At(**dataset, 1).ids,
      ElementsAre(ElementsAre(Id("g", "")), ElementsAre(Id("column 0", "c"))));
  EXPECT_EQ(At(**dataset, 0).label, 1);
}

TEST_F(CsvDatasetTest, SaysWhichIdsDoNotFit) {
  const std::string schema = R"(
    columns { name: 'u' ids {} }
    columns { name: 'n' ids { numbers: true separator: '|' max_ids: 2 } }
    columns { name: 'y' label {} })";
  const auto error = [&](const std::string& row) {
    return ErrorOf("u,n,y\na,1,0\n" + row + "\n", schema);
  };
  EXPECT_THAT(error(",1,0"),
              AllOf(HasSubstr("line 3: column \"u\": the id is missing"),
                    HasSubstr("`ids { missing: ... }`")));
  EXPECT_THAT(error("a, | ,0"), HasSubstr("column \"n\": the id is missing"));
  EXPECT_THAT(error("a,1|x,0"),
              HasSubstr("column \"n\": \"1|x\" is not a whole number from 0 to "
                        "18446744073709551615"));
  EXPECT_THAT(error("a,-1,0"), HasSubstr("\"-1\" is not a whole number"));
  EXPECT_THAT(error("a,18446744073709551616,0"),
              HasSubstr("not a whole number"));
  EXPECT_THAT(error("a,1|2|3,0"),
              HasSubstr("column \"n\": there are more than 2 ids in "
                        "\"1|2|3\"; raise max_ids"));
}

// Any change of the definition of ids makes another cache file.
TEST_F(CsvDatasetTest, KeepsIdsOfOtherSchemasApartInTheCache) {
  std::filesystem::create_directories(Path("cache"));
  const auto cache = DataCache::Open(Path("cache"), [](const std::string&) {});
  ASSERT_TRUE(cache.ok()) << cache.status();
  cache_ = cache->get();
  int files = 0;
  for (const char* ids :
       {"", "group: 'g'", "numbers: true", "missing: OWN", "missing: NONE",
        "separator: '|'", "separator: '|' max_ids: 2"}) {
    const auto dataset = OpenTable(
        "u,y\n1,0\n2,1\n", absl::StrCat("columns { name: 'u' ids { ", ids,
                                        " } } columns { name: 'y' label {} }"));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ++files;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Path("cache")),
                            std::filesystem::directory_iterator()),
              files)
        << ids;
  }
}

TEST_F(CsvDatasetTest, TakesLogarithmsOfNumbers) {
  const auto dataset = OpenTable("x,y\n1,0\n-3,0\n,1\n", R"(
    columns { name: 'x'
              number { log1p: true mean: 1 stddev: 0.5 missing: 3 } }
    columns { name: 'y' label {} })");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto expected = [](double log) {
    return ::testing::FloatEq(static_cast<float>((log - 1) / 0.5));
  };
  EXPECT_THAT(At(**dataset, 0).input, ElementsAre(expected(std::log(2))));
  EXPECT_THAT(At(**dataset, 1).input, ElementsAre(expected(0)));
  EXPECT_THAT(At(**dataset, 2).input, ElementsAre(expected(std::log(4))));
}

// A line of the layout: cell i is `cell(i)`.
template <typename Cell>
std::string CriteoLine(Cell cell) {
  std::string line = cell(0);
  for (int i = 1; i < 40; ++i) absl::StrAppend(&line, "\t", cell(i));
  return line + "\n";
}

TEST_F(CsvDatasetTest, ReadsCriteo) {
  const std::string full = CriteoLine([](int i) {
    return i == 0 ? "1" : i < 14 ? absl::StrCat(i - 3) : absl::StrCat("id", i);
  });
  const std::string sparse = CriteoLine([](int i) {
    return i == 0 ? "0" : i == 14 ? "68fd1e64" : "";
  });
  Write("day.tsv", full + sparse);
  auto dataset = OpenConfig("criteo { files: 'FOLDER/day.tsv' }");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const ExampleSpec& spec = (*dataset)->spec();
  EXPECT_THAT(spec.shape, ElementsAre(13));
  ASSERT_EQ(spec.id_fields.size(), 26);
  EXPECT_EQ(spec.id_fields[0].name, "C1");
  EXPECT_EQ(spec.id_fields[25].name, "C26");
  EXPECT_EQ(spec.max_ids(), 26);
  EXPECT_EQ(spec.num_classes, 2);
  Example example = At(**dataset, 0);
  EXPECT_EQ(example.label, 1);
  for (int i = 0; i < 13; ++i) {
    EXPECT_FLOAT_EQ(example.input[i], std::log1p(std::max(i - 2, 0))) << i;
  }
  EXPECT_THAT(example.ids[25], ElementsAre(Id("C26", "id39")));
  example = At(**dataset, 1);
  EXPECT_THAT(example.input, ::testing::Each(0));
  EXPECT_EQ(example.label, 0);
  EXPECT_THAT(example.ids[0], ElementsAre(Id("C1", "68fd1e64")));
  EXPECT_THAT(example.ids[1], ElementsAre(Id("C2", "")));

  // The same as the table that it stands for.
  Write("table.csv", full + sparse);
  std::string columns = R"(delimiter: '\t' header: false
    columns { range { first: 0 } label {} }
    columns { range { first: 1 last: 13 } number { log1p: true missing: 0 } })";
  for (int i = 1; i <= 26; ++i) {
    absl::StrAppend(&columns, "columns { range { first: ", 13 + i,
                    " } ids { group: 'C", i, "' missing: OWN } }");
  }
  const auto table = Open("files: 'FOLDER/table.csv' " + columns);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->digest(), (*dataset)->digest());

  Write("day.tsv", full + CriteoLine([](int i) {
                     return i == 0 ? "0" : i == 3 ? "x" : "7";
                   }));
  EXPECT_THAT(
      OpenConfig("criteo { files: 'FOLDER/day.tsv' }").status().message(),
      HasSubstr(
          "day.tsv\": line 2: column \"I3\": \"x\" is not a finite number"));
  dataset =
      OpenConfig("criteo { files: 'FOLDER/day.tsv' skip_bad_rows: true }");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 1);
  EXPECT_EQ((*dataset)->skipped_rows(), 1);

  Write("day.tsv", "1\t2\t3\n");
  EXPECT_THAT(
      OpenConfig("criteo { files: 'FOLDER/day.tsv' }").status().message(),
      HasSubstr("line 1: the row has 3 cells instead of 40, label to C26"));

  // For predictions, labels are not needed.
  Write("day.tsv", full.substr(1));
  unlabeled_ = true;
  dataset = OpenConfig("criteo { files: 'FOLDER/day.tsv' }");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->spec().id_fields.size(), 26);
}

TEST_F(CsvDatasetTest, SaysWhichRowAndColumnDoNotFit) {
  const std::string schema = R"(
    columns { name: 'x' number {} }
    columns { name: 'c' category { values: 'a' values: 'b' } }
    columns { name: 'y' label {} })";
  const auto error = [&](const std::string& row) {
    return ErrorOf("x,c,y\n1,a,0\n" + row + "\n2,b,1\n", schema);
  };
  EXPECT_THAT(
      error("one,a,0"),
      HasSubstr("line 3: column \"x\": \"one\" is not a finite number"));
  EXPECT_THAT(error("nan,a,0"), HasSubstr("add it to `missing`"));
  EXPECT_THAT(error("1 2,a,0"), HasSubstr("\"1 2\" is not a finite number"));
  EXPECT_THAT(error("1e39,a,0"), HasSubstr("beyond the range of float32"));
  EXPECT_THAT(error(",a,0"),
              AllOf(HasSubstr("line 3: column \"x\": the value is missing"),
                    HasSubstr("`number { missing: ... }`")));
  EXPECT_THAT(error("1,z,0"),
              AllOf(HasSubstr("line 3: column \"c\": \"z\" is none of the 2 "
                              "values"),
                    HasSubstr("`category { other: ... }`")));
  EXPECT_THAT(error("1,,0"), HasSubstr("column \"c\": the value is missing"));
  EXPECT_THAT(
      error("1,a,-1"),
      HasSubstr("line 3: column \"y\": the label \"-1\" is not a class"));
  EXPECT_THAT(error("1,a,0.5"), HasSubstr("is a `target`"));
  EXPECT_THAT(error("1,a"),
              HasSubstr("line 3: the row has 2 cells, the first has "
                        "3"));
  EXPECT_THAT(error("1,a,\"0"), HasSubstr("line 3: the quote that opens cell 3 "
                                          "is never closed"));
  EXPECT_THAT(ErrorOf("x,y\n1,0\n",
                      "columns { name: 'x' weight {} }"
                      "columns { name: 'y' number {} }"
                      "columns { name: 'z*' label {} }"),
              HasSubstr("line 1: there is no column \"z*\"; there are x, y"));
  EXPECT_THAT(
      ErrorOf("x,y\n1,0\n",
              "columns { name: 'x' number {} }"
              "columns { name: '*' label {} }"),
      HasSubstr("one label, but the columns \"x\" and \"y\" both give one"));
  EXPECT_THAT(ErrorOf("x,y\n1,0\n",
                      "columns { name: 'x' number {} }"
                      "columns { range { first: 0 } label {} }"),
              HasSubstr("column \"x\" is named twice in the job file"));
  EXPECT_THAT(ErrorOf("x,y\n1,0\n",
                      "columns { name: 'x' number {} } shape: [2, 2]"
                      "columns { name: 'y' label {} }"),
              HasSubstr("the shape [2,2] takes 4 numbers; the columns make 1"));
  EXPECT_THAT(ErrorOf("x;y\n1;0\n",
                      "header: false columns { range { first: 1 } number {} }"
                      "columns { range { first: 0 } label {} }"),
              HasSubstr("there is no column 1, counted from 0: a row has 1 "
                        "cells; is the delimiter right?"));
  EXPECT_THAT(ErrorOf("x,c,y\n", schema), HasSubstr("there are no rows"));
  EXPECT_THAT(ErrorOf("", schema), HasSubstr("there are no rows"));
  EXPECT_THAT(ErrorOf("x,c,y\n1,a,0\n1,a,0\n-1,a,0\n",
                      "columns { name: 'x' weight {} }"
                      "columns { name: 'c' category { values: 'a' } }"
                      "columns { name: 'y' label {} }"),
              HasSubstr("line 4: column \"x\": the weight \"-1\" is below 0"));
}

// The limits are above what one column may declare (proto/job.proto).
TEST_F(CsvDatasetTest, SaysWhichColumnTakesMostOfWhatIsTooMuch) {
  std::string names = "y,large";
  std::string row = "0,0";
  for (int i = 0; i < 153; ++i) {
    absl::StrAppend(&names, ",c", i);
    row += ",0";
  }
  const std::string table = names + "\n" + row + "\n";
  EXPECT_THAT(
      ErrorOf(table,
              "columns { name: 'y' label {} }"
              "columns { name: 'c1*' category { count: 1000000 } }"
              "columns { name: 'large' category { count: 1000000 other: OWN } "
              "}"),
      HasSubstr("column \"large\": an example has more than 10000000 inputs, "
                "1000001 of them from this column: a category has one for each "
                "of its values; declare columns of so many values as `ids`"));
  EXPECT_THAT(
      ErrorOf(table,
              "columns { name: 'y' label {} }"
              "columns { name: 'c*' "
              "ids { separator: ' ' max_ids: 65535 } }"
              "columns { name: 'large' "
              "ids { separator: ' ' max_ids: 65536 } }"),
      HasSubstr("column \"large\": an example may have more than 10000000 "
                "ids, the sum of `max_ids` over all columns; this one has the "
                "largest, 65536: reduce it"));
}

TEST_F(CsvDatasetTest, LeavesBadRowsOutWhereItMay) {
  const std::string schema = R"(
    skip_bad_rows: true
    columns { name: 'x' number {} } columns { name: 'y' label {} })";
  const auto dataset = OpenTable("x,y\n1,0\nbad,0\n3,1\n4\n5,1\n", schema);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 3);
  EXPECT_THAT(At(**dataset, 1).input, ElementsAre(3));
  EXPECT_THAT(At(**dataset, 2).input, ElementsAre(5));
  EXPECT_EQ((*dataset)->skipped_rows(), 2);
  EXPECT_THAT((*dataset)->skipped_because(),
              ElementsAre(HasSubstr("line 3: column \"x\": \"bad\" is no"),
                          HasSubstr("line 5: the row has 1 cells")));
  // The same data as without the rows.
  const auto clean = OpenTable("x,y\n1,0\n3,1\n5,1\n", schema);
  ASSERT_TRUE(clean.ok()) << clean.status();
  EXPECT_THAT((*clean)->skipped_because(), IsEmpty());
  EXPECT_EQ((*clean)->digest(), (*dataset)->digest());
  EXPECT_THAT(ErrorOf("x,y\nbad,0\n", schema),
              AllOf(HasSubstr("no rows without errors"),
                    HasSubstr("line 2: column \"x\"")));
}

TEST_F(CsvDatasetTest, ReadsSeveralFilesByName) {
  const std::string schema = R"(
    columns { name: 'x' number {} } columns { name: 'y' label {} })";
  Write("b-2.csv", "x,y\n3,1\n");
  Write("b-1.csv", "x,y\n1,0\n2,0\n");
  Write("a.csv", "x,y\n0,0\n");
  const std::string files = "files: 'FOLDER/b-*.csv' files: 'FOLDER/a.csv'";
  const auto dataset = Open(files + schema);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->num_examples(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(At(**dataset, i).input, ElementsAre((i + 1) % 4));
  }
  // The division into files does not matter.
  const auto one = OpenTable("x,y\n1,0\n2,0\n3,1\n0,0\n", schema);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ((*one)->digest(), (*dataset)->digest());

  Write("a.csv", "y,x\n0,0\n");
  EXPECT_THAT(Open(files + schema).status().message(),
              AllOf(HasSubstr(Path("a.csv") + "\": line 1: the columns differ "
                                              "from those of"),
                    HasSubstr(Path("b-1.csv"))));
  EXPECT_THAT(Open("files: 'FOLDER/none-*.csv'" + schema).status().message(),
              HasSubstr("no file matches \"" + Path("none-*.csv")));
  EXPECT_EQ(Open("files: 'FOLDER/none.csv'" + schema).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(Open("files: 'FOLDER/a.csv' files: 'FOLDER/a*'" + schema)
                  .status()
                  .message(),
              HasSubstr("is named twice, or matched twice"));
}

TEST_F(CsvDatasetTest, ReadsGzip) {
  const auto plain = OpenTable(kPeople, kPeopleSchema);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const gzFile file = gzopen(Path("table.csv.gz").c_str(), "wb");
  ASSERT_NE(file, nullptr);
  gzputs(file, kPeople);
  ASSERT_EQ(gzclose(file), Z_OK);
  const std::string schema =
      absl::StrCat("files: 'FOLDER/table.csv.gz'", kPeopleSchema);
  const auto packed = Open(schema);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ((*packed)->digest(), (*plain)->digest());

  std::filesystem::resize_file(
      Path("table.csv.gz"),
      std::filesystem::file_size(Path("table.csv.gz")) - 9);
  EXPECT_EQ(Open(schema).status().code(), absl::StatusCode::kDataLoss);
}

// More rows than a block holds, with a fault in each file: lines, faults and
// examples are the same for any number of threads.
TEST_F(CsvDatasetTest, ReadsBlocksInParallel) {
  const std::string schema = R"(
    files: 'FOLDER/part-*.csv' skip_bad_rows: true
    columns { name: 'x' number {} } columns { name: 'y' label {} })";
  constexpr int kRows = 100000;
  for (int file = 0; file < 3; ++file) {
    std::string content = "y,x\n";
    for (int i = 0; i < kRows; ++i) {
      // Newlines in quotes, which do not end a row.
      absl::StrAppend(&content, i == 99990 && file == 2 ? 9 : i % 3, ",",
                      i == 70000  ? "bad"
                      : i % 7 > 0 ? absl::StrCat(file * kRows + i)
                                  : absl::StrCat("\"", file * kRows + i, "\""),
                      i % 1000 == 0 ? "\n\n" : "\n");
    }
    Write(absl::StrCat("part-", file, ".csv"), content);
  }
  std::string digest;
  for (const int threads : {1, 2, 5}) {
    threads_ = threads;
    const auto dataset = Open(schema);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ASSERT_EQ((*dataset)->num_examples(), 3 * (kRows - 1));
    EXPECT_THAT(At(**dataset, 70000).input, ElementsAre(70001));
    EXPECT_THAT(At(**dataset, 3 * kRows - 4).input, ElementsAre(3 * kRows - 1));
    // 71 empty lines and the header precede it.
    EXPECT_THAT((*dataset)->skipped_because(),
                ElementsAre(HasSubstr("part-0.csv\": line 70072: column \"x\""),
                            HasSubstr("part-1.csv\": line 70072:"),
                            HasSubstr("part-2.csv\": line 70072:")));
    EXPECT_THAT(
        (*dataset)->GreatestLabelPlace(),
        AllOf(HasSubstr("label 9 in line 100092"), HasSubstr("part-2.csv")));
    if (digest.empty()) digest = (*dataset)->digest();
    EXPECT_EQ((*dataset)->digest(), digest);
    // If rows may not be left out, the very first fault is reported.
    EXPECT_THAT(Open(absl::StrReplaceAll(schema, {{"true", "false"}}))
                    .status()
                    .message(),
                HasSubstr("part-0.csv\": line 70072: column \"x\""));
  }
}

TEST_F(CsvDatasetTest, KeepsRowsInTheCache) {
  const auto in_memory = OpenTable(kPeople, kPeopleSchema);
  ASSERT_TRUE(in_memory.ok()) << in_memory.status();
  EXPECT_EQ((*in_memory)->footprint().memory, 3 * 4 * 4);
  EXPECT_EQ((*in_memory)->footprint().mapped, 0);
  const std::string cache_folder = Path("cache");
  std::filesystem::create_directory(cache_folder);
  std::vector<std::string> lines;
  const auto cache = DataCache::Open(
      cache_folder, [&](const std::string& line) { lines.push_back(line); });
  ASSERT_TRUE(cache.ok()) << cache.status();
  cache_ = cache->get();
  const std::string schema =
      absl::StrCat("files: 'FOLDER/table.csv' ", kPeopleSchema);
  for (const std::string told : {"writing", "using"}) {
    lines.clear();
    const auto cached = Open(schema);
    ASSERT_TRUE(cached.ok()) << cached.status();
    EXPECT_THAT(lines, ElementsAre(StartsWith(told)));
    EXPECT_EQ((*cached)->digest(), (*in_memory)->digest());
    EXPECT_EQ((*cached)->num_examples(), 3);
    EXPECT_EQ((*cached)->spec().num_classes, (*in_memory)->spec().num_classes);
    EXPECT_EQ((*cached)->GreatestLabelPlace(),
              (*in_memory)->GreatestLabelPlace());
    EXPECT_EQ((*cached)->footprint().memory, 0);
    EXPECT_EQ((*cached)->footprint().mapped, 3 * 4 * 4);
    for (int row = 0; row < 3; ++row) {
      EXPECT_EQ(At(**cached, row).input, At(**in_memory, row).input);
      EXPECT_EQ(At(**cached, row).label, At(**in_memory, row).label);
    }
  }
  // Another schema or other files make another cache file.
  lines.clear();
  ASSERT_TRUE(
      Open(absl::StrReplaceAll(schema, {{"mean: 40", "mean: 41"}})).ok());
  EXPECT_THAT(lines, ElementsAre(StartsWith("writing")));
  Write("table.csv", absl::StrCat(kPeople, "dan,60,rome,0,3\n"));
  lines.clear();
  const auto longer = Open(schema);
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ((*longer)->num_examples(), 4);
  EXPECT_THAT(lines, ElementsAre(StartsWith("writing")));
  // Skipped rows are reported again; wrong rows are not cached.
  Write("table.csv", absl::StrCat(kPeople, "eve,old,rome,0,3\n"));
  EXPECT_THAT(Open(schema).status().message(),
              HasSubstr("line 6: column \"age\""));
  EXPECT_THAT(Open(schema).status().message(),
              HasSubstr("line 6: column \"age\""));
  for (int i = 0; i < 2; ++i) {
    const auto skipping = Open("skip_bad_rows: true " + schema);
    ASSERT_TRUE(skipping.ok()) << skipping.status();
    EXPECT_EQ((*skipping)->skipped_rows(), 1);
    EXPECT_THAT((*skipping)->skipped_because(),
                ElementsAre(HasSubstr("line 6: column \"age\"")));
    EXPECT_EQ((*skipping)->digest(), (*in_memory)->digest());
  }
}

// A clock that advances by a minute each time that it is read.
class FastClock : public Clock {
 public:
  absl::Time Now() const override { return now_ += absl::Minutes(1); }

 private:
  mutable absl::Time now_ = absl::UnixEpoch();
};

TEST_F(CsvDatasetTest, TellsHowFarReadingIs) {
  const FastClock clock;
  std::vector<std::string> lines;
  ReadingProgress progress(
      {&clock, [&](const std::string& line) { lines.push_back(line); }});
  progress_ = &progress;
  ASSERT_TRUE(OpenTable(kPeople, kPeopleSchema).ok());
  EXPECT_THAT(
      lines, ElementsAre(AllOf(HasSubstr("table.csv\": 93 B of 93 B (100 %), 3 "
                                         "rows"))));
}

// Numbers around the limits of what one division rounds correctly, compared
// with strtod.
TEST_F(CsvDatasetTest, RoundsNumbersCorrectly) {
  const std::vector<std::string> numbers = {"0",
                                            "-0",
                                            "5.",
                                            ".5",
                                            "-.25",
                                            "+7.125",
                                            "0.1",
                                            "3.4028234663852886e38",
                                            "1e-45",
                                            "9007199254740993",
                                            "9007199254740992",
                                            "-9007199254740991.5",
                                            "0.30000000000000004",
                                            "1.0000000596046448",
                                            "0000000000000000000000001.5",
                                            "1234567890123456789",
                                            "0.000000059604644775390625",
                                            "16777217",
                                            "-1.17549435e-38",
                                            "99999999999999999999",
                                            "0.1234567890123456789"};
  std::string content = "x,y\n";
  for (const std::string& number : numbers) {
    absl::StrAppend(&content, number, ",0\n");
  }
  const auto dataset = OpenTable(content,
                                 "columns { name: 'x' number { stddev: 3 } }"
                                 "columns { name: 'y' label {} }");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto expected =
        static_cast<float>(std::strtod(numbers[i].c_str(), nullptr) / 3);
    const float read = At(**dataset, i).input[0];
    EXPECT_EQ(read, expected) << numbers[i];
    EXPECT_EQ(std::signbit(read), std::signbit(expected)) << numbers[i];
  }
  for (const char* const wrong :
       {".", "-", "+", "1..2", "1.2.3", "0x10", "1e"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("x,y\n", wrong, ",0\n"),
                        "columns { name: 'x' number {} }"
                        "columns { name: 'y' label {} }"),
                HasSubstr("is not a finite number"))
        << wrong;
  }
}

// Random bytes give finite examples or an error.
TEST_F(CsvDatasetTest, TakesAnyBytes) {
  std::mt19937 random(7);
  const std::string header = "x,c,y\n1,a,0\n2,b,1\n";
  int read = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string content = header;
    for (int changes = 1 + random() % 3; changes > 0; --changes) {
      const std::string bytes("\0\xff\n,\"-.e9nif\r", 13);
      content[random() % content.size()] = bytes[random() % bytes.size()];
    }
    const auto dataset = OpenTable(content, R"(
      columns { name: 'x' number {} }
      columns { name: 'c' category { values: 'a' values: 'b' } }
      columns { name: 'y' label {} })");
    if (!dataset.ok()) {
      EXPECT_THAT(dataset.status().message(), HasSubstr(Path("table.csv")));
      continue;
    }
    ++read;
    for (int64_t row = 0; row < (*dataset)->num_examples(); ++row) {
      const Example example = At(**dataset, row);
      EXPECT_TRUE(std::isfinite(example.input[0]));
      EXPECT_GE(example.label, 0);
    }
  }
  EXPECT_GT(read, 10);
}

}  // namespace
}  // namespace holdfast
