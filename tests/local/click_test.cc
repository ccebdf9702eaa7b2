// SPDX-License-Identifier: Apache-2.0

// Click models as users train them, on data of `holdfast datagen criteo`: the
// model learns, the result does not depend on what should not matter, and the
// checkpoints can be used.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/random.h"
#include "common/data/id_hash.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kExamples = 20000;
constexpr int kTestExamples = 2000;
constexpr int kCategories = 26;
// The number of cells of a line before the categories: a label and 13 numbers.
constexpr int kFirstCategory = 14;

struct ClickJob {
  std::string model;
  std::string length = "steps: 60";
  std::string consistency = "synchronous {}";
  int batch_size = 100;
  // More fields of `data`, and of the job, as text.
  std::string data;
  std::string more;
};

const char* const kLogisticRegression = "logistic_regression {}";
const char* const kFactorizationMachine =
    "factorization_machine { embedding { row_length: 4 } }";
const char* const kWideAndDeep =
    "wide_and_deep {"
    "  embedding { row_length: 4 }"
    "  layers { dense { units: 16 } } layers { relu {} }"
    "}";
const char* const kDeepFm =
    "deep_fm {"
    "  embedding { row_length: 4 combiner: MEAN }"
    "  layers { dense { units: 16 } } layers { relu {} }"
    "}";
const char* const kDlrm =
    "dlrm {"
    "  embedding { row_length: 4 combiner: SQRTN }"
    "  bottom { dense { units: 4 } } bottom { relu {} }"
    "  top { dense { units: 16 } } top { relu {} }"
    "}";

// Digests of the variables and of each table.
using Digests = std::vector<std::string>;

class ClickTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    data_ = new std::string(testing::TempDir() + "/clicks");
    std::filesystem::remove_all(*data_);
    Program program({kHoldfast, "datagen", "criteo", "--cardinalities=small",
                     absl::StrCat("--examples=", kExamples),
                     absl::StrCat("--test_examples=", kTestExamples),
                     absl::StrCat("--out=", *data_)});
    ASSERT_EQ(program.Wait(), 0) << program.output();
  }

  ClickTest() : folder_(FreshFolder()) {}

  static std::string TrainFile() { return *data_ + "/train-00000.tsv"; }
  static std::string TestFile() { return *data_ + "/test-00000.tsv"; }

  std::string WriteClickJob(const ClickJob& job) const {
    constexpr char kText[] = R"(
name: "clicks"
model { MODEL }
data {
  train { criteo { files: "DATA/train-*.tsv" } }
  test { criteo { files: "DATA/test-*.tsv" } }
  MORE_DATA
}
batch_size: BATCH
LENGTH
optimizer { learning_rate: 0.1 adagrad {} }
consistency { CONSISTENCY }
evaluation { auc: true calibration: true }
seed: 1
)";
    const std::string path = folder_ + "/job.textproto";
    WriteText(path, absl::StrReplaceAll(
                        kText, {{"MODEL", job.model},
                                {"MORE_DATA", job.data},
                                {"BATCH", absl::StrCat(job.batch_size)},
                                {"DATA", *data_},
                                {"LENGTH", job.length},
                                {"CONSISTENCY", job.consistency}}) +
                        job.more);
    return path;
  }

  // Runs `holdfast` with these arguments, and returns the exit code.
  int Run(std::vector<std::string> words) {
    words.insert(words.begin(), kHoldfast);
    Program program(words);
    const int code = program.Wait();
    output_ = program.output();
    return code;
  }

  // Trains in a separate run directory, and returns its path.
  std::string Train(const std::string& job_file,
                    const std::vector<std::string>& flags) {
    const std::string run_dir = absl::StrCat(folder_, "/run-", runs_++);
    std::vector<std::string> words = {"local", absl::StrCat("--job=", job_file),
                                      absl::StrCat("--run_dir=", run_dir)};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_EQ(Run(words), 0) << output_;
    return run_dir;
  }
  std::string Train(const ClickJob& job,
                    const std::vector<std::string>& flags) {
    return Train(WriteClickJob(job), flags);
  }

  // The digests of the last checkpoint. Checks that the result has the same
  // digest of the variables.
  Digests DigestsIn(const std::string& run_dir) {
    EXPECT_EQ(Run({"checkpoint", "inspect", run_dir + "/checkpoints"}), 0)
        << output_;
    Digests digests;
    for (const absl::string_view line : absl::StrSplit(output_, '\n')) {
      if (!absl::StartsWith(line, "table ") &&
          !absl::StartsWith(line, "digest ")) {
        continue;
      }
      digests.emplace_back(line.substr(line.rfind(' ') + 1));
      EXPECT_EQ(digests.back().size(), 64) << line;
    }
    EXPECT_FALSE(digests.empty()) << output_;
    if (digests.empty()) return {""};
    EXPECT_EQ(StringIn(ReadResult(run_dir + "/result.json"), "digest"),
              digests.back());
    return digests;
  }
  Digests DigestsOf(const ClickJob& job,
                    const std::vector<std::string>& flags) {
    return DigestsIn(Train(job, flags));
  }

  google::protobuf::Struct Eval(const std::string& run_dir,
                                const std::vector<std::string>& flags) {
    const std::string file = folder_ + "/eval.json";
    std::vector<std::string> words = {
        "eval", absl::StrCat("--checkpoint=", run_dir, "/checkpoints"),
        absl::StrCat("--output=", file)};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_EQ(Run(words), 0) << output_;
    return ReadResult(file);
  }

  // The probabilities of label 1 that the last checkpoint predicts.
  std::vector<double> Predict(const std::string& run_dir,
                              const std::string& data) {
    const std::string file = folder_ + "/predicted.csv";
    EXPECT_EQ(
        Run({"predict", absl::StrCat("--checkpoint=", run_dir, "/checkpoints"),
             absl::StrCat("--data=", data), "--output=" + file}),
        0)
        << output_;
    std::ifstream lines(file);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line, "example,class,probability");
    std::vector<double> probabilities;
    while (std::getline(lines, line)) {
      const std::vector<std::string> cells = absl::StrSplit(line, ',');
      double probability = -1;
      EXPECT_EQ(cells.size(), 3) << line;
      EXPECT_EQ(cells[0], absl::StrCat(probabilities.size()));
      EXPECT_TRUE(absl::SimpleAtod(cells.back(), &probability)) << line;
      EXPECT_EQ(cells[1], probability > 0.5 ? "1" : "0") << line;
      probabilities.push_back(probability);
    }
    return probabilities;
  }

  static std::string* data_;
  const std::string folder_;
  int runs_ = 0;
  std::string output_;
};

std::string* ClickTest::data_ = nullptr;

const google::protobuf::Struct& StructIn(const google::protobuf::Struct& in,
                                         const std::string& name) {
  return in.fields().at(name).struct_value();
}

// Mean cross-entropy of `probabilities` against the labels at the beginning of
// the lines of `file`.
double LossOf(const std::vector<double>& probabilities,
              const std::string& file) {
  std::ifstream lines(file);
  double sum = 0;
  std::string line;
  for (const double probability : probabilities) {
    std::getline(lines, line);
    sum -= std::log(line[0] == '1' ? probability : 1 - probability);
  }
  return sum / static_cast<double>(probabilities.size());
}

// The log loss of a model that knows only the click rate, as `holdfast datagen`
// prints it.
double LossOfClickRate(const std::string& data) {
  return NumberIn(ReadResult(data + "/datagen.json"),
                  "test_log_loss_of_click_rate");
}

class ClickModelTest : public ClickTest,
                       public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Models, ClickModelTest,
                         ::testing::Values(kLogisticRegression,
                                           kFactorizationMachine, kWideAndDeep,
                                           kDeepFm, kDlrm),
                         [](const auto& info) {
                           const std::string model = info.param;
                           return model.substr(0, model.find(' '));
                         });

