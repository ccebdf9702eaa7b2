// SPDX-License-Identifier: Apache-2.0

// examples/custom_table: a user-defined model with embedding tables.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kWorker =
    "--worker_binary=examples/custom_table/ratings_worker";

class CustomTableTest : public ::testing::Test {
 protected:
  CustomTableTest() : folder_(FreshFolder()), ratings_(folder_ + "/ratings") {
    Program program(
        {"/usr/bin/python3", "examples/custom_table/ratings.py", ratings_});
    EXPECT_EQ(program.Wait(), 0) << program.output();
  }

  // Trains the example's job with `more` appended to it. Returns the exit code.
  int Train(const std::string& more, const std::vector<std::string>& flags) {
    const std::string job = folder_ + "/job.textproto";
    WriteText(job, absl::StrReplaceAll(
                       ReadText("examples/custom_table/ratings.textproto"),
                       {{"/tmp/ratings", ratings_}}) +
                       more);
    run_dir_ = absl::StrCat(folder_, "/run-", runs_++);
    std::vector<std::string> words = {"local", absl::StrCat("--job=", job),
                                      absl::StrCat("--run_dir=", run_dir_)};
    words.insert(words.end(), flags.begin(), flags.end());
    return Run(words);
  }

  int Run(std::vector<std::string> words) {
    words.insert(words.begin(), kHoldfast);
    Program program(words);
    const int code = program.Wait();
    output_ = program.output();
    return code;
  }

  google::protobuf::Struct Result() const {
    return ReadResult(run_dir_ + "/result.json");
  }

  // The variables and tables of the last checkpoint, with digests.
  std::vector<std::string> Contents() {
    EXPECT_EQ(Run({"checkpoint", "inspect", run_dir_ + "/checkpoints"}), 0)
        << output_;
    std::vector<std::string> contents;
    for (const absl::string_view line : absl::StrSplit(output_, '\n')) {
      if (absl::StartsWith(line, "table ") ||
          absl::StartsWith(line, "digest ")) {
        contents.emplace_back(line);
      }
    }
    return contents;
  }

  const std::string folder_;
  const std::string ratings_;
  std::string run_dir_;
  int runs_ = 0;
  std::string output_;
};

// No model has less than 0.01, see ratings.py; with biases alone, without
// factors, the squared error is the variance of <p, q>, 2 x 0.7^4 = 0.48, plus
// the noise.
TEST_F(CustomTableTest, LearnsUsersAndItems) {
  ASSERT_EQ(Train("", {kWorker}), 0) << output_;
  EXPECT_LT(NumberIn(Result(), "test_mean_squared_error"), 0.02);
  const std::vector<std::string> contents = Contents();
  EXPECT_THAT(absl::StrJoin(contents, "\n"),
              AllOf(HasSubstr("table        user FLOAT32 [*,5], optimizer 0, "
                              "200 rows"),
                    HasSubstr("table        item FLOAT32 [*,5], optimizer 0, "
                              "150 rows")));
  const std::string predicted = folder_ + "/predicted.csv";
  ASSERT_EQ(Run({"predict", kWorker,
                 absl::StrCat("--checkpoint=", run_dir_, "/checkpoints"),
                 absl::StrCat("--data=", ratings_, "/test.csv"),
                 absl::StrCat("--output=", predicted)}),
            0)
      << output_;
  const std::string lines = ReadText(predicted);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1 + 2000);
  EXPECT_THAT(lines, HasSubstr("example,rating\n0,"));

  ASSERT_EQ(Train("", {kWorker, "--ps=3", "--worker_flags=--input_threads=3"}),
            0)
      << output_;
  EXPECT_EQ(Contents(), contents);
}

TEST_F(CustomTableTest, TrainsAsynchronously) {
  ASSERT_EQ(Train("consistency { asynchronous { pipeline_depth: 2 } }",
                  {kWorker, "--ps=2", "--workers=3"}),
            0)
      << output_;
  EXPECT_LT(NumberIn(Result(), "test_mean_squared_error"), 0.03);
  EXPECT_EQ(NumberIn(Result(), "examples"), 20 * 15000);
}

TEST_F(CustomTableTest, OtherWorkersDoNotKnowIt) {
  EXPECT_EQ(Train("", {}), 2);
  EXPECT_THAT(output_,
              HasSubstr("no model is registered as \"matrix_factorization\""));
}

}  // namespace
}  // namespace holdfast
