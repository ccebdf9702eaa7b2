// SPDX-License-Identifier: Apache-2.0

// Membership: leases, newcomers, and what a job does without its lost workers
// (docs/protocol/recovery.md, L1 to L5).
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/events.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::Duration kTick = absl::Milliseconds(250);

// A synchronous job of N = M = `workers` that continues without lost workers.
proto::Declaration Continuing(uint32_t workers, uint32_t min_replicas = 1) {
  proto::Declaration declaration = WithMode(workers, workers);
  declaration.mutable_lost_workers()->set_policy(proto::LostWorkers::CONTINUE);
  declaration.mutable_lost_workers()->set_min_replicas(min_replicas);
  return declaration;
}

class CoordinatorLostWorkersTest : public CoordinatorTest {
 protected:
  // Confirms and resolves the pending fence.
  void FinishFence() {
    ASSERT_THAT(PuppetLinks::To(links_->fences), Not(IsEmpty()));
    PuppetLinks::AnswerAll(links_->fences);
    PuppetLinks::AnswerAll(links_->resolves);
  }
  // Keeps `task` silent until its lease has expired.
  void Lose(const TaskId& task) { Pass(kLease, AllBut(task)); }
  // Worker w offers to its seat of `step`, with sequence step + 1.
  Answer<proto::ContributeResponse> OfferTo(uint64_t step, uint32_t w) {
    return Offer(Worker(w), step, w, step + 1);
  }
};

// ---- L1: register ----

TEST_F(CoordinatorLostWorkersTest, ANewcomerWaitsWhileTheOneBeforeMayLive_L1) {
  StartTraining();
  const auto first = Register(Worker(1), 2);
  EXPECT_FALSE(first.came());
  const auto again = Register(Worker(1), 2);
  EXPECT_TRUE(Fails(first.status(), kUnavailable, {"asked again"}));
  Renew(Worker(0));
  EXPECT_FALSE(again.came()) << "that was another";
  Renew(Worker(1));
  EXPECT_TRUE(Fails(again.status(), kExists, {"host-of-worker1:77"}));
}

TEST_F(CoordinatorLostWorkersTest,
       ANewcomerGetsThePlaceOfOneThatIsLostOrLeaves_L1) {
  for (const bool by_leaving : {false, true}) {
    SCOPED_TRACE(by_leaving);
    Make();
    StartTraining();
    if (!by_leaving) Pass(kLease - kTick, AllBut(Worker(1)));
    const auto newcomer = Register(Worker(1), 2);
    EXPECT_FALSE(newcomer.came());
    if (by_leaving) {
      Leave(Worker(1));
    } else {
      Pass(kTick, AllBut(Worker(1)));
    }
    // It may have died while its call was parked.
    EXPECT_TRUE(IsNotYet(newcomer));
    EXPECT_EQ(Register(Worker(1), 2)->incarnation(), 2u);
    EXPECT_EQ(state().phase(), proto::TRAINING);
  }
}

TEST_F(CoordinatorLostWorkersTest, ARegistrationIsParkedForAShortTime_L1) {
  StartTraining();
  const auto ask = [&](uint64_t wait_ms) {
    proto::RegisterRequest request = RegisterOf(Worker(1), 2);
    request.set_wait_ms(wait_ms);
    return Ask(request);
  };
  EXPECT_EQ(ask(0)->waiting_for(),
            "the lease of /job:worker/task:1 (host-of-worker1:77), which has "
            "this place, to expire");
  const auto brief = ask(500);
  Pass(absl::Milliseconds(250), AllBut(Worker(1)));
  EXPECT_FALSE(brief.came());
  Pass(absl::Milliseconds(250), AllBut(Worker(1)));
  EXPECT_TRUE(IsNotYet(brief));
  const auto greedy = ask(30000);
  Pass(absl::Milliseconds(1750), AllBut(Worker(1)));
  EXPECT_FALSE(greedy.came());
  Pass(absl::Milliseconds(250), AllBut(Worker(1)));
  EXPECT_TRUE(IsNotYet(greedy));
}

// A process that died while it waited is never admitted: a crash loop costs
// later processes the lease of the first, and the job one generation.
TEST_F(CoordinatorLostWorkersTest, GhostsAreNotAdmitted_L1) {
  for (const TaskId& task : {Worker(1), Ps(1)}) {
    SCOPED_TRACE(task.ToString());
    MakeWithArchive();
    StartTraining();
    for (uint64_t ghost = 2; ghost <= 6; ++ghost) {
      Register(task, ghost);
      Pass(absl::Seconds(1), AllBut(task));
    }
    Pass(kLease - absl::Seconds(5) - kTick, AllBut(task));
    EXPECT_FALSE(Register(task, 7).came());
    Pass(kTick, AllBut(task));
    EXPECT_EQ(Register(task, 7)->incarnation(), 2u);
    EXPECT_EQ(Status().generation(), task.job == kPsJob ? 2u : 1u);
  }
}

