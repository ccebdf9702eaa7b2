// SPDX-License-Identifier: Apache-2.0

// A job resumes with an edited job file or script (docs/protocol/recovery.md,
// J1 to J4).
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/coordinator/events.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string JobFile(uint32_t batch_size, uint64_t steps) {
  proto::Job job;
  job.set_name("job");
  job.set_batch_size(batch_size);
  job.set_steps(steps);
  return job.SerializeAsString();
}

// The declaration of a worker with that job file.
proto::Declaration OfFile(uint64_t steps, uint32_t batch_size = 32) {
  proto::Declaration declaration = MakeDeclaration(steps);
  declaration.mutable_job()->set_job_file(JobFile(batch_size, steps));
  return declaration;
}

class CoordinatorResumeTest : public CoordinatorTest {
 protected:
  // Step 1 of 10 is on disk, and all tasks have died.
  void LeaveAtStep1(const proto::Declaration& declaration = OfFile(10)) {
    MakeWithArchive();
    StartTraining(declaration);
    OfferBoth(0);
    AckCommits();
    Ask(proto::CheckpointRequest());
    PuppetLinks::AnswerAll(links_->holds);
    FinishSave();
    Begin();
    Join(Ps(1));
  }
  // The job is done, and all tasks have left.
  void LeaveFinished() {
    MakeWithArchive();
    StartTraining(OfFile(1));
    OfferBoth(0);
    AckCommits();
    FinishSave();
    ASSERT_TRUE(archive_->journal.finished());
    Begin();
    Join(Ps(1));
  }
  // A new process, with the job file that has this digest.
  absl::Status JoinWith(const TaskId& task, const std::string& job_digest) {
    proto::RegisterRequest request = RegisterOf(task, /*nonce=*/2);
    request.set_job_digest(job_digest);
    const auto answer = Ask(request);
    if (answer.status().ok()) incarnations_[task] = answer->incarnation();
    return answer.status();
  }
  bool Restoring() const { return !links_->restores.empty(); }
  bool ToldOfChange(const std::string& text) const {
    for (const proto::Event& event : events().events()) {
      if (event.kind() == proto::Event::CHANGED &&
          absl::StrContains(event.text(), text)) {
        return true;
      }
    }
    return false;
  }
};

TEST_F(CoordinatorResumeTest, ItStandsStillUntilAWorkerComes_J1) {
  LeaveAtStep1();
  EXPECT_FALSE(Restoring());
  EXPECT_THAT(GetPlacement(0)->waiting_for(),
              HasSubstr("the declaration with which the job continues, by "
                        "/job:worker/task:0"));
  // With the same job file.
  Join(Worker(1));
  EXPECT_TRUE(Restoring());
  EXPECT_THAT(GetPlacement(0)->waiting_for(),
              testing::Not(HasSubstr("declaration")));
}

TEST_F(CoordinatorResumeTest, OneThatHasTrainedSettlesIt_J2) {
  // A job of a script, about which nothing is known before it is declared.
  LeaveAtStep1(MakeDeclaration());
  Join(Worker(1));
  EXPECT_FALSE(Restoring());
  proto::RegisterRequest survivor = RegisterOf(Worker(0));
  survivor.mutable_sender()->set_generation(1);
  EXPECT_TRUE(Ask(survivor).status().ok());
  EXPECT_TRUE(Restoring());
}

TEST_F(CoordinatorResumeTest, TheSameDeclarationSettlesIt_J3) {
  LeaveAtStep1(MakeDeclaration());
  Join(Worker(0));
  EXPECT_FALSE(Restoring());
  EXPECT_TRUE(Declare(MakeDeclaration()).status().ok());
  EXPECT_TRUE(Restoring());
  EXPECT_FALSE(ToldOfChange(""));
}