TEST_P(ClickModelTest, LearnsAndIsEvaluated) {
  ClickJob job;
  job.model = GetParam();
  job.length = "steps: 200";
  const std::string run_dir = Train(job, {"--ps=2", "--workers=2"});
  const google::protobuf::Struct result = ReadResult(run_dir + "/result.json");
  EXPECT_EQ(NumberIn(result, "global_step"), 200);
  EXPECT_EQ(NumberIn(result, "examples"), 200 * 2 * 100);
  EXPECT_LT(NumberIn(result, "test_loss"), LossOfClickRate(*data_));
  EXPECT_LT(NumberIn(result, "train_loss"), LossOfClickRate(*data_));
  EXPECT_GT(NumberIn(result, "test_auc"), 0.58);

  const auto evaluated =
      Eval(run_dir, {absl::StrCat("--job=", folder_, "/job.textproto")});
  EXPECT_EQ(NumberIn(evaluated, "examples"), kTestExamples);
  const auto& scores = StructIn(evaluated, "float32");
  for (const char* score : {"loss", "accuracy", "auc", "calibration"}) {
    EXPECT_EQ(NumberIn(scores, score),
              NumberIn(result, absl::StrCat("test_", score)))
        << score;
  }
  const std::vector<double> predicted = Predict(run_dir, TestFile());
  ASSERT_EQ(predicted.size(), kTestExamples);
  EXPECT_NEAR(LossOf(predicted, TestFile()), NumberIn(result, "test_loss"),
              1e-6);
}

TEST_P(ClickModelTest, SynchronousJobsEndWithTheSameBits) {
  ClickJob job;
  job.model = GetParam();
  const Digests digests =
      DigestsOf(job, {"--ps=1", "--worker_flags=--input_threads=1"});
  EXPECT_EQ(DigestsOf(job, {"--ps=3", "--worker_flags=--input_threads=3"}),
            digests);
  // A single worker fills both seats of a step, in order.
  job.consistency =
      "synchronous { replicas_to_aggregate: 2 total_num_replicas: 1 }";
  job.more = "examples: BY_TICKET";
  EXPECT_EQ(DigestsOf(job, {"--ps=2", "--workers=1"}), digests);
  EXPECT_NE(DigestsOf(job, {"--ps=2", "--workers=1", "--seed=2"}), digests);
}

TEST_F(ClickTest, MicroBatchesAreTheSameGradientButForRounding) {
  ClickJob job;
  job.model = kDeepFm;
  const std::string whole = Train(job, {"--ps=1"});
  job.more = "micro_batches: 3";
  const std::string cut = Train(job, {"--ps=1"});
  const Digests digests = DigestsIn(cut);
  EXPECT_NE(digests, DigestsIn(whole));
  EXPECT_EQ(DigestsOf(job, {"--ps=3"}), digests);
  EXPECT_NEAR(NumberIn(ReadResult(cut + "/result.json"), "test_loss"),
              NumberIn(ReadResult(whole + "/result.json"), "test_loss"), 1e-4);
}

// Rules for rows that depend on the number of pushes and steps, values that are
// transferred as 16-bit and 8-bit numbers, and clipping by a norm over dense
// gradients and rows.
TEST_F(ClickTest, RowsThatComeAndGoAreTheSameOnAnyNumberOfPs) {
  ClickJob job;
  job.model =
      "deep_fm {"
      "  linear { optimizer { learning_rate: 0.1 ftrl {} } pull: BFLOAT16 }"
      "  embedding {"
      "    row_length: 4"
      "    table {"
      "      initializer { normal { stddev: 0.1 } }"
      "      row_wise: true min_count: 2 expire_after_steps: 8 push: INT8"
      "    }"
      "  }"
      "  layers { dense { units: 16 } } layers { relu {} }"
      "}";
  job.more = "clipping { global_norm: 0.5 }";
  const Digests digests = DigestsOf(job, {"--ps=1"});
  EXPECT_THAT(output_, ContainsRegex("embedding .* [1-9][0-9]* candidates"));
  EXPECT_EQ(DigestsOf(job, {"--ps=3"}), digests);
}