TEST_F(CoordinatorLostWorkersTest, IncarnationsRiseAcrossCoordinatorsLives_L1) {
  MakeWithArchive();
  EXPECT_EQ(Register(Worker(0), 1)->incarnation(), 1u);
  Begin();
  EXPECT_EQ(Register(Worker(0), 1)->incarnation(), 1000000001u);
  EXPECT_EQ(Register(Worker(0), 1)->incarnation(), 1000000001u);
  Begin();
  EXPECT_EQ(Register(Worker(0), 1)->incarnation(), 2000000001u);
}

TEST_F(CoordinatorLostWorkersTest,
       WhoWasInAGenerationThatIsNotKnownIsRefused_L2) {
  const auto register_from = [&](uint64_t generation) {
    proto::RegisterRequest request = RegisterOf(Worker(0));
    request.mutable_sender()->set_generation(generation);
    return Ask(request);
  };
  Make();
  EXPECT_TRUE(Fails(
      register_from(1).status(), kNotReady,
      {"/job:worker/task:0 was in generation 1", "has no --checkpoint_dir"}));
  MakeWithArchive();
  Begin();
  EXPECT_TRUE(Fails(register_from(3).status(), kNotReady,
                    {"was in generation 3", "its own is in 2"}));
  EXPECT_EQ(register_from(1)->generation(), 2u);
}

// ---- L2: renew ----

TEST_F(CoordinatorLostWorkersTest, ARenewalIsParkedForAThirdOfTheLease_L2) {
  StartTraining();
  const auto parked = Renew(Worker(0), 30000);
  Pass(absl::Milliseconds(3250), AllTasks());
  EXPECT_FALSE(parked.came());
  Pass(kTick, AllTasks());
  EXPECT_EQ(parked->state().phase(), proto::TRAINING);
  const auto short_wait = Renew(Worker(0), 500);
  Pass(absl::Milliseconds(500), AllTasks());
  EXPECT_TRUE(short_wait.came());
}

TEST_F(CoordinatorLostWorkersTest, ARenewalIsAnsweredWhenThereIsNews_L2) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  const auto training = Renew(Worker(0), 3000);
  EXPECT_FALSE(training.came());
  Declare(MakeDeclaration(1));
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(training->state().phase(), proto::TRAINING);
  const auto done = Renew(Worker(0), 3000);
  OfferBoth(0);
  AckCommits();
  EXPECT_EQ(done->state().phase(), proto::DONE);
  EXPECT_TRUE(Renew(Worker(0), 3000).came()) << "there is no more to wait for";

  Make();
  Join(Worker(0));
  const auto failed = Renew(Worker(0), 3000);
  Fail("told to stop");
  EXPECT_EQ(failed->state().reason(), "told to stop");
}

// ---- L3: lost ----

