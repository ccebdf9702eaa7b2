// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/job_declaration.h"

#include <string>

#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
const TaskId kWorker0 = {kWorkerJob, 0};
const TaskId kWorker1 = {kWorkerJob, 1};

proto::Declaration Make() {
  proto::Declaration declaration;
  proto::Variable& variable = *declaration.add_variables();
  variable.set_name("w");
  variable.add_shape(4);
  variable.set_dtype(proto::FLOAT32);
  declaration.add_optimizers()->mutable_sgd();
  declaration.mutable_consistency()->mutable_synchronous();
  declaration.set_total_steps(3);
  return declaration;
}

proto::RegisterRequest With(const std::string& job, const std::string& data) {
  proto::RegisterRequest request;
  request.set_job_digest(job);
  request.set_data_digest(data);
  return request;
}

TEST(JobDeclarationTest, NothingIsKnownBeforehand) {
  const JobDeclaration declared(1, 2, false);
  EXPECT_FALSE(declared.has_value());
  EXPECT_FALSE(declared.asynchronous());
  EXPECT_FALSE(declared.continues());
}

TEST(JobDeclarationTest, DefaultsAreThoseOfTheCluster) {
  const proto::Declaration complete =
      *JobDeclaration(1, 3, /*has_archive=*/true).Complete(Make());
  EXPECT_EQ(complete.consistency().synchronous().replicas_to_aggregate(), 3u);
  EXPECT_EQ(complete.num_workers(), 3u);
  EXPECT_TRUE(complete.has_checkpoints());
  EXPECT_FALSE(
      JobDeclaration(1, 3, false).Complete(complete)->has_checkpoints());
}

TEST(JobDeclarationTest, VariablesAreChecked) {
  const JobDeclaration declared(1, 1, false);
  proto::Declaration twice = Make();
  *twice.add_variables() = twice.variables(0);
  EXPECT_TRUE(Fails(declared.Complete(twice).status(), kInvalid,
                    {"\"w\": declared twice"}));
  proto::Declaration optimizer = Make();
  optimizer.mutable_variables(0)->set_optimizer(1);
  EXPECT_TRUE(Fails(declared.Complete(optimizer).status(), kInvalid,
                    {"names optimizer 1, but there are 1, numbered from 0"}));
}

TEST(JobDeclarationTest, TablesNeedNoVariables) {
  proto::Declaration alone = Make();
  alone.clear_variables();
  proto::EmbeddingTable& table = *alone.add_tables();
  table.set_name("items");
  table.set_row_length(2);
  table.set_max_rows_per_push(4);
  table.mutable_initializer()->mutable_zeros();

  JobDeclaration first(2, 1, /*has_archive=*/true);
  ASSERT_TRUE(first.CheckDigests(kWorker0, With("j", "d"), false).ok());
  const auto complete = first.Complete(alone);
  ASSERT_TRUE(complete.ok()) << complete.status();
  ASSERT_EQ(first.Set(*complete), absl::OkStatus());
  EXPECT_TRUE(first.slices().empty());
  proto::Journal journal;
  first.AddTo(&journal);

  JobDeclaration second(3, 1, /*has_archive=*/true);
  ASSERT_EQ(second.TakeUp(journal), absl::OkStatus());
  const auto changes = second.Resume(*second.Complete(alone), {2, true});
  ASSERT_TRUE(changes.ok()) << changes.status();
  EXPECT_TRUE(changes->empty());
  EXPECT_TRUE(second.settled());
  EXPECT_EQ(second->tables_size(), 1);
}

TEST(JobDeclarationTest, TheFirstFieldThatDiffersIsNamed) {
  proto::Declaration other = Make();
  other.set_total_steps(4);
  EXPECT_TRUE(CheckSameDeclaration(kWorker1, Make(), Make()).ok());
  EXPECT_TRUE(Fails(CheckSameDeclaration(kWorker1, Make(), other),
                    absl::StatusCode::kAlreadyExists,
                    {"/job:worker/task:1", "total_steps: 3 -> 4"}));
}

