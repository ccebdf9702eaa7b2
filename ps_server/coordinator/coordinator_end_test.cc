// SPDX-License-Identifier: Apache-2.0

// The ways in which a job ends, and which tasks are told.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// ---- Leave and the end ----

TEST_F(CoordinatorTest, WhereNobodyIsWaitedForWhoLeavesEndsTheJob) {
  recovery_timeout_ = absl::ZeroDuration();
  const struct {
    const char* what;
    TaskId task;
    std::string error;
    std::string reason;
  } kCases[] = {
      {"with an error", Worker(1), "out of memory",
       "/job:worker/task:1 (host-of-worker1:77) left before the end: out of "
       "memory"},
      {"without", Worker(1), "",
       "/job:worker/task:1 (host-of-worker1:77) left before the end"},
      {"a ps", Ps(1), "was told to stop",
       "/job:ps/task:1 (host-of-ps1:77) left before the end: was told to stop"},
      {"with lines, and what terminals obey", Worker(1), "two\nlines\a\xe9",
       "/job:worker/task:1 (host-of-worker1:77) left before the end: two "
       "lines??"},
      {"with a long error", Ps(1), std::string(1 << 20, 'x'),
       "/job:ps/task:1 (host-of-ps1:77) left before the end: " +
           std::string(4000 - 53, 'x') + "..."},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    Make();
    StartTraining();
    const auto parked = Offer(Worker(0), 0, 0, 1);
    const auto answer = Leave(c.task, c.error);
    EXPECT_EQ(answer->state().phase(), proto::FAILED);
    EXPECT_EQ(state().reason(), c.reason);
    EXPECT_EQ(parked->verdict(), proto::ABORTED);
    EXPECT_EQ(parked->state().reason(), c.reason);
    // The first reason stands.
    Leave(Worker(0), "me too");
    EXPECT_EQ(state().reason(), c.reason);
  }
}

TEST_F(CoordinatorTest,
       WhoHasSeenTheLastVersionMayLeaveBeforeItIsAcknowledged) {
  StartTraining(MakeDeclaration(1));
  OfferBoth(0);
  PuppetLinks::Answer(links_->commits, 0);
  EXPECT_EQ(Leave(Worker(0))->state().phase(), proto::TRAINING);
  EXPECT_EQ(Leave(Worker(1))->state().phase(), proto::TRAINING);
  EXPECT_THAT(links_->ends, IsEmpty());
  PuppetLinks::Answer(links_->commits, 1);
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
}

TEST_F(CoordinatorTest, APsMayNotLeaveBeforeTheLastCommitHolds) {
  StartTraining(MakeDeclaration(1));
  OfferBoth(0);
  Leave(Ps(1));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("/job:ps/task:1"));
}

TEST_F(CoordinatorTest, AnErrorEndsTheJobEvenWhenAllStepsAreFixed) {
  StartTraining(MakeDeclaration(1));
  OfferBoth(0);
  Leave(Worker(1), "cannot write result.json");
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("cannot write result.json"));
}

TEST_F(CoordinatorTest, AfterTheLastStepOffersAreStale) {
  StartTraining(MakeDeclaration(1));
  OfferBoth(0);
  EXPECT_EQ(Offer(Worker(0), 1, 0, 2)->verdict(), proto::STALE);
  AckCommits();
  const auto answer = Offer(Worker(0), 1, 0, 3);
  EXPECT_EQ(answer->verdict(), proto::STALE);
  EXPECT_EQ(answer->state().phase(), proto::DONE);
  EXPECT_EQ(Offer(Worker(0), 0, 0, 1)->verdict(), proto::ACCEPTED);
  Offer(Worker(1), 1, 1, 2);
  EXPECT_THAT(links_->commits, IsEmpty()) << "no step beyond the last";
}

TEST_F(CoordinatorTest, TheShardsAreEndedWhenTheWorkersHaveLeft) {
  TrainToTheEnd();
  EXPECT_FALSE(finished());
  EXPECT_EQ(Renew(Worker(1))->state().phase(), proto::DONE);
  EXPECT_EQ(Leave(Worker(0))->state().phase(), proto::DONE);
  Pass(absl::Seconds(30), AllBut(Worker(0)));
  EXPECT_THAT(links_->ends, IsEmpty()) << "worker 1 may still be reading";
  EXPECT_FALSE(finished());
  EXPECT_TRUE(GetPlacement(0)->ready());

  Leave(Worker(1), "an error after the end is none of the job's");
  EXPECT_EQ(state().phase(), proto::DONE);
  ASSERT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
  for (const auto& sent : links_->ends) {
    EXPECT_EQ(sent.request.sender().task().job(), kPsJob);
    EXPECT_EQ(sent.request.sender().generation(), 1u);
    EXPECT_EQ(sent.request.state().phase(), proto::DONE);
  }
  // A task that joins finds no variables any more.
  const auto placement = GetPlacement(30000);
  ASSERT_TRUE(placement.came());
  EXPECT_FALSE(placement->ready());
  EXPECT_EQ(placement->state().phase(), proto::DONE);
  PuppetLinks::Answer(links_->ends, 1);
  EXPECT_FALSE(finished()) << "this ps' own shard is not told";
  PuppetLinks::Answer(links_->ends, 0);
  EXPECT_TRUE(finished());
}