TEST_F(CoordinatorLostWorkersTest, AStepStaysOpenForALostWorker_L3) {
  StartTraining();
  const auto zero = OfferTo(0, 0);
  Lose(Worker(1));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_THAT(links_->fences, IsEmpty()) << "it may come back";
  EXPECT_THAT(Status().waiting_for(),
              HasSubstr("/job:worker/task:1 (host-of-worker1:77, lost)"));
  EXPECT_THAT(links_->commits, IsEmpty());
  EXPECT_TRUE(Renew(Worker(1)).status().ok());
  EXPECT_EQ(OfferTo(0, 1)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
}

TEST_F(CoordinatorLostWorkersTest, WhoLeavesOfItsOwnAccordIsToldSo_L3) {
  const auto leave = [&](bool program_ended) {
    proto::LeaveRequest request;
    *request.mutable_sender() = SenderOf(Worker(1));
    request.set_program_ended(program_ended);
    request.set_stepped_down(!program_ended);
    EXPECT_TRUE(Ask(request).status().ok());
    return events().events().back().text();
  };
  StartTraining();
  OfferBoth(0);
  AckCommits();
  EXPECT_EQ(leave(/*program_ended=*/true),
            "/job:worker/task:1 (host-of-worker1:77) left at step 1 of 10: its "
            "program has ended without an error; to end the job for all, call "
            "finish() (holdfast_finish); the job waits for it for 5m at most");
  const auto waiting = OfferTo(1, 0);
  Pass(absl::Seconds(3), AllBut(Worker(1)));
  EXPECT_THAT(Status().waiting_for(),
              HasSubstr("/job:worker/task:1 (host-of-worker1:77, left: its "
                        "program has ended without an error)"));
  // Worker 0 is told so, too.
  EXPECT_THAT(waiting->waiting_for(),
              HasSubstr("left: its program has ended without an error)"));
  Pass(recovery_timeout_, AllBut(Worker(1)));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(),
              AllOf(HasSubstr("left: its program has ended without an error"),
                    HasSubstr("no replacement joined")));

  Make();
  StartTraining();
  EXPECT_THAT(leave(/*program_ended=*/false),
              HasSubstr("left at step 0 of 10: its program has closed the "
                        "cluster; to end the job for all, call finish()"));
  Join(Worker(1), 2);
  EXPECT_THAT(Status().waiting_for(), Not(HasSubstr("left")));

  Make();
  StartTraining(Asynchronous(100));
  EXPECT_THAT(leave(/*program_ended=*/true), HasSubstr("is fenced"));
  EXPECT_THAT(events().events().rbegin()[1].text(),
              AllOf(HasSubstr("call finish() (holdfast_finish); the job "
                              "continues without it")));

  // Nobody waits for a worker after the last step.
  Make();
  TrainToTheEnd();
  const size_t before = events().events().size();
  leave(/*program_ended=*/true);
  EXPECT_EQ(events().events().size(), before);
}

TEST_F(CoordinatorLostWorkersTest, WhoDoesNotComeBackEndsTheJobByName_L3) {
  for (const TaskId& lost : {Worker(1), Ps(1)}) {
    SCOPED_TRACE(lost.ToString());
    MakeWithArchive();
    StartTraining();
    Lose(lost);
    Pass(recovery_timeout_, AllBut(lost));
    EXPECT_EQ(state().phase(), proto::TRAINING);
    Pass(kTick, AllBut(lost));
    EXPECT_EQ(state().phase(), proto::FAILED);
    EXPECT_THAT(state().reason(),
                AllOf(HasSubstr(lost.ToString()),
                      HasSubstr("nothing was heard for 5m10.25s")));
  }
}

TEST_F(CoordinatorLostWorkersTest, AStepsTimeBeginsAgainWithAReturn_L3) {
  StartTraining();
  Pass(absl::Seconds(90), AllTasks());
  Pass(kLease + absl::Seconds(20), AllBut(Worker(1)));
  Pass(absl::Seconds(100), AllTasks());
  EXPECT_EQ(state().phase(), proto::TRAINING) << state().reason();
  Pass(absl::Seconds(1), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
}

TEST_F(CoordinatorLostWorkersTest, APsThatIsHeardOfAgainHasItsState_L3) {
  MakeWithArchive();
  StartTraining();
  OfferBoth(0);
  PuppetLinks::Answer(links_->commits, 0);
  Lose(Ps(1));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Renew(Ps(1));
  PuppetLinks::Answer(links_->commits, 1);
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Status().generation(), 1u);
}

TEST_F(CoordinatorLostWorkersTest, AReturnStartsWhatWaitedForIt_L3) {
  MakeWithArchive();
  for (const TaskId& task : AllTasks()) Join(task);
  Lose(Ps(1));
  Declare();
  EXPECT_THAT(links_->restores, IsEmpty());
  Renew(Ps(1));
  EXPECT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0, 1));
}

TEST_F(CoordinatorLostWorkersTest, WithoutALostWorkerStepsGoOn_L3_L5_S2_S3) {
  Make(1, 3);
  StartTraining(Continuing(3));
  OfferTo(0, 0);
  OfferTo(0, 1);
  Lose(Worker(2));
  EXPECT_THAT(links_->commits, IsEmpty()) << "no shard has confirmed";
  FinishFence();
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
  EXPECT_EQ(OfferTo(0, 0)->verdict(), proto::ACCEPTED);
  AckCommits();
  // It is not a member of later steps either.
  OfferTo(1, 0);
  OfferTo(1, 1);
  EXPECT_EQ(Commit().step(), 1u);
}