// Batches at the end of an epoch have fewer examples or none, and so fewer rows
// or none.
TEST_F(ClickTest, SeatsWithoutExamplesAreTheSameOnAnyNumberOfPs) {
  ClickJob job;
  job.model = kDlrm;
  job.length = "epochs: 2";
  job.batch_size = 7000;
  job.data = "short_last_batch: true";
  const std::string run_dir = Train(job, {"--ps=1"});
  EXPECT_EQ(NumberIn(ReadResult(run_dir + "/result.json"), "examples"),
            2 * kExamples);
  const Digests digests = DigestsIn(run_dir);
  EXPECT_EQ(DigestsOf(job, {"--ps=3"}), digests);
}

// The loss scale is too great at first: pushes that are not finite create no
// rows either.
TEST_F(ClickTest, OverflowsAreTheSameOnAnyNumberOfPs) {
  ClickJob job;
  job.model = kDeepFm;
  job.more =
      "precision {"
      "  float16 { loss_scale { initial: 16777216 growth_interval: 10 } }"
      "}";
  const std::string run_dir = Train(job, {"--ps=1"});
  const google::protobuf::Struct result = ReadResult(run_dir + "/result.json");
  EXPECT_GT(NumberIn(StructIn(result, "pushes"), "not_finite"), 0);
  const Digests digests = DigestsIn(run_dir);
  EXPECT_EQ(DigestsOf(job, {"--ps=3"}), digests);
}

TEST_F(ClickTest, AsynchronousPushesAreEachAcceptedOnce) {
  for (const auto& [consistency, ps] :
       {std::pair("asynchronous {}", "--ps=1"),
        {"asynchronous {}", "--ps=2"},
        {"asynchronous { pipeline_depth: 2 }", "--ps=2"},
        {"asynchronous { staleness_bound: 1 }", "--ps=1"},
        {"asynchronous { staleness_bound: 1 pipeline_depth: 2 }", "--ps=1"}}) {
    SCOPED_TRACE(absl::StrCat(consistency, " ", ps));
    ClickJob job;
    job.model = kDeepFm;
    job.consistency = consistency;
    job.length = "steps: 200";
    const google::protobuf::Struct result =
        ReadResult(Train(job, {ps, "--workers=3"}) + "/result.json");
    EXPECT_EQ(NumberIn(result, "global_step"), 200);
    EXPECT_EQ(NumberIn(result, "examples"), 200 * 100);
    const auto& pushes = StructIn(result, "pushes");
    EXPECT_EQ(NumberIn(pushes, "accepted"), 200);
    for (const char* other : {"stale", "duplicate", "fenced", "aborted"}) {
      EXPECT_EQ(NumberIn(pushes, other), 0) << other;
    }
    EXPECT_LT(NumberIn(result, "test_loss"), LossOfClickRate(*data_));
  }
}

// The bytes of a NumPy array after the header.
std::string BytesOfNpy(const std::string& path) {
  const std::string file = ReadText(path);
  if (!absl::StartsWith(file, "\x93NUMPY\x01")) {
    ADD_FAILURE() << path << " is not an array";
    return "";
  }
  const size_t header = static_cast<uint8_t>(file[8]) +
                        size_t{256} * static_cast<uint8_t>(file[9]);
  return file.substr(10 + header);
}