// The worker has everything that it needs, and would keep the ps running for
// ever.
TEST_F(CoordinatorTest, AWorkerThatStaysAfterTheEndIsNotWaitedForForever) {
  TrainToTheEnd();
  Leave(Worker(0));
  Pass(absl::Seconds(99), AllBut(Worker(0)));
  EXPECT_THAT(links_->ends, IsEmpty());
  EXPECT_THAT(Status().waiting_for(), HasSubstr("/job:worker/task:1"));
  EXPECT_THAT(Status().waiting_for(), Not(HasSubstr("/job:worker/task:0")));
  Pass(absl::Seconds(2), AllBut(Worker(0)));
  ASSERT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
  EXPECT_EQ(state().phase(), proto::DONE);
  AckEnds();
  EXPECT_TRUE(finished());
}

// A short job can be done before its last worker has started, which must learn
// of it from this coordinator.
TEST_F(CoordinatorTest, AWorkerThatHasNotJoinedIsWaitedForWhileItMay) {
  for (const bool it_comes : {true, false}) {
    SCOPED_TRACE(it_comes);
    Make(1, 2);
    Join(Worker(0));
    Declare(WithMode(1, 2, /*total_steps=*/1));
    PuppetLinks::AnswerAll(links_->restores);
    Offer(Worker(0), 0, 0, 1);
    AckCommits();
    ASSERT_EQ(state().phase(), proto::DONE);
    Leave(Worker(0));
    Pass(absl::Seconds(60), {});
    EXPECT_THAT(links_->ends, IsEmpty());
    EXPECT_EQ(Status().waiting_for(),
              "the departure of /job:worker/task:1 (not joined)");
    if (it_comes) {
      Join(Worker(1));
      EXPECT_EQ(Renew(Worker(1))->state().phase(), proto::DONE);
      Leave(Worker(1));
    } else {
      // For as long as the worker may take to start.
      Pass(absl::Milliseconds(250), {});
    }
    EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0));
  }
}

// ---- Who writes the result ----

// A job of one step with `workers` workers, which continues without lost ones.
class ReporterTest : public CoordinatorTest {
 protected:
  void StartContinuing(uint32_t workers = 3) {
    Make(1, workers);
    proto::Declaration declaration = WithMode(workers, workers, 1);
    declaration.mutable_lost_workers()->set_policy(
        proto::LostWorkers::CONTINUE);
    StartTraining(declaration);
  }
  void LeaveAndFence(const TaskId& worker) {
    Leave(worker);
    PuppetLinks::AnswerAll(links_->fences);
    PuppetLinks::AnswerAll(links_->resolves);
  }
  void FinishBy(const std::vector<uint32_t>& workers) {
    for (const uint32_t w : workers) Offer(Worker(w), 0, w, 1);
    AckCommits();
    ASSERT_EQ(state().phase(), proto::DONE);
  }
  std::string Reporter() {
    EXPECT_EQ(Status().state().SerializeAsString(),
              state().SerializeAsString());
    return TaskId{state().reporter().job(), state().reporter().index()}
        .ToString();
  }
};

TEST_F(ReporterTest, TheChiefAsLongAsItLives) {
  StartContinuing();
  EXPECT_FALSE(state().has_reporter());
  LeaveAndFence(Worker(1));
  FinishBy({0, 2});
  EXPECT_EQ(Reporter(), "/job:worker/task:0");
  EXPECT_EQ(Renew(Worker(2))->state().reporter().index(), 0u);
}

TEST_F(ReporterTest, AnotherInPlaceOfALostChief) {
  StartContinuing();
  LeaveAndFence(Worker(0));
  FinishBy({1, 2});
  EXPECT_EQ(Reporter(), "/job:worker/task:1");
  Leave(Worker(2));
  EXPECT_THAT(links_->ends, IsEmpty()) << "the reporter evaluates";
  Leave(Worker(1));
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0));
}

