// SPDX-License-Identifier: Apache-2.0

// Jobs that have means, deviations and values computed from their training set:
// the chief computes them once, and all other tasks and commands use its
// results.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kComputed[] =
    "columns { name: 'a' name: 'b' number { computed: true } } "
    "columns { name: 'city' category { computed: true } } "
    "columns { name: 'class' label { computed: true } }";
// Means and deviations of Row().
constexpr char kWritten[] =
    "columns { name: 'a' number { mean: 20 stddev: 10 } } "
    "columns { name: 'b' number { mean: -1 stddev: 4 } } "
    "columns { name: 'city' category { values: 'oslo' values: 'rome' } } "
    "columns { name: 'class' label { values: 'n' values: 'no' values: 'o' "
    "values: 's' } }";
constexpr char kByChief[] = "computed from the training set: the fields";
constexpr char kAsDeclared[] = "taken from the declaration: the fields";

// Half of the rows have each value of a column. The first two columns determine
// the class.
std::string Row(int row) {
  const bool a = row % 2 == 1, b = row / 2 % 2 == 1;
  return absl::StrCat(a ? 30 : 10, ",", b ? 3 : -5, ",",
                      row / 4 % 2 == 1 ? "rome" : "oslo", ",",
                      a ? (b ? "n" : "no") : (b ? "o" : "s"), "\n");
}

class ComputedDataTest : public ::testing::Test {
 protected:
  ComputedDataTest() : folder_(FreshFolder()), run_dir_(folder_ + "/run") {
    std::string train = "a,b,city,class\n", test = train, few = train;
    for (int row = 0; row < 160; ++row) train += Row(row);
    for (int row = 0; row < 24; ++row) test += Row(row);
    // Rows of one class alone: with their own mean and deviation they could not
    // be classified.
    for (int row = 1; row < 40; row += 4) few += Row(row);
    WriteText(folder_ + "/train.csv", train);
    WriteText(folder_ + "/test.csv", test);
    WriteText(folder_ + "/few.csv", few);
  }

  std::string JobOf(const std::string& columns,
                    const std::string& more = "") const {
    constexpr char kJob[] = R"(
name: "table"
model {
  sequential {
    layers { dense { units: 8 } }
    layers { tanh {} }
    layers { dense { units: 4 } }
    loss { softmax_cross_entropy {} }
  }
}
data {
  train { csv { files: 'train.csv' COLUMNS } }
  test { csv { files: 'test.csv' COLUMNS } }
}
batch_size: 16
steps: 120
optimizer { learning_rate: 0.2 momentum { momentum: 0.9 } }
consistency { synchronous { replicas_to_aggregate: 2 } }
seed: 1
)";
    const std::string path = folder_ + "/job.textproto";
    WriteText(path, absl::StrReplaceAll(kJob, {{"COLUMNS", columns}}) + more);
    return absl::StrCat("--job=", path);
  }
  std::unique_ptr<Program> Start(const std::string& job,
                                 const std::vector<std::string>& flags) {
    std::vector<std::string> args = {kHoldfast, "local", job,
                                     absl::StrCat("--run_dir=", run_dir_)};
    args.insert(args.end(), flags.begin(), flags.end());
    return std::make_unique<Program>(args);
  }
  // The model's digest after training in a run directory of its own.
  std::string DigestOf(const std::string& job,
                       const std::vector<std::string>& flags) {
    run_dir_ = absl::StrCat(folder_, "/run-", runs_++);
    const auto run = Start(job, flags);
    EXPECT_EQ(run->Wait(), 0) << run->output();
    return StringIn(ReadResult(run_dir_ + "/result.json"), "digest");
  }
  std::string Log(const std::string& task) const {
    return ReadText(absl::StrCat(run_dir_, "/", task, ".log"));
  }
  // Returns the result of `holdfast eval`.
  google::protobuf::Struct Evaluate(const std::vector<std::string>& flags) {
    const std::string file = folder_ + "/eval.json";
    std::vector<std::string> args = {
        kHoldfast, "eval",
        absl::StrCat("--checkpoint=", run_dir_, "/checkpoints"),
        absl::StrCat("--output=", file)};
    args.insert(args.end(), flags.begin(), flags.end());
    Program program(args);
    EXPECT_EQ(program.Wait(), 0) << program.output();
    return ReadResult(file).fields().at("float32").struct_value();
  }

  const std::string folder_;
  std::string run_dir_;
  int runs_ = 0;
};

