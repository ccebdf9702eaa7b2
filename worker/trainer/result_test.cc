// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/result.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

proto::GetStatusResponse FinishedStatus() {
  proto::GetStatusResponse status;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(generation: 3
           global_step: 3000
           examples: 600000
           pushes {
             accepted: 6000
             stale: 4
             duplicate: 3
             fenced: 2
             aborted: 1
             not_finite: 5
           }
           train_loss: 0.25
           training_seconds: 12
           workers {
             worker { job: "chief" }
             pushes: 4000
             examples: 400000
           }
           workers {
             worker { job: "worker" index: 1 }
             pushes: 2000
             examples: 200000
           }
           tasks { task { job: "worker" index: 0 } }
           tasks {
             task { job: "worker" index: 1 }
             input_wait { recent: 0.5 overall: 0.25 }
           })pb",
      &status));
  return status;
}

proto::Declaration Declaration(const std::string& text) {
  proto::Declaration declaration;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(text, &declaration));
  return declaration;
}

std::string ReadFile(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

TEST(ResultToJsonTest, WritesEveryField) {
  proto::TrainingResult result;
  result.set_job("example");
  result.set_version("1.2.3");
  result.set_ps(2);
  result.set_workers(3);
  result.set_seed(7);
  result.mutable_cpu()->set_blas_core("Haswell");
  result.mutable_cpu()->set_threads(1);
  result.set_test_loss(0.5);
  result.set_test_accuracy(0.875);
  result.set_digest("abc");
  AddDeclaration(
      Declaration(
          R"pb(consistency {
                 synchronous { replicas_to_aggregate: 2 total_num_replicas: 3 }
               }
               examples: BY_STEP)pb"),
      &result);
  AddStatus(FinishedStatus(), &result);
  const absl::StatusOr<std::string> json = ResultToJson(result);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json, R"({
 "job": "example",
 "ps": 2,
 "workers": 3,
 "consistency": {
  "mode": "synchronous",
  "examples": "by step",
  "replicas_to_aggregate": 2,
  "total_num_replicas": 3,
  "aggregation": "MEAN"
 },
 "seed": 7,
 "cpu": {
  "blas_core": "Haswell",
  "threads": 1
 },
 "global_step": 3000,
 "examples": 600000,
 "train_loss": 0.25,
 "wall_seconds": 12,
 "steps_per_second": 250,
 "examples_per_second": 50000,
 "pushes": {
  "accepted": 6000,
  "stale": 4,
  "duplicate": 3,
  "fenced": 2,
  "aborted": 1,
  "not_finite": 5
 },
 "digest": "abc",
 "by_worker": [
  {
   "task": "/job:chief/task:0",
   "pushes": 4000,
   "examples": 400000
  },
  {
   "task": "/job:worker/task:1",
   "pushes": 2000,
   "examples": 200000,
   "input_wait": 0.25
  }
 ],
 "recoveries": 2,
 "version": "1.2.3",
 "test_by_class": [],
 "test_loss": 0.5,
 "test_accuracy": 0.875
}
)");
}

TEST(AddEvaluationTest, AddsWhatThereIs) {
  proto::TrainingResult result;
  EvaluationScores scores;
  scores.result.set_loss(0.5);
  AddEvaluation(scores, &result);
  EXPECT_EQ(result.test_loss(), 0.5);
  EXPECT_FALSE(result.has_test_accuracy() ||
               result.has_test_mean_absolute_error() ||
               result.has_test_mean_squared_error() ||
               result.has_test_top_k_accuracy() || result.has_test_auc() ||
               result.has_test_calibration());
  scores.result.set_accuracy(0.25);
  scores.result.set_mean_absolute_error(2);
  scores.result.set_mean_squared_error(3);
  scores.result.set_top_k_accuracy(0.75);
  scores.result.set_auc(0.875);
  scores.result.set_calibration(1.125);
  scores.by_class.emplace_back().add_predicted(7);
  scores.by_class[0].set_recall(1);
  AddEvaluation(scores, &result);
  EXPECT_EQ(result.test_accuracy(), 0.25);
  EXPECT_EQ(result.test_mean_absolute_error(), 2);
  EXPECT_EQ(result.test_mean_squared_error(), 3);
  EXPECT_EQ(result.test_top_k_accuracy(), 0.75);
  EXPECT_EQ(result.test_auc(), 0.875);
  EXPECT_EQ(result.test_calibration(), 1.125);
  const auto json = ResultToJson(result);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_THAT(*json, HasSubstr(R"( "test_by_class": [
  {
   "predicted": [
    7
   ],
   "recall": 1
  }
 ])"));
}