// If lost workers are waited for, so is the chief; no other worker has stayed
// to do its work.
TEST_F(ReporterTest, AChiefThatIsWaitedForReports) {
  for (const bool it_comes : {true, false}) {
    SCOPED_TRACE(it_comes);
    TrainToTheEnd();
    EXPECT_EQ(Reporter(), "/job:worker/task:0");
    Leave(Worker(1));
    // It has heard of the end, and died with the evaluation.
    Renew(Worker(0));
    Pass(kLease, {Ps(1)});
    Pass(recovery_timeout_ / 10, {Ps(1)});
    EXPECT_THAT(links_->ends, IsEmpty());
    if (it_comes) {
      Join(Worker(0), 2);
      EXPECT_EQ(Renew(Worker(0))->state().reporter().index(), 0u);
      Leave(Worker(0));
    } else {
      Pass(recovery_timeout_, {Ps(1)});
    }
    EXPECT_THAT(links_->ends, Not(IsEmpty()));
    Make();
  }
}

// The others have left by then, but a newcomer can do it.
TEST_F(ReporterTest, WhoeverComesReplacesALostReporter) {
  StartContinuing();
  LeaveAndFence(Worker(0));
  FinishBy({1, 2});
  Leave(Worker(2));
  Pass(kLease, {});
  EXPECT_THAT(links_->ends, IsEmpty());
  EXPECT_THAT(Status().waiting_for(), HasSubstr("/job:worker/task:1"));
  Join(Worker(0), 2);
  EXPECT_EQ(Reporter(), "/job:worker/task:0");
  Leave(Worker(0));
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0));
}

TEST_F(ReporterTest, WhoComesAfterTheResultIsWrittenDoesNotReport) {
  StartContinuing();
  FinishBy({0, 1, 2});
  Leave(Worker(0));
  Leave(Worker(2));
  Join(Worker(2), 2);
  EXPECT_EQ(Reporter(), "/job:worker/task:0");
}

// The first Register of a process arrives again after the process has left.
TEST_F(CoordinatorTest, ALateRegisterRevivesNobody) {
  TrainToTheEnd();
  Leave(Worker(0));
  EXPECT_EQ(Register(Worker(0))->incarnation(), 1u);
  Leave(Worker(1));
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1))
      << "nobody is waited for";
}

TEST_F(CoordinatorTest, LeavingAgainIsFine) {
  TrainToTheEnd();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Leave(Worker(0))->state().phase(), proto::DONE);
  }
  EXPECT_THAT(links_->ends, IsEmpty());
}

TEST_F(CoordinatorTest, AWorkerLostAfterTheEndIsNotWaitedForForever) {
  TrainToTheEnd();
  Leave(Worker(0));  // the reporter
  Pass(kLease, {Ps(1)});
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
}

TEST_F(CoordinatorTest, EndIsSentAgainUntilItHolds) {
  TrainToTheEnd();
  Leave(Worker(0));
  Leave(Worker(1));
  PuppetLinks::Answer(links_->ends, 1, absl::UnavailableError("lost"));
  PuppetLinks::Answer(links_->ends, 0);
  EXPECT_FALSE(finished());
  Pass(absl::Milliseconds(250), {Ps(1)});
  ASSERT_THAT(PuppetLinks::To(links_->ends), ElementsAre(1));
  Pass(kResendAfter, {Ps(1)});
  ASSERT_THAT(PuppetLinks::To(links_->ends), ElementsAre(1, 1));
  EXPECT_FALSE(finished());
  PuppetLinks::Answer(links_->ends, 1);
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorTest, AShardThatRefusesTheEndHasHeardOfIt) {
  TrainToTheEnd();
  Leave(Worker(0));
  Leave(Worker(1));
  PuppetLinks::Answer(links_->ends, 0);
  PuppetLinks::Answer(links_->ends, 1, absl::AbortedError("another job's"));
  EXPECT_TRUE(finished());
  EXPECT_EQ(state().phase(), proto::DONE);
}

TEST_F(CoordinatorTest, AShardThatIsGoneIsNotWaitedFor) {
  TrainToTheEnd();
  Leave(Worker(0));
  Leave(Worker(1));
  PuppetLinks::Answer(links_->ends, 0);
  EXPECT_FALSE(finished());
  Leave(Ps(1));
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorTest, PatienceWithASilentShardEnds) {
  TrainToTheEnd();
  Leave(Worker(0));
  Leave(Worker(1));
  PuppetLinks::Answer(links_->ends, 0);
  // Ps 1 renews its lease, but does not answer.
  Pass(kLease, {Ps(1)});
  EXPECT_FALSE(finished());
  Pass(absl::Milliseconds(250), {Ps(1)});
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorTest, AFailedJobIsFinishedWhenAllHaveBeenTold) {
  for (const bool by_leaving : {false, true}) {
    SCOPED_TRACE(by_leaving);
    Make();
    StartTraining();
    Fail("told to stop");
    EXPECT_EQ(state().phase(), proto::FAILED);
    EXPECT_EQ(state().reason(), "told to stop");
    EXPECT_FALSE(finished());
    AckEnds();
    EXPECT_FALSE(finished()) << "the workers have not been told";
    Renew(Worker(0));
    EXPECT_FALSE(finished());
    if (by_leaving) {
      Leave(Worker(1), "because of the failure");
    } else {
      EXPECT_EQ(Renew(Worker(1))->state().reason(), "told to stop");
    }
    EXPECT_TRUE(finished());
  }
}