TEST(JobDeclarationTest, TheFirstWorkersFilesAreTheJobs) {
  JobDeclaration declared(1, 2, true);
  EXPECT_TRUE(declared.CheckDigests(kWorker0, With("j", "d"), false).ok());
  EXPECT_TRUE(declared.CheckDigests(kWorker1, With("j", "d"), false).ok());
  EXPECT_TRUE(Fails(declared.CheckDigests(kWorker1, With("j", "x"), false),
                    absl::StatusCode::kFailedPrecondition,
                    {"data x", "/job:worker/task:0 has d"}));
}

TEST(JobDeclarationTest, GoesOnAsItsJournalSays) {
  JobDeclaration first(1, 2, true);
  ASSERT_TRUE(first.CheckDigests(kWorker0, With("j", "d"), false).ok());
  ASSERT_TRUE(first.Set(*first.Complete(Make())).ok());
  proto::Journal journal;
  first.AddTo(&journal);

  JobDeclaration second(1, 2, true);
  ASSERT_TRUE(second.TakeUp(journal).ok());
  EXPECT_EQ(second->total_steps(), 3u);
  EXPECT_FALSE(second.settled());
  second.Settle();
  EXPECT_TRUE(Fails(second.CheckDigests(kWorker0, With("x", "d"), true),
                    absl::StatusCode::kFailedPrecondition,
                    {"job file x", "the job of this checkpoint directory"}));
}

TEST(JobDeclarationTest, FactsAreAddedAndKept_R12) {
  JobDeclaration first(1, 2, true);
  ASSERT_TRUE(first.CheckDigests(kWorker0, With("j", "d"), false).ok());
  proto::Declaration declaration = Make();
  (*declaration.mutable_agreed())["length"] = "60000";
  ASSERT_TRUE(first.Set(*first.Complete(declaration)).ok());
  EXPECT_FALSE(*first.Agree(declaration.agreed())) << "nothing to write";
  AgreedFacts more;
  more["seed"] = "7";
  EXPECT_TRUE(*first.Agree(more));
  EXPECT_FALSE(*first.Agree(more));
  EXPECT_TRUE(
      CheckSameDeclaration(kWorker1, *first, *first.Complete(Make())).ok());
  proto::Journal journal;
  first.AddTo(&journal);

  JobDeclaration second(1, 2, true);
  ASSERT_TRUE(second.TakeUp(journal).ok());
  const auto changes = second.Resume(*second.Complete(Make()), {0, true});
  ASSERT_TRUE(changes.ok()) << changes.status();
  EXPECT_TRUE(changes->empty());
  EXPECT_EQ(second->agreed_size(), 2);
}

// With the declaration, each of whose names its slices repeat, an answer that
// says where the variables are has 15 MiB.
TEST(JobDeclarationTest, FactsAreNotMoreThanAnAnswerHolds_R12) {
  JobDeclaration declared(1, 1, true);
  proto::Declaration declaration = Make();
  declaration.mutable_variables(0)->set_name(
      std::string((15 << 19) - 100, 'w'));
  ASSERT_TRUE(declared.Set(*declared.Complete(declaration)).ok());
  AgreedFacts facts;
  facts["a"] = "1";
  EXPECT_TRUE(*declared.Agree(facts));
  facts["b"] = std::string(256, '2');
  EXPECT_TRUE(Fails(declared.Agree(facts).status(), kInvalid, {}));
  EXPECT_EQ(declared->agreed_size(), 1);
}

TEST(JobDeclarationTest, ShortensBetweenCharacters) {
  EXPECT_EQ(Shorten("abc", 3), "abc");
  EXPECT_EQ(Shorten("abcd", 3), "abc...");
  EXPECT_EQ(Shorten("ab\xc3\xa4", 3), "ab...");
}

}  // namespace
}  // namespace holdfast