TEST_F(CoordinatorResumeTest, WhatMayChangeStandsFromThenOn_R11) {
  LeaveAtStep1();
  // In any order.
  EXPECT_TRUE(JoinWith(Worker(1), "edited").ok());
  EXPECT_FALSE(Restoring());
  EXPECT_TRUE(JoinWith(Worker(0), "edited").ok());
  EXPECT_FALSE(Restoring());
  archive_->quick = false;
  EXPECT_TRUE(Declare(OfFile(20)).status().ok());
  EXPECT_FALSE(Restoring()) << "the journal does not say so yet";
  archive_->AnswerJournal();
  ASSERT_TRUE(Restoring());
  EXPECT_EQ(links_->restores[0].request.declaration().total_steps(), 20u);
  EXPECT_EQ(archive_->journal.declaration().total_steps(), 20u);
  EXPECT_EQ(archive_->journal.job_digest(), "edited");
  EXPECT_TRUE(ToldOfChange("total_steps: 10 -> 20"));
  EXPECT_EQ(generation().value(), 2u);
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Status().total_steps(), 20u);
  EXPECT_EQ(Status().global_step(), 1u);

  // The next life finds the change in the journal.
  archive_->quick = true;
  Begin();
  Join(Ps(1));
  EXPECT_TRUE(JoinWith(Worker(1), "edited").ok());
  EXPECT_TRUE(Restoring());
}

TEST_F(CoordinatorResumeTest, WhatMayNotEndsTheStart_J3) {
  LeaveAtStep1();
  EXPECT_TRUE(JoinWith(Worker(0), "edited").ok());
  const auto waiting = GetPlacement(3000);
  const absl::Status status = Declare(OfFile(20, /*batch_size=*/64)).status();
  EXPECT_TRUE(Fails(status, kExists,
                    {"/job:worker/task:0",
                     "cannot change when a job continues: batch_size: 32 -> 64",
                     "continue with the same"}));
  // Workers that join later, or wait, are told the same.
  EXPECT_EQ(waiting.status(), status);
  EXPECT_EQ(GetPlacement(3000).status(), status);
  EXPECT_EQ(JoinWith(Worker(1), "j0b"), status);
  CoordinatorTest::Leave(Worker(0), std::string(status.message()));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("batch_size: 32 -> 64"));
  EXPECT_EQ(JoinWith(Worker(1), "edited"), status);
  EXPECT_EQ(archive_->journal.declaration().total_steps(), 10u);
  // The next start, with the original job file, resumes the job.
  Begin();
  Join(Ps(1));
  Join(Worker(0));
  EXPECT_TRUE(Restoring());
}

TEST_F(CoordinatorResumeTest, AScriptMayCorrectWhatWasRefused_J3) {
  for (const bool leaves : {false, true}) {
    SCOPED_TRACE(leaves);
    LeaveAtStep1(MakeDeclaration());
    Join(Worker(0));
    proto::Declaration wrong = MakeDeclaration();
    wrong.set_seed(wrong.seed() + 1);
    const absl::Status status = Declare(wrong).status();
    EXPECT_TRUE(Fails(status, kExists, {"seed"}));
    EXPECT_EQ(Ask(RegisterOf(Worker(1))).status(), status);
    if (leaves) {
      Leave(Worker(0));
      Join(Worker(0));
    }
    EXPECT_TRUE(Declare(MakeDeclaration()).status().ok());
    EXPECT_TRUE(Ask(RegisterOf(Worker(1))).status().ok());
    EXPECT_TRUE(Restoring());
    EXPECT_EQ(archive_->journal.declaration().seed(), wrong.seed() - 1);
  }
}

TEST_F(CoordinatorResumeTest, AllComeWithTheSameFile_J2) {
  LeaveAtStep1();
  EXPECT_TRUE(JoinWith(Worker(0), "edited").ok());
  EXPECT_TRUE(Fails(
      JoinWith(Worker(1), "j0b"), kNotReady,
      {"/job:worker/task:1 has job file j0b", "/job:worker/task:0 has edited",
       "start all workers with the same"}));
}

TEST_F(CoordinatorResumeTest, OnceItIsSettledNothingChanges_J2) {
  LeaveAtStep1();
  Join(Worker(1));
  EXPECT_TRUE(Fails(JoinWith(Worker(0), "edited"), kNotReady,
                    {"job file edited", "the job of this checkpoint directory",
                     "continue with the same"}));
}