TEST_F(CoordinatorTest, AFailedJobWaitsForItsShards) {
  StartTraining();
  Fail("told to stop");
  Renew(Worker(0));
  Renew(Worker(1));
  EXPECT_FALSE(finished());
  PuppetLinks::Answer(links_->ends, 1);
  EXPECT_FALSE(finished());
  PuppetLinks::Answer(links_->ends, 0);
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorTest, AFailedJobIsNotKeptByASilentWorker) {
  StartTraining();
  Fail("told to stop");
  AckEnds();
  Renew(Worker(0));
  Pass(kLease, {Ps(1), Worker(0)});
  // Worker 1's lease has expired, too.
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorTest, AFailedJobWaitsNoLongerThanALease) {
  StartTraining();
  Fail("told to stop");
  // No task answers, and ticks come late, so that no lease expires.
  Advance(kLease);
  Tick();
  EXPECT_FALSE(finished());
  Advance(absl::Milliseconds(250));
  Tick();
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorTest, WhoNeverJoinedIsNotWaitedFor) {
  Make();
  Join(Worker(0));
  Fail("told to stop");
  Renew(Worker(0));
  EXPECT_FALSE(finished());
  PuppetLinks::Answer(links_->ends, 0);
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorTest, ARunningJobIsNotFinished) {
  Make();
  EXPECT_FALSE(finished());
  StartTraining();
  EXPECT_FALSE(finished());
  OfferBoth(0);
  AckCommits();
  EXPECT_FALSE(finished());
}

TEST_F(CoordinatorTest, TheFirstFailureStands) {
  StartTraining();
  Fail("the first");
  Fail("the second");
  EXPECT_EQ(state().reason(), "the first");
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1)) << "once";

  Make();
  TrainToTheEnd();
  Fail("too late");
  EXPECT_EQ(state().phase(), proto::DONE);
}

TEST_F(CoordinatorTest, TheEndTakesThePlaceOfACommit) {
  StartTraining();
  OfferBoth(0);
  PuppetLinks::Answer(links_->commits, 0);
  Fail("told to stop");
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
  // Late answers to the Commit do nothing.
  PuppetLinks::Answer(links_->commits, 1);
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_FALSE(finished());
  Pass(kResendAfter, AllTasks());
  EXPECT_THAT(links_->commits, IsEmpty());
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1, 0, 1));
  AckEnds();
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorTest, AFailureAnswersAtOnceWhoIsParked) {
  Make();
  Join(Worker(0));
  const auto placement = GetPlacement(30000);
  Fail("told to stop");
  EXPECT_EQ(placement->state().reason(), "told to stop");
  EXPECT_FALSE(placement->ready());

  Make();
  StartTraining();
  const auto offer = Offer(Worker(0), 0, 0, 1);
  Fail("told to stop");
  EXPECT_EQ(offer->verdict(), proto::ABORTED);
  EXPECT_EQ(Status().pushes().aborted(), 1u);
}

TEST_F(CoordinatorTest, AfterAFailureEverybodyIsToldWhy) {
  StartTraining();
  OfferBoth(0);
  const auto parked = Offer(Worker(0), 1, 0, 2);
  Fail("told to stop");
  EXPECT_EQ(parked->verdict(), proto::ABORTED);
  // A verdict that was sent stands; other pushes are ABORTED, however often
  // they ask.
  EXPECT_EQ(Offer(Worker(0), 0, 0, 1)->verdict(), proto::ACCEPTED);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Offer(Worker(0), 1, 0, 2)->verdict(), proto::ABORTED);
    const auto late = Offer(Worker(1), 1, 1, 2);
    EXPECT_EQ(late->verdict(), proto::ABORTED);
    EXPECT_EQ(late->state().reason(), "told to stop");
  }
  EXPECT_EQ(GetPlacement(30000)->state().reason(), "told to stop");
  EXPECT_EQ(Renew(Worker(0))->state().reason(), "told to stop");
  EXPECT_EQ(Status().state().reason(), "told to stop");
  EXPECT_TRUE(
      Fails(Register(Worker(1), 2).status(), kAborted, {"told to stop"}));
  EXPECT_TRUE(Fails(Declare().status(), kAborted, {"told to stop"}));
}

}  // namespace
}  // namespace holdfast