TEST(ResultToJsonTest, LeavesOutTheTestOfAJobWithoutOne) {
  const absl::StatusOr<std::string> json =
      ResultToJson(proto::TrainingResult());
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_THAT(*json, HasSubstr("\"train_loss\": 0"));
  EXPECT_THAT(*json, Not(HasSubstr("test_loss")));
  EXPECT_THAT(*json, Not(HasSubstr("test_accuracy")));
}

TEST(AddStatusTest, TellsTheStalenessOfAnAsynchronousJob) {
  proto::GetStatusResponse status = FinishedStatus();
  ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(
      R"pb(staleness { staleness: 0 pushes: 2 }
           staleness { staleness: 1 pushes: 5 }
           staleness { staleness: 4 pushes: 1 })pb",
      &status));
  proto::TrainingResult result;
  AddStatus(status, &result);
  // (0 x 2 + 1 x 5 + 4 x 1) / 8 = 9 / 8.
  EXPECT_EQ(result.staleness().mean(), 1.125);
  EXPECT_EQ(result.staleness().max(), 4);
  ASSERT_EQ(result.staleness().counts_size(), 3);
  EXPECT_EQ(result.staleness().counts(2).staleness(), 4);
  EXPECT_EQ(result.staleness().counts(1).pushes(), 5);

  proto::TrainingResult synchronous;
  AddStatus(FinishedStatus(), &synchronous);
  EXPECT_FALSE(synchronous.has_staleness());
}

TEST(AddDeclarationTest, TellsWhatTheModeHas) {
  proto::TrainingResult result;
  AddDeclaration(
      Declaration("consistency { asynchronous { pipeline_depth: 2 } } "
                  "examples: BY_TICKET"),
      &result);
  EXPECT_EQ(result.consistency().mode(), "asynchronous");
  EXPECT_EQ(result.consistency().examples(), "by ticket");
  EXPECT_EQ(result.consistency().pipeline_depth(), 2);
  EXPECT_FALSE(result.consistency().has_staleness_bound());
  EXPECT_FALSE(result.consistency().has_replicas_to_aggregate());
  EXPECT_FALSE(result.consistency().has_total_num_replicas());

  result.Clear();
  AddDeclaration(Declaration("consistency { asynchronous { pipeline_depth: 1 "
                             "staleness_bound: 0 } }"),
                 &result);
  EXPECT_TRUE(result.consistency().has_staleness_bound());
  EXPECT_EQ(result.consistency().staleness_bound(), 0);

  result.Clear();
  AddDeclaration(Declaration("consistency { synchronous { "
                             "replicas_to_aggregate: 2 total_num_replicas: 1 "
                             "} } examples: BY_TICKET"),
                 &result);
  EXPECT_EQ(result.consistency().mode(), "synchronous");
  EXPECT_EQ(result.consistency().examples(), "by ticket");
  EXPECT_FALSE(result.consistency().has_pipeline_depth());
}

TEST(WriteFileAtomicallyTest, ReplacesTheFileAndLeavesNothingElse) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/result.json");
  ASSERT_TRUE(WriteFileAtomically(path, "first, and longer").ok());
  ASSERT_TRUE(WriteFileAtomically(path, "second").ok());
  EXPECT_EQ(ReadFile(path), "second");
  EXPECT_NE(access(absl::StrCat(path, ".tmp").c_str(), F_OK), 0);
}

TEST(WriteFileAtomicallyTest, NamesTheFileThatItCannotWrite) {
  EXPECT_THAT(WriteFileAtomically("/no/such/folder/result.json", "").message(),
              HasSubstr("/no/such/folder/result.json"));
  // A folder cannot be replaced by a file.
  EXPECT_THAT(WriteFileAtomically(::testing::TempDir(), "").ToString(),
              HasSubstr(::testing::TempDir()));
}

}  // namespace
}  // namespace holdfast
