// SPDX-License-Identifier: Apache-2.0
#include "cli/datagen.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/data/dataset.h"
#include "common/process/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DatagenTest : public ::testing::Test {
 protected:
  DatagenTest() { std::filesystem::remove_all(out_); }

  // Returns the exit code. The output is in output_.
  int Run(std::vector<std::string> args) {
    args.insert(args.begin(), "criteo");
    std::ostringstream output;
    std::streambuf* const cout = std::cout.rdbuf(output.rdbuf());
    std::streambuf* const cerr = std::cerr.rdbuf(output.rdbuf());
    const int code = DatagenCommand(args);
    std::cout.rdbuf(cout);
    std::cerr.rdbuf(cerr);
    output_ = output.str();
    return code;
  }
  std::vector<std::string> FilesIn(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
  }
  std::unique_ptr<Dataset> Open(const std::string& pattern) {
    proto::Dataset config;
    config.mutable_criteo()->add_files(pattern);
    auto dataset = Dataset::Open(config, {});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }

  const std::string out_ = testing::TempDir() + "/datagen_test";
  std::string output_;
};

TEST_F(DatagenTest, WritesWhatAJobReads) {
  const std::string plain = out_ + "/plain", packed = out_ + "/packed";
  ASSERT_EQ(Run({"--out=" + plain, "--examples=10000", "--test_examples=3000",
                 "--files=3", "--threads=1"}),
            kExitDone)
      << output_;
  EXPECT_THAT(FilesIn(plain),
              ElementsAre("datagen.json", "test-00000.tsv", "test-00001.tsv",
                          "test-00002.tsv", "train-00000.tsv",
                          "train-00001.tsv", "train-00002.tsv"));
  EXPECT_THAT(output_, AllOf(HasSubstr(plain + "/train-*.tsv: 10000 examples"),
                             HasSubstr("AUC 0."), HasSubstr("C26")));
  EXPECT_THAT(Content(plain + "/datagen.json"),
              AllOf(HasSubstr("\"test_auc\": 0."), HasSubstr("\"ids\": [")));
  ASSERT_EQ(Run({"--out=" + packed, "--examples=10000", "--test_examples=3000",
                 "--files=2", "--threads=3", "--gzip"}),
            kExitDone)
      << output_;
  EXPECT_THAT(
      FilesIn(packed),
      ElementsAre("datagen.json", "test-00000.tsv.gz", "test-00001.tsv.gz",
                  "train-00000.tsv.gz", "train-00001.tsv.gz"));
  EXPECT_EQ(Content(packed + "/datagen.json"),
            Content(plain + "/datagen.json"));
  for (const auto& [part, examples] :
       {std::pair("train", 10000), std::pair("test", 3000)}) {
    const auto one = Open(absl::StrCat(plain, "/", part, "-*"));
    const auto other = Open(absl::StrCat(packed, "/", part, "-*"));
    ASSERT_TRUE(one != nullptr && other != nullptr);
    EXPECT_EQ(one->num_examples(), examples);
    EXPECT_EQ(one->spec().num_classes, 2);
    EXPECT_EQ(one->digest(), other->digest());
  }
}

TEST_F(DatagenTest, EachIdComesOftenEnough) {
  ASSERT_EQ(Run({"--out=" + out_, "--examples=30000", "--test_examples=1000",
                 "--min_occurrences=200", "--seed=5"}),
            kExitDone)
      << output_;
  const auto dataset = Open(out_ + "/train-*");
  ASSERT_NE(dataset, nullptr);
  std::vector<uint64_t> ids(26), all;
  std::vector<uint32_t> counts(26);
  std::vector<float> input(13);
  int32_t label = 0;
  ExampleMemory to;
  to.input = absl::MakeSpan(input);
  to.label = &label;
  to.ids = absl::MakeSpan(ids);
  to.id_counts = absl::MakeSpan(counts);
  for (int64_t i = 0; i < dataset->num_examples(); ++i) {
    ASSERT_TRUE(dataset->Read(i, to).ok());
    all.insert(all.end(), ids.begin(), ids.end());
  }
  std::sort(all.begin(), all.end());
  int64_t distinct = 0;
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end = std::upper_bound(begin, all.end(), *begin);
    EXPECT_GE(end - begin, 200);
    begin = end;
    ++distinct;
  }
  // Enough to be worth it.
  EXPECT_GT(distinct, 300);
}

TEST_F(DatagenTest, SaysWhatIsWrong) {
  const auto error = [this](std::vector<std::string> args) {
    EXPECT_EQ(Run(std::move(args)), kExitUsage);
    return output_;
  };
  const std::string out = "--out=" + out_;
  EXPECT_THAT(error({}), HasSubstr("--out=: name a folder"));
  EXPECT_THAT(error({out, "--examples=0"}), HasSubstr("--examples=0: must be"));
  EXPECT_THAT(error({out, "--zipf=-1"}),
              HasSubstr("--zipf=-1: must be from 0"));
  EXPECT_THAT(error({out, "--cardinalities=1,2"}),
              HasSubstr("must be kaggle, small, or 26 whole numbers"));
  EXPECT_THAT(error({out, "--examples=300", "--min_occurrences=200"}),
              HasSubstr("--min_occurrences=200: takes at least 327 examples"));
  EXPECT_FALSE(std::filesystem::exists(out_));

  const std::vector<std::string> small = {
      out, "--examples=100", "--test_examples=10", "--cardinalities=small"};
  std::vector<std::string> again = small;
  again.push_back("--gzip");
  EXPECT_EQ(Run(small), kExitDone) << output_;
  EXPECT_EQ(Run(again), kExitFailed);
  EXPECT_THAT(output_, HasSubstr("-00000.tsv\" already exists"));
  again.push_back("--force");
  EXPECT_EQ(Run(again), kExitDone) << output_;
  EXPECT_THAT(FilesIn(out_), ElementsAre("datagen.json", "test-00000.tsv.gz",
                                         "train-00000.tsv.gz"));
  std::ofstream(out_ + "/file").put('x');
  EXPECT_EQ(Run({"--out=" + out_ + "/file/folder"}), kExitFailed);
}

}  // namespace
}  // namespace holdfast