TEST_F(CoordinatorLostWorkersTest, WithTooFewNothingGoesOn_L3) {
  Make(1, 3);
  proto::Declaration declaration = Continuing(3, /*min_replicas=*/2);
  // N = 1 offer would suffice.
  declaration.mutable_consistency()
      ->mutable_synchronous()
      ->set_replicas_to_aggregate(1);
  StartTraining(declaration);
  Leave(Worker(1));
  FinishFence();
  Leave(Worker(2));
  FinishFence();
  OfferTo(0, 0);
  EXPECT_THAT(links_->commits, IsEmpty());
  Pass(absl::Seconds(3), {Worker(0)});
  EXPECT_EQ(Status().waiting_for(), "2 live workers (now 1)");
  Join(Worker(2), 2);
  EXPECT_EQ(S(Commit()), "0:worker0#1*1");
}

TEST_F(CoordinatorLostWorkersTest, TicketsWaitForEnoughWorkersToo_L3) {
  proto::Declaration declaration = Asynchronous(20);
  declaration.mutable_lost_workers()->set_min_replicas(2);
  StartTraining(declaration);
  Leave(Worker(1));
  FinishFence();
  const auto waits = Take(Worker(0), 1);
  EXPECT_FALSE(waits.came());
  Join(Worker(1), 2);
  EXPECT_EQ(Index(waits), 0u);
}

// The wait for enough workers counts from the loss that left too few of them.
TEST_F(CoordinatorLostWorkersTest, AnEarlierLossIsNoPartOfTheWait_L3) {
  Make(1, 3);
  StartTraining(Continuing(3, /*min_replicas=*/2));
  Leave(Worker(2));
  FinishFence();
  for (uint64_t step = 0; step < 5; ++step) {
    Pass(absl::Seconds(80), {Worker(0), Worker(1)});
    OfferTo(step, 0);
    OfferTo(step, 1);
    AckCommits();
  }
  Leave(Worker(1));
  FinishFence();
  Pass(recovery_timeout_, {Worker(0)});
  EXPECT_EQ(state().phase(), proto::TRAINING) << state().reason();
  Pass(kTick, {Worker(0)});
  EXPECT_EQ(state().phase(), proto::FAILED);
}

// While the job is STARTING no worker is fenced; one that comes back in time is
// a member.
TEST_F(CoordinatorLostWorkersTest, WhoComesBackBeforeTheStartIsHere_L3) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  Declare(Asynchronous(10));
  Lose(Worker(1));
  Renew(Worker(1));
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_THAT(links_->fences, IsEmpty());
  EXPECT_EQ(Index(Take(Worker(1), 1)), 0u);
}

// ---- L4: fenced ----

TEST_F(CoordinatorLostWorkersTest, ANewcomerHasTheLifeBeforeShutOut_L4_S2) {
  StartTraining();
  const auto zero = OfferTo(0, 0);
  Leave(Worker(0));
  EXPECT_THAT(links_->fences, IsEmpty()) << "it is waited for";
  Join(Worker(0), 2);
  EXPECT_EQ(zero->verdict(), proto::FENCED);
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1));
  EXPECT_EQ(links_->fences[0].request.lives(0).incarnation(), 1u);
  // Its seat is free, but no step closes before every shard has confirmed.
  EXPECT_FALSE(OfferTo(0, 0).came());
  OfferTo(0, 1);
  PuppetLinks::AnswerAll(links_->fences);
  EXPECT_THAT(links_->resolves[0].request.applied(), IsEmpty());
  PuppetLinks::Answer(links_->resolves, 0);
  EXPECT_THAT(links_->commits, IsEmpty());
  PuppetLinks::Answer(links_->resolves, 1);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
  EXPECT_EQ(Commit().contributions(0).incarnation(), 2u);
  // The previous life is told at its next call.
  incarnations_[Worker(0)] = 1;
  EXPECT_EQ(OfferTo(1, 0)->verdict(), proto::FENCED);
  EXPECT_TRUE(Fails(Renew(Worker(0)).status(), kAborted, {"restart it"}));
}

TEST_F(CoordinatorLostWorkersTest, ItsTicketIsReturned_L4) {
  StartTraining(ByTicket(2, 2, 4));
  EXPECT_EQ(Index(Take(Worker(0), 1)), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
  const auto offer = OfferTo(0, 1);
  Leave(Worker(1));
  Join(Worker(1), 2);
  EXPECT_EQ(offer->verdict(), proto::FENCED);
  FinishFence();
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
}

TEST_F(CoordinatorLostWorkersTest, ACommitThatIsFixedStands_L4) {
  StartTraining();
  OfferBoth(0);
  Leave(Worker(1));
  Join(Worker(1), 2);
  EXPECT_THAT(links_->fences, IsEmpty()) << "one message at a time";
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
  EXPECT_EQ(Commit().contributions(1).incarnation(), 1u);
  AckCommits();
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Status().pushes().accepted(), 2u);
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1));
}