// An epoch creates a row for each id of the training set, in both tables.
TEST_F(ClickTest, ExportsTheRowsOfAllIdsOfTheTrainingSet) {
  std::set<uint64_t> ids;
  std::ifstream lines(TrainFile());
  int examples = 0;
  for (std::string line; std::getline(lines, line); ++examples) {
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    ASSERT_EQ(cells.size(), kFirstCategory + kCategories);
    for (int c = 0; c < kCategories; ++c) {
      ids.insert(
          IdHash(IdSeed(absl::StrCat("C", c + 1)), cells[kFirstCategory + c]));
    }
  }
  ASSERT_EQ(examples, kExamples);

  ClickJob job;
  job.model = kFactorizationMachine;
  job.length = "epochs: 1";
  const std::string run_dir = Train(job, {"--ps=2"});
  EXPECT_EQ(NumberIn(ReadResult(run_dir + "/result.json"), "examples"),
            kExamples);
  ASSERT_EQ(Run({"checkpoint", "export", run_dir + "/checkpoints",
                 absl::StrCat("--output=", folder_, "/model.npz")}),
            0)
      << output_;
  for (const auto& [table, row_length] :
       {std::pair<std::string, int>("linear", 1), {"embedding", 4}}) {
    const std::string stem = absl::StrCat(folder_, "/model.", table);
    const std::string bytes = BytesOfNpy(stem + ".ids.npy");
    std::vector<uint64_t> exported(bytes.size() / sizeof(uint64_t));
    std::memcpy(exported.data(), bytes.data(),
                exported.size() * sizeof(uint64_t));
    EXPECT_TRUE(
        std::equal(exported.begin(), exported.end(), ids.begin(), ids.end()))
        << exported.size() << " ids of " << table << ", " << ids.size()
        << " in the training set";
    EXPECT_EQ(BytesOfNpy(stem + ".values.npy").size(),
              ids.size() * row_length * sizeof(float));
  }
  EXPECT_THAT(ReadText(folder_ + "/model.npz"), HasSubstr("linear/kernel"));
  EXPECT_EQ(Run({"checkpoint", "export", run_dir + "/checkpoints",
                 absl::StrCat("--output=", folder_, "/model.onnx")}),
            1);
  EXPECT_THAT(output_, HasSubstr("the job's model has embedding tables"));
}

// Trains on libsvm data, whose ids have values: the label is 1 if the values of
// odd indices outweigh the values of even ones. Meanwhile an evaluator
// evaluates checkpoints.
TEST_F(ClickTest, LibsvmWithAnEvaluator) {
  constexpr int kLines = 1000;
  for (const auto& [file, begin] :
       {std::pair<std::string, uint32_t>("train.svm", 0),
        {"test.svm", kLines}}) {
    std::string text;
    for (uint32_t i = begin; i < begin + kLines; ++i) {
      int odd_less_even = 0;
      std::string features;
      for (uint32_t k = 0; k < 5; ++k) {
        const uint32_t bits = Philox4x32({i, k, 0, 0}, {1, 2})[0];
        const uint32_t index = 20 * k + 1 + bits % 20;
        const int halves = 1 + static_cast<int>(bits >> 16) % 5;
        odd_less_even += index % 2 == 1 ? halves : -halves;
        absl::StrAppend(&features, " ", index, ":", halves / 2.0);
      }
      absl::StrAppend(&text, odd_less_even > 0 ? "1" : "-1", features, "\n");
    }
    WriteText(absl::StrCat(folder_, "/", file), text);
  }
  const std::string job_file = folder_ + "/svm.textproto";
  WriteText(job_file, R"(
name: "svm"
model { factorization_machine { embedding { row_length: 4 } } }
data {
  train { libsvm { files: "train.svm" } }
  test { libsvm { files: "test.svm" } }
}
batch_size: 50
steps: 100
optimizer { learning_rate: 0.2 adagrad {} }
evaluation { every_steps: 40 }
checkpoints { every_steps: 20 }
seed: 1
)");
  const std::string run_dir = Train(job_file, {"--ps=2", "--evaluator"});
  const google::protobuf::Struct result = ReadResult(run_dir + "/result.json");
  EXPECT_GT(NumberIn(result, "test_accuracy"), 0.85);
  // The evaluator's speed determines which checkpoints it evaluates.
  EXPECT_THAT(ReadText(run_dir + "/evaluator-0.log"),
              ContainsRegex("step [1-9][0-9]*: test loss"));
  const std::string test_file = folder_ + "/test.svm";
  const auto evaluated = Eval(run_dir, {"--data=" + test_file});
  EXPECT_EQ(NumberIn(StructIn(evaluated, "float32"), "loss"),
            NumberIn(result, "test_loss"));
  const std::vector<double> predicted = Predict(run_dir, test_file);
  ASSERT_EQ(predicted.size(), kLines);
  EXPECT_NEAR(LossOf(predicted, test_file), NumberIn(result, "test_loss"),
              1e-6);
  const Digests digests = DigestsIn(run_dir);
  EXPECT_EQ(DigestsIn(Train(job_file, {"--ps=1"})), digests);
}

}  // namespace
}  // namespace holdfast
