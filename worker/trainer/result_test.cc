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
      R"pb(global_step: 3000
           examples: 600000
           pushes { accepted: 6000 stale: 4 duplicate: 3 fenced: 2 aborted: 1 }
           train_loss: 0.25
           training_seconds: 12
           replicas_to_aggregate: 2
           total_num_replicas: 3)pb",
      &status));
  return status;
}

std::string ReadFile(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

TEST(ResultToJsonTest, WritesEveryField) {
  proto::TrainingResult result;
  result.set_job("example");
  result.set_ps(2);
  result.set_workers(3);
  result.mutable_consistency()->set_mode("synchronous");
  result.set_seed(7);
  result.mutable_cpu()->set_blas_core("Haswell");
  result.mutable_cpu()->set_threads(1);
  result.set_test_loss(0.5);
  result.set_test_accuracy(0.875);
  result.set_digest("abc");
  AddStatus(FinishedStatus(), &result);
  const absl::StatusOr<std::string> json = ResultToJson(result);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json, R"({
 "job": "example",
 "ps": 2,
 "workers": 3,
 "consistency": {
  "mode": "synchronous",
  "replicas_to_aggregate": 2,
  "total_num_replicas": 3
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
  "aborted": 1
 },
 "digest": "abc",
 "test_loss": 0.5,
 "test_accuracy": 0.875
}
)");
}

TEST(ResultToJsonTest, LeavesOutTheTestOfAJobWithoutOne) {
  const absl::StatusOr<std::string> json =
      ResultToJson(proto::TrainingResult());
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_THAT(*json, HasSubstr("\"train_loss\": 0"));
  EXPECT_THAT(*json, Not(HasSubstr("test_loss")));
  EXPECT_THAT(*json, Not(HasSubstr("test_accuracy")));
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