// ---- L5: members ----

TEST_F(CoordinatorLostWorkersTest, TheFirstStepIsMadeOfAllThatItBeginsWith_L5) {
  Make(1, 3);
  Join(Worker(0));
  Declare(Continuing(3));
  PuppetLinks::AnswerAll(links_->restores);
  Join(Worker(1));
  OfferTo(0, 0);
  OfferTo(0, 1);
  EXPECT_THAT(links_->commits, IsEmpty()) << "it has not begun";
  Join(Worker(2));
  EXPECT_THAT(links_->commits, IsEmpty());
  EXPECT_EQ(OfferTo(0, 2)->verdict(), proto::ACCEPTED);
}

TEST_F(CoordinatorLostWorkersTest, WhoJoinsIsWaitedForFromTheNextStepOn_L5) {
  Make(1, 3);
  StartTraining(Continuing(3));
  Leave(Worker(2));
  FinishFence();
  OfferTo(0, 0);
  Join(Worker(2), 2);
  OfferTo(0, 1);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
  AckCommits();
  OfferTo(1, 0);
  OfferTo(1, 1);
  EXPECT_THAT(links_->commits, IsEmpty());
  EXPECT_EQ(Offer(Worker(2), 1, 2, 1)->verdict(), proto::ACCEPTED);
}

TEST_F(CoordinatorLostWorkersTest, WhoJoinsMayContributeToTheOpenStep_L5) {
  Make(1, 3);
  StartTraining(Continuing(3));
  Leave(Worker(2));
  FinishFence();
  Join(Worker(2), 2);
  Offer(Worker(2), 0, 2, 1);
  OfferTo(0, 0);
  EXPECT_THAT(links_->commits, IsEmpty());
  OfferTo(0, 1);
  EXPECT_THAT(S(Commit()), HasSubstr("2:worker2#1*"));
}

TEST_F(CoordinatorLostWorkersTest, AnEmptyStepNeverCloses_S3) {
  StartTraining(Continuing(2));
  Leave(Worker(1));
  FinishFence();
  Leave(Worker(0));
  FinishFence();
  Join(Worker(1), 2);
  EXPECT_THAT(links_->commits, IsEmpty());
  EXPECT_EQ(Offer(Worker(1), 0, 1, 1)->verdict(), proto::ACCEPTED)
      << "of those that were there at its opening none is left";
}

TEST_F(CoordinatorLostWorkersTest, WorkersMayJoinFromBeyondTheClusterSpec_L5) {
  Make(1, 2);
  proto::Declaration declaration = ByTicket(3, 3, 9);
  declaration.mutable_lost_workers()->set_policy(proto::LostWorkers::CONTINUE);
  declaration.mutable_lost_workers()->set_max_workers(3);
  const auto register_third = [&](uint32_t index) {
    proto::RegisterRequest request = RegisterOf(Worker(index));
    request.set_num_workers(4);
    return Ask(request);
  };
  // Before the declaration this is not known.
  const auto early = register_third(2);
  EXPECT_FALSE(early.came());
  StartTraining(declaration);
  EXPECT_EQ(links_->restores.size(), 0u);
  EXPECT_EQ(GetPlacement(0)->declaration().num_workers(), 3u);
  EXPECT_TRUE(IsNotYet(early));
  EXPECT_EQ(register_third(2)->incarnation(), 1u);
  EXPECT_TRUE(Fails(register_third(3).status(), kInvalid));
  incarnations_[Worker(2)] = 1;
  Take(Worker(2), 1);
  EXPECT_FALSE(OfferTo(0, 2).came());
}

TEST_F(CoordinatorLostWorkersTest,
       NReplicasCloseAStepWhereTheLostAreNotWaitedFor_L5) {
  Make(1, 3);
  proto::Declaration declaration = Continuing(3);
  declaration.mutable_consistency()
      ->mutable_synchronous()
      ->set_replicas_to_aggregate(2);
  StartTraining(declaration);
  OfferTo(0, 2);
  OfferTo(0, 0);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 2:worker2#1*0.5");
  AckCommits();
  Leave(Worker(1));
  FinishFence();
  Leave(Worker(2));
  FinishFence();
  EXPECT_EQ(OfferTo(1, 0)->verdict(), proto::ACCEPTED) << "all that are left";
}

}  // namespace
}  // namespace holdfast