TEST_F(CoordinatorResumeTest, AScriptThatChangesARunningJobIsRefusedAlone_J3) {
  LeaveAtStep1(MakeDeclaration());
  proto::RegisterRequest survivor = RegisterOf(Worker(1));
  survivor.mutable_sender()->set_generation(1);
  EXPECT_TRUE(Ask(survivor).status().ok());
  Join(Worker(0));
  EXPECT_TRUE(Fails(Declare(MakeDeclaration(20)).status(), kExists,
                    {"total_steps: 10 -> 20", "continue with the same"}));
  Leave(Worker(0), "it is refused");
  EXPECT_EQ(state().phase(), proto::STARTING);
}

TEST_F(CoordinatorResumeTest, AnotherVersionMayDeclareMoreOfTheSameFile_J2) {
  LeaveAtStep1();
  Join(Worker(1));
  Join(Worker(0));
  proto::Declaration more = OfFile(10);
  more.mutable_evaluation()->set_every_steps(5);
  EXPECT_TRUE(Declare(more).status().ok());
  EXPECT_FALSE(archive_->journal.declaration().has_evaluation());
}

TEST_F(CoordinatorResumeTest, WithoutAKeptFileOnlyTheSameWillDo_J3) {
  LeaveAtStep1(MakeDeclaration());
  EXPECT_TRUE(JoinWith(Worker(0), "edited").ok());
  EXPECT_TRUE(Fails(Declare(OfFile(20)).status(), kExists,
                    {"which is not in the checkpoint"}));
}

TEST_F(CoordinatorResumeTest, OtherWorkersWhereExamplesAreByTicket_J3) {
  proto::Declaration two = Asynchronous(10);
  two.mutable_job()->set_job_file(JobFile(32, 10));
  MakeWithArchive();
  StartTraining(two);
  options_.num_workers = 3;
  Begin();
  Join(Ps(1));
  // Its file is the same, but not the declaration made from it.
  Join(Worker(2));
  EXPECT_FALSE(Restoring());
  Join(Worker(0));
  EXPECT_TRUE(Declare(two).status().ok());
  EXPECT_TRUE(Restoring());
  EXPECT_EQ(archive_->journal.declaration().num_workers(), 3u);
  EXPECT_TRUE(ToldOfChange("num_workers: 2 -> 3"));
}

// ---- Agreed facts ----

proto::Declaration WithFacts(
    const std::map<std::string, std::string>& facts,
    const proto::Declaration& declaration = MakeDeclaration()) {
  proto::Declaration with = declaration;
  with.mutable_agreed()->insert(facts.begin(), facts.end());
  return with;
}

TEST_F(CoordinatorResumeTest, FactsOutliveTheCoordinator_R12) {
  LeaveAtStep1(WithFacts({{"length", "60000"}}));
  EXPECT_EQ(archive_->journal.declaration().agreed().at("length"), "60000");
  Join(Worker(0));
  EXPECT_TRUE(
      Declare(WithFacts({{"length", "60000"}, {"seed", "7"}})).status().ok());
  ASSERT_TRUE(Restoring());
  EXPECT_EQ(links_->restores[0].request.declaration().agreed_size(), 0)
      << "shards have no use for them";
  EXPECT_FALSE(ToldOfChange(""));
  EXPECT_EQ(archive_->journal.declaration().agreed().at("seed"), "7");
  PuppetLinks::AnswerAll(links_->restores);
  // What a worker adds later is in the journal, too.
  Join(Worker(1));
  EXPECT_TRUE(Declare(WithFacts({{"batch", "32"}}), Worker(1)).status().ok());
  EXPECT_EQ(archive_->journal.declaration().agreed_size(), 3);
}

TEST_F(CoordinatorResumeTest, OtherFactsEndTheStart_R12) {
  LeaveAtStep1(WithFacts({{"length", "60000"}}));
  Join(Worker(0));
  const auto waiting = GetPlacement(3000);
  const absl::Status status =
      Declare(WithFacts({{"length", "50000"}})).status();
  EXPECT_TRUE(Fails(status, kExists,
                    {"/job:worker/task:0 has length 50000, the job has 60000: ",
                     "; or train in another checkpoint directory"}));
  EXPECT_EQ(waiting.status(), status) << "the others wait for the chief";
  EXPECT_FALSE(Restoring());
  // The next start, with the same data, resumes the job.
  Begin();
  Join(Ps(1));
  Join(Worker(0));
  EXPECT_TRUE(Declare(WithFacts({{"length", "60000"}})).status().ok());
  EXPECT_TRUE(Restoring());
}