// A job file with the same numbers written out trains the same model.
TEST_F(ComputedDataTest, TheChiefComputesForAll) {
  const std::string digest =
      DigestOf(JobOf(kComputed), {"--ps=2", "--workers=2"});
  EXPECT_EQ(NumberIn(ReadResult(run_dir_ + "/result.json"), "test_accuracy"),
            1);
  EXPECT_THAT(Log("worker-0"),
              AllOf(HasSubstr(kByChief), Not(HasSubstr(kAsDeclared))));
  EXPECT_THAT(Log("worker-1"),
              AllOf(HasSubstr(kAsDeclared), Not(HasSubstr(kByChief))));
  EXPECT_EQ(DigestOf(JobOf(kComputed), {"--ps=1", "--workers=1"}), digest);
  EXPECT_EQ(DigestOf(JobOf(kComputed), {"--ps=1", "--workers=2", "--tls"}),
            digest);
  EXPECT_EQ(DigestOf(JobOf(kWritten), {"--ps=1", "--workers=2"}), digest);
  EXPECT_THAT(Log("worker-0"),
              AllOf(Not(HasSubstr(kByChief)), Not(HasSubstr(kAsDeclared))));
}

TEST_F(ComputedDataTest, CheckpointsHaveThem) {
  DigestOf(JobOf(kComputed), {"--ps=1", "--workers=1"});
  const auto trained = ReadResult(run_dir_ + "/result.json");
  const std::string few = absl::StrCat("--data=", folder_, "/few.csv");
  EXPECT_EQ(NumberIn(Evaluate({few}), "accuracy"), 1);
  // The file that they were computed from is not needed any more.
  WriteText(folder_ + "/train.csv", "");
  EXPECT_EQ(NumberIn(Evaluate({JobOf(kComputed)}), "loss"),
            NumberIn(trained, "test_loss"));
  const std::string output = folder_ + "/predicted.csv";
  Program predict({kHoldfast, "predict",
                   absl::StrCat("--checkpoint=", run_dir_, "/checkpoints"), few,
                   absl::StrCat("--output=", output)});
  EXPECT_EQ(predict.Wait(), 0) << predict.output();
  EXPECT_THAT(
      ReadText(output),
      HasSubstr("example,class,probability_n,probability_no,probability_o,"
                "probability_s\n0,no,"));
}

// At fixed steps, the job waits for the evaluator. Otherwise such a short job
// may be done, and the ps gone, before the evaluator has started.
TEST_F(ComputedDataTest, AnEvaluatorTakesThemFromCheckpoints) {
  DigestOf(JobOf(kComputed,
                 "evaluation { every_steps: 60 early_stopping { "
                 "patience: 100 at_fixed_steps: true } }\n"),
           {"--ps=1", "--workers=1", "--evaluator"});
  EXPECT_THAT(Log("evaluator-0"),
              AllOf(HasSubstr("24 examples to evaluate on"),
                    HasSubstr("step 60: test loss "),
                    HasSubstr("step 120: test loss 0.000"),
                    HasSubstr("accuracy 1 "), Not(HasSubstr(kByChief))));
}

TEST_F(ComputedDataTest, AJobThatGoesOnComputesNothing) {
  const std::string job = JobOf(kComputed);
  const std::vector<std::string> flags = {"--ps=2", "--workers=2"};
  // The run is slow enough to be stopped before its end.
  auto run = Start(job, {"--ps=2", "--workers=2",
                         absl::StrCat("--worker_binary=", kSlowWorker),
                         "--worker_flags=--slow_step_ms_max=300"});
  ASSERT_TRUE(run->ReadUntil(" examples/s")) << run->output();
  Program stop({kHoldfast, "stop", absl::StrCat("--run_dir=", run_dir_)});
  ASSERT_EQ(stop.Wait(), 0) << stop.output();
  ASSERT_EQ(run->Wait(), 0) << run->output();
  EXPECT_THAT(Log("worker-0"),
              AllOf(HasSubstr(kByChief), Not(HasSubstr(kAsDeclared))));

  run = Start(job, flags);
  EXPECT_EQ(run->Wait(), 0) << run->output();
  const std::string log = Log("worker-0");
  EXPECT_EQ(log.find(kByChief), log.rfind(kByChief));
  EXPECT_THAT(log, HasSubstr(kAsDeclared));
  const auto result = ReadResult(run_dir_ + "/result.json");
  EXPECT_EQ(NumberIn(result, "recoveries"), 1);
  EXPECT_EQ(StringIn(result, "digest"), DigestOf(job, flags));
}

TEST_F(ComputedDataTest, WhatCannotBeComputedIsToldBeforeTraining) {
  WriteText(folder_ + "/train.csv", "a,b,city,class\n,1,oslo,n\n");
  const auto run = Start(JobOf(kComputed), {"--ps=1", "--workers=2"});
  EXPECT_EQ(run->Wait(), 2) << run->output();
  EXPECT_THAT(run->output(),
              HasSubstr("cannot compute column \"a\" of the training set: it "
                        "has no values"));
}

}  // namespace
}  // namespace holdfast
