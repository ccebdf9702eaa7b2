// SPDX-License-Identifier: Apache-2.0

// `holdfast eval` and `holdfast predict` on the checkpoints of real jobs.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

// The model of examples/iris.textproto, trained once for all tests.
class EvaluateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_dir_ = new std::string(testing::TempDir() + "/evaluated");
    std::filesystem::remove_all(*run_dir_);
    Program program({kHoldfast, "local", "--job=examples/iris.textproto",
                     absl::StrCat("--run_dir=", *run_dir_)});
    ASSERT_EQ(program.Wait(), 0) << program.output();
  }

  EvaluateTest() : folder_(*run_dir_) {}

  std::string Checkpoints() const {
    return absl::StrCat("--checkpoint=", *run_dir_, "/checkpoints");
  }

  // Runs the command, and returns the exit code.
  int Run(const std::vector<std::string>& args) {
    std::vector<std::string> words = {kHoldfast};
    words.insert(words.end(), args.begin(), args.end());
    Program program(words);
    const int code = program.Wait();
    output_ = program.output();
    return code;
  }

  // Returns the result of `holdfast eval`.
  google::protobuf::Struct Eval(std::vector<std::string> flags) {
    const std::string file = folder_ + "/eval.json";
    std::vector<std::string> args = {"eval", Checkpoints(),
                                     absl::StrCat("--output=", file)};
    args.insert(args.end(), flags.begin(), flags.end());
    EXPECT_EQ(Run(args), 0) << output_;
    return ReadResult(file);
  }

  static std::string* run_dir_;
  const std::string folder_;
  std::string output_;
};

std::string* EvaluateTest::run_dir_ = nullptr;

const google::protobuf::Struct& StructIn(const google::protobuf::Struct& in,
                                         const std::string& name) {
  return in.fields().at(name).struct_value();
}

// The chief has evaluated the same values on the same examples.
TEST_F(EvaluateTest, IsWhatTheChiefFound) {
  const auto evaluated = Eval({"--job=examples/iris.textproto"});
  const auto trained = ReadResult(*run_dir_ + "/result.json");
  const auto& scores = StructIn(evaluated, "float32");
  EXPECT_EQ(NumberIn(evaluated, "examples"), 30);
  EXPECT_EQ(NumberIn(evaluated, "step"), NumberIn(trained, "global_step"));
  EXPECT_EQ(NumberIn(scores, "loss"), NumberIn(trained, "test_loss"));
  EXPECT_EQ(NumberIn(scores, "accuracy"), NumberIn(trained, "test_accuracy"));
  EXPECT_EQ(evaluated.fields().count("int8"), 0);
}

// The checkpoint contains its job, so only data is needed. Weights of 8 bits
// cost a little accuracy.
TEST_F(EvaluateTest, TakesOtherDataAndSmallerWeights) {
  const auto evaluated = Eval({"--data=examples/iris.csv", "--int8"});
  EXPECT_EQ(NumberIn(evaluated, "examples"), 150);
  const auto& exact = StructIn(evaluated, "float32");
  const auto& rounded = StructIn(evaluated, "int8");
  EXPECT_GT(NumberIn(exact, "accuracy"), 0.9);
  EXPECT_NEAR(NumberIn(rounded, "accuracy"), NumberIn(exact, "accuracy"), 0.03);
  EXPECT_NE(NumberIn(rounded, "loss"), NumberIn(exact, "loss"));
  // Without --output, the same result is printed.
  EXPECT_EQ(Run({"eval", Checkpoints(), "--data=examples/iris.csv"}), 0);
  EXPECT_THAT(output_, HasSubstr("\"examples\": 150"));
}

TEST_F(EvaluateTest, PredictsWithoutLabels) {
  std::string inputs;
  std::vector<std::string> species;
  std::ifstream table("examples/iris.csv");
  for (std::string line; std::getline(table, line);) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    ASSERT_EQ(cells.size(), 5);
    absl::StrAppend(&inputs, cells[0], ",", cells[1], ",", cells[2], ",",
                    cells[3], "\n");
    species.push_back(cells[4]);
  }
  WriteText(folder_ + "/inputs.csv", inputs);
  const std::string file = folder_ + "/predicted.csv";
  ASSERT_EQ(Run({"predict", Checkpoints(),
                 absl::StrCat("--data=", folder_, "/inputs.csv"),
                 absl::StrCat("--output=", file)}),
            0)
      << output_;
  std::ifstream predicted(file);
  std::string line;
  ASSERT_TRUE(std::getline(predicted, line));
  EXPECT_EQ(line,
            "example,class,probability_setosa,probability_versicolor,"
            "probability_virginica");
  int examples = 0, right = 0;
  for (; std::getline(predicted, line); ++examples) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    ASSERT_EQ(cells.size(), 5) << line;
    EXPECT_EQ(cells[0], absl::StrCat(examples));
    // species[0] is the column's name.
    if (cells[1] == species[examples + 1]) ++right;
    double sum = 0;
    for (int i = 2; i < 5; ++i) sum += std::atof(cells[i].c_str());
    EXPECT_NEAR(sum, 1, 1e-6) << line;
  }
  EXPECT_EQ(examples, 150);
  const auto evaluated = Eval({"--data=examples/iris.csv"});
  EXPECT_EQ(right, NumberIn(StructIn(evaluated, "float32"), "accuracy") * 150);
}

TEST_F(EvaluateTest, WrongUseIsToldWithAWayOut) {
  EXPECT_EQ(Run({"eval"}), 2);
  EXPECT_THAT(output_, HasSubstr("--checkpoint is required"));
  EXPECT_EQ(Run({"predict", Checkpoints(), "--data=examples/iris.csv"}), 2);
  EXPECT_THAT(output_, HasSubstr("--output is required"));
  EXPECT_EQ(Run({"eval", Checkpoints()}), 2);
  EXPECT_THAT(output_, HasSubstr("name files with --data"));
  // The training set must not be used instead.
  EXPECT_EQ(Run({"predict", Checkpoints(), "--job=examples/iris.textproto",
                 absl::StrCat("--output=", folder_, "/none.csv")}),
            2);
  EXPECT_THAT(output_, HasSubstr("the job has no test set"));
  EXPECT_EQ(Run({"eval", "--checkpoint=nowhere", "--data=x"}), 2);
  EXPECT_THAT(output_, HasSubstr("nowhere"));
  EXPECT_EQ(Run({"eval", Checkpoints(), "--data=none.csv"}), 2);
  EXPECT_THAT(output_, HasSubstr("none.csv"));
  EXPECT_EQ(Run({"eval", Checkpoints(),
                 "--job=examples/fashion_mnist_softmax.textproto"}),
            2);
  EXPECT_THAT(output_, HasSubstr("[28,28]"));
  EXPECT_THAT(output_, HasSubstr("[4]"));
  // A failed prediction leaves no file.
  WriteText(folder_ + "/bad.csv",
            "sepal_length,sepal_width,petal_length,petal_width\n1,2,3,?\n");
  const std::string file = folder_ + "/bad_predicted.csv";
  EXPECT_EQ(Run({"predict", Checkpoints(),
                 absl::StrCat("--data=", folder_, "/bad.csv"),
                 absl::StrCat("--output=", file)}),
            2);
  EXPECT_THAT(output_, HasSubstr("line 2: column \"petal_width\""));
  EXPECT_FALSE(std::ifstream(file).good());
}

}  // namespace
}  // namespace holdfast