TEST_F(CoordinatorResumeTest, FactsStayWhenOtherThingsChange_R12) {
  LeaveAtStep1(WithFacts({{"length", "60000"}}));
  Join(Worker(0));
  EXPECT_TRUE(
      Declare(WithFacts({{"seed", "7"}}, MakeDeclaration(20))).status().ok());
  EXPECT_TRUE(ToldOfChange("total_steps: 10 -> 20"));
  EXPECT_EQ(archive_->journal.declaration().total_steps(), 20u);
  EXPECT_EQ(archive_->journal.declaration().agreed().at("length"), "60000");
  EXPECT_EQ(archive_->journal.declaration().agreed().at("seed"), "7");
}

TEST_F(CoordinatorResumeTest, OtherFactsInARunningJobAreRefusedAlone_R12) {
  LeaveAtStep1(WithFacts({{"length", "60000"}}));
  proto::RegisterRequest survivor = RegisterOf(Worker(0));
  survivor.mutable_sender()->set_generation(1);
  EXPECT_TRUE(Ask(survivor).status().ok());
  Join(Worker(1));
  EXPECT_TRUE(Fails(
      Declare(WithFacts({{"length", "50000"}}), Worker(1)).status(), kExists,
      {"/job:worker/task:1 has length 50000, the job has 60000: "}));
  Leave(Worker(1), "it is refused");
  EXPECT_EQ(state().phase(), proto::STARTING);
}

// ---- Finished jobs ----

TEST_F(CoordinatorResumeTest, AFinishedJobIsDoneForTheSameFile_J3) {
  LeaveFinished();
  EXPECT_EQ(state().phase(), proto::STARTING);
  EXPECT_THAT(GetPlacement(0)->waiting_for(),
              HasSubstr("a worker of the finished job"));
  Join(Worker(1));
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_THAT(links_->restores, IsEmpty());
  EXPECT_TRUE(archive_->journal.finished());
}

TEST_F(CoordinatorResumeTest, AFinishedJobGoesOnWithMoreSteps_J3) {
  LeaveFinished();
  EXPECT_TRUE(JoinWith(Worker(0), "edited").ok());
  EXPECT_TRUE(JoinWith(Worker(1), "edited").ok());
  EXPECT_TRUE(Declare(OfFile(2)).status().ok());
  EXPECT_FALSE(archive_->journal.finished());
  ASSERT_TRUE(Restoring());
  EXPECT_EQ(generation().value(), 3u);
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(Status().global_step(), 1u);
  OfferBoth(1);
  AckCommits();
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(archive_->journal.finished());
  EXPECT_THAT(archive_->journal.checkpoints(), SizeIs(2));
}

TEST_F(CoordinatorResumeTest, AFinishedJobGoesOnWithFewerStepsForNobody_J3) {
  LeaveFinished();
  EXPECT_TRUE(JoinWith(Worker(0), "edited").ok());
  proto::Declaration none = OfFile(1);
  none.set_total_steps(0);
  EXPECT_TRUE(Fails(Declare(none).status(), kExists,
                    {"total_steps is 0, but the job has made 1 steps"}));
  EXPECT_TRUE(archive_->journal.finished());
}

TEST_F(CoordinatorResumeTest, WhenNobodyComesAFinishedJobIsDone_J3) {
  LeaveFinished();
  Pass(absl::Seconds(301), {Ps(1)});
  EXPECT_EQ(state().phase(), proto::DONE);
}

TEST_F(CoordinatorResumeTest, AFinishedJobThatIsToStopIsLeftAsItIs_E2) {
  LeaveFinished();
  EXPECT_TRUE(Ask(&Coordinator::Stop, proto::StopRequest()).came());
  EXPECT_EQ(state().phase(), proto::STOPPED);
  EXPECT_THAT(state().reason(), HasSubstr("at step 1 of 1"));
  EXPECT_TRUE(archive_->journal.finished());
}

}  // namespace
}  // namespace holdfast
