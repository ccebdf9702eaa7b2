// SPDX-License-Identifier: Apache-2.0

// Offers, and their verdicts.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST_F(CoordinatorTest, TheNthOfferClosesTheStep) {
  StartTraining();
  const auto first = Offer(Worker(1), 0, 1, 1);
  EXPECT_FALSE(first.came());
  EXPECT_THAT(links_->commits, IsEmpty());
  const auto second = Offer(Worker(0), 0, 0, 1);
  // Verdicts may be sent as soon as S is fixed, before any shard has it.
  for (const auto& answer : {first, second}) {
    EXPECT_EQ(answer->verdict(), proto::ACCEPTED);
    EXPECT_EQ(answer->global_step(), 1u);
    EXPECT_EQ(answer->generation(), 1u);
    EXPECT_EQ(answer->state().phase(), proto::TRAINING);
  }
  ASSERT_THAT(PuppetLinks::To(links_->commits), ElementsAre(0, 1));
  for (const auto& sent : links_->commits) {
    const proto::CommitRequest& commit = sent.request;
    EXPECT_EQ(commit.sender().task().job(), kPsJob);
    EXPECT_EQ(commit.sender().task().index(), 0u);
    EXPECT_EQ(commit.sender().generation(), 1u);
    EXPECT_EQ(commit.step(), 0u);
    EXPECT_EQ(S(commit), "0:worker0#1*0.5 1:worker1#1*0.5");
    EXPECT_EQ(commit.contributions(0).incarnation(), 1u);
    ASSERT_THAT(commit.scalars(), SizeIs(1));
    EXPECT_EQ(commit.scalars(0).learning_rate(), 0.1f);
  }
}

TEST_F(CoordinatorTest, AnOfferOfAnEarlierStepIsStale) {
  StartTraining();
  OfferBoth(0);
  AckCommits();
  OfferBoth(1);
  AckCommits();
  for (const uint64_t step : {0, 1}) {
    const auto answer = Offer(Worker(0), step, 0, 7 + step);
    EXPECT_EQ(answer->verdict(), proto::STALE) << step;
    EXPECT_EQ(answer->global_step(), 2u) << "the open step";
  }
  EXPECT_EQ(Status().pushes().stale(), 2u);
}

TEST_F(CoordinatorTest, AnOfferOfALaterStepIsAnError) {
  StartTraining();
  EXPECT_TRUE(Fails(
      Offer(Worker(0), 1, 0, 1).status(), kNotReady,
      {"push 1 of /job:worker/task:0", "of step 1", "the open step is 0"}));
  OfferBoth(0);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
}

TEST_F(CoordinatorTest, TheSecondPushToASeatIsADuplicate) {
  StartTraining();
  const auto first = Offer(Worker(0), 0, 0, 1);
  const auto second = Offer(Worker(0), 0, 0, 2);
  EXPECT_EQ(second->verdict(), proto::DUPLICATE);
  EXPECT_EQ(second->global_step(), 0u);
  EXPECT_FALSE(first.came());
  Offer(Worker(1), 0, 1, 1);
  EXPECT_EQ(first->verdict(), proto::ACCEPTED);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
}

TEST_F(CoordinatorTest, AnOfferThatIsRepeatedIsOneOffer) {
  StartTraining();
  const auto first = Offer(Worker(0), 0, 0, 1, 30);
  const auto second = Offer(Worker(0), 0, 0, 1, 30);
  // Only the latest call is parked, however often the worker asks.
  ASSERT_TRUE(first.came());
  EXPECT_EQ(first->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_FALSE(second.came());
  EXPECT_THAT(links_->commits, IsEmpty()) << "one seat is filled, not two";
  Offer(Worker(1), 0, 1, 1);
  EXPECT_EQ(second->verdict(), proto::ACCEPTED);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.75 1:worker1#1*0.25");
  AckCommits();
  EXPECT_EQ(Status().pushes().accepted(), 2u);
}

TEST_F(CoordinatorTest, ADecidedOfferGetsItsFirstVerdictHoweverLate) {
  StartTraining();
  Offer(Worker(0), 0, 0, 1);
  ASSERT_EQ(Offer(Worker(0), 0, 0, 2)->verdict(), proto::DUPLICATE);
  Offer(Worker(1), 0, 1, 1);
  ASSERT_EQ(Offer(Worker(1), 0, 1, 2)->verdict(), proto::STALE);
  const auto expect_the_same = [&] {
    EXPECT_EQ(Offer(Worker(0), 0, 0, 1)->verdict(), proto::ACCEPTED);
    EXPECT_EQ(Offer(Worker(0), 0, 0, 2)->verdict(), proto::DUPLICATE);
    EXPECT_EQ(Offer(Worker(1), 0, 1, 1)->verdict(), proto::ACCEPTED);
    EXPECT_EQ(Offer(Worker(1), 0, 1, 2)->verdict(), proto::STALE);
    // The same holds if it is offered to the open step.
    EXPECT_EQ(Offer(Worker(0), 1, 0, 1)->verdict(), proto::ACCEPTED);
    EXPECT_EQ(Offer(Worker(1), 1, 1, 2)->verdict(), proto::STALE);
  };
  expect_the_same();
  AckCommits();
  expect_the_same();
  // Each is counted once.
  EXPECT_EQ(Status().pushes().accepted(), 2u);
  EXPECT_EQ(Status().pushes().duplicate(), 1u);
  EXPECT_EQ(Status().pushes().stale(), 1u);
  // Step 1 is not filled by any of this.
  EXPECT_FALSE(Offer(Worker(0), 1, 0, 3).came());
  EXPECT_EQ(Offer(Worker(1), 1, 1, 3)->verdict(), proto::ACCEPTED);
}

TEST_F(CoordinatorTest, ARepeatThatContradictsIsRefused) {
  Make();
  StartTraining(WithMode(4, 2));
  const auto offer = Offer(Worker(0), 0, 2, 1, 30);
  EXPECT_TRUE(Fails(
      Offer(Worker(0), 0, 0, 1, 30).status(), kInvalid,
      {"push 1 of /job:worker/task:0", "seat 2 with 30", "seat 0 with 30"}));
  EXPECT_TRUE(Fails(Offer(Worker(0), 0, 2, 1, 31).status(), kInvalid,
                    {"seat 2 with 30", "seat 2 with 31"}));
  proto::ContributeRequest clipped = OfferOf(Worker(0), 0, 2, 1, 30);
  clipped.set_clip_factor(0.5f);
  EXPECT_TRUE(Fails(Contribute(clipped).status(), kInvalid,
                    {"clip factor 1 before", "0.5"}));
  Offer(Worker(0), 0, 0, 2);
  Offer(Worker(1), 0, 1, 1);
  Offer(Worker(1), 0, 3, 2);
  EXPECT_EQ(offer->verdict(), proto::ACCEPTED) << "as it was offered first";
  // 30 of 60.
  EXPECT_EQ(Commit().contributions(2).weight() / Commit().weight_divisor(),
            0.5f);
}

// If it were judged by the step that it now claims, it would be STALE, and yet
// count.
TEST_F(CoordinatorTest, ARepeatThatClaimsAnotherStepIsRefused) {
  StartTraining();
  OfferBoth(0);
  AckCommits();
  const auto offer = Offer(Worker(0), 1, 0, 2);
  for (const uint64_t step : {0, 2}) {
    EXPECT_TRUE(Fails(Offer(Worker(0), step, 0, 2).status(), kInvalid,
                      {"push 2 of /job:worker/task:0", "to step 1, seat 0",
                       absl::StrCat("to step ", step, ", seat 0")}));
  }
  EXPECT_FALSE(offer.came());
  Offer(Worker(1), 1, 1, 2);
  EXPECT_EQ(offer->verdict(), proto::ACCEPTED);
  EXPECT_EQ(Status().pushes().stale(), 0u);
}

TEST_F(CoordinatorTest, AWorkerFillsItsOwnSeatsOnly) {
  StartTraining();
  const auto wrong = [&](uint32_t worker, uint32_t seat) {
    return Fails(Offer(Worker(worker), 0, seat, 1).status(), kInvalid,
                 {absl::StrCat("push 1 of /job:worker/task:", worker),
                  absl::StrCat("seat ", seat, " of 2"), "i mod 2"});
  };
  EXPECT_TRUE(wrong(0, 1));
  EXPECT_TRUE(wrong(1, 0));
  // 2 mod 2 is worker 0, but there is no such seat.
  EXPECT_TRUE(wrong(0, 2));
  EXPECT_TRUE(wrong(1, 3));
  EXPECT_TRUE(wrong(1, 0xffffffff));
  OfferBoth(0);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
}

TEST_F(CoordinatorTest, OnlyWorkersContribute) {
  StartTraining();
  EXPECT_TRUE(Fails(Offer(Ps(1), 0, 1, 1).status(), kInvalid,
                    {"/job:ps/task:1", "may not contribute"}));
}

TEST_F(CoordinatorTest, AnOfferBeforeTheVariablesExistIsAnError) {
  Make();
  Join(Worker(0));
  EXPECT_TRUE(Fails(Offer(Worker(0), 0, 0, 1).status(), kNotReady,
                    {"no step is open", "/job:ps/task:1 (not joined)"}));
  Join(Ps(1));
  Declare();
  EXPECT_TRUE(Fails(Offer(Worker(0), 0, 0, 1).status(), kNotReady,
                    {"creating the variables"}));
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_FALSE(Offer(Worker(0), 0, 0, 1).came()) << "and is parked after that";
}

TEST_F(CoordinatorTest, AnOlderIncarnationIsFenced) {
  StartTraining(MakeDeclaration(1));
  OfferBoth(0);  // all steps are fixed: a worker may leave
  Leave(Worker(0));
  Join(Worker(0), /*nonce=*/2);
  ASSERT_EQ(incarnations_[Worker(0)], 2u);
  incarnations_[Worker(0)] = 1;
  const auto answer = Offer(Worker(0), 0, 0, 1);
  EXPECT_EQ(answer->verdict(), proto::FENCED);
  EXPECT_EQ(answer->generation(), 1u);
  EXPECT_TRUE(Fails(Renew(Worker(0)).status(), kAborted,
                    {"another process has taken its place"}));
}

TEST_F(CoordinatorTest, BackupReplicas) {
  Make(2, 3);
  StartTraining(WithMode(2, 3));
  // The first two offers make the step, in the order of their seats.
  const auto two = Offer(Worker(2), 0, 2, 1, 30);
  EXPECT_FALSE(two.came());
  const auto zero = Offer(Worker(0), 0, 0, 1, 10);
  EXPECT_EQ(two->verdict(), proto::ACCEPTED);
  EXPECT_EQ(zero->verdict(), proto::ACCEPTED);
  ASSERT_THAT(links_->commits, SizeIs(2));
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.25 2:worker2#1*0.75");
  EXPECT_EQ(Offer(Worker(1), 0, 1, 1)->verdict(), proto::STALE);

  // Commit(0) is still in flight. Step 1 has its N offers and waits for it; a
  // third offer is late nevertheless.
  const auto one = Offer(Worker(1), 1, 1, 2);
  const auto next = Offer(Worker(2), 1, 2, 2);
  EXPECT_FALSE(one.came());
  EXPECT_FALSE(next.came());
  EXPECT_EQ(Offer(Worker(0), 1, 0, 2)->verdict(), proto::STALE);
  PuppetLinks::Answer(links_->commits, 0);
  PuppetLinks::Answer(links_->commits, 1);
  EXPECT_EQ(one->verdict(), proto::ACCEPTED);
  EXPECT_EQ(next->verdict(), proto::ACCEPTED);
  EXPECT_EQ(S(Commit()), "1:worker1#2*0.5 2:worker2#2*0.5");
  AckCommits();
  EXPECT_EQ(Status().pushes().accepted(), 4u);
  EXPECT_EQ(Status().pushes().stale(), 2u);
}

TEST_F(CoordinatorTest, SeveralSeatsPerWorker) {
  StartTraining(WithMode(4, 2));
  // One worker alone does not fill a step, whatever it offers.
  Offer(Worker(0), 0, 2, 1);
  Offer(Worker(0), 0, 0, 2);
  EXPECT_EQ(Offer(Worker(0), 0, 0, 3)->verdict(), proto::DUPLICATE);
  Offer(Worker(1), 0, 1, 1);
  EXPECT_THAT(links_->commits, IsEmpty());
  EXPECT_EQ(Offer(Worker(1), 0, 3, 2)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(S(Commit()),
            "0:worker0#2*0.25 1:worker1#1*0.25 2:worker0#1*0.25 "
            "3:worker1#2*0.25");
}

TEST_F(CoordinatorTest, AParkedOfferIsAnsweredInTimeAndRemembered) {
  Make(2, 3);
  StartTraining(WithMode(3, 3));
  const auto early = Offer(Worker(1), 0, 1, 1);
  Pass(absl::Milliseconds(750), AllTasks());
  EXPECT_FALSE(early.came());
  Pass(absl::Milliseconds(250), AllTasks());
  ASSERT_TRUE(early.came());
  EXPECT_EQ(early->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_EQ(early->global_step(), 0u);
  EXPECT_EQ(early->state().phase(), proto::TRAINING);
  EXPECT_EQ(early->waiting_for(),
            "/job:worker/task:0 (host-of-worker0:77), "
            "/job:worker/task:2 (host-of-worker2:77)");
  // The seat stays filled while no call is parked, and asking again waits
  // again.
  Offer(Worker(0), 0, 0, 1);
  const auto again = Offer(Worker(1), 0, 1, 1);
  EXPECT_FALSE(again.came());
  EXPECT_EQ(Offer(Worker(2), 0, 2, 1)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(again->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Commit().contributions(), SizeIs(3));
}

TEST_F(CoordinatorTest, OfManyThatAreWaitedForSomeAreNamed) {
  Make(2, 100);
  StartTraining(WithMode(100, 100));
  const auto first = Offer(Worker(0), 0, 0, 1);
  const auto last = Offer(Worker(99), 0, 99, 1);
  Pass(absl::Seconds(1), AllTasks());
  EXPECT_THAT(first->waiting_for(),
              AllOf(StartsWith("/job:worker/task:1 (host-of-worker1:77), "),
                    EndsWith("/job:worker/task:20 (host-of-worker20:77) and "
                             "78 more")));
  EXPECT_EQ(last->waiting_for(), first->waiting_for());
}

TEST_F(CoordinatorTest, WhoIsWaitedForMayNotHaveJoined) {
  Make();
  Join(Ps(1));
  Join(Worker(0));
  Declare();
  PuppetLinks::AnswerAll(links_->restores);
  const auto offer = Offer(Worker(0), 0, 0, 1);
  Pass(absl::Seconds(1), {Ps(1), Worker(0)});
  EXPECT_EQ(offer->waiting_for(), "/job:worker/task:1 (not joined)");
}

TEST_F(CoordinatorTest, AcknowledgedVerdictsAreForgottenAndStayDecided) {
  StartTraining();
  OfferBoth(0);
  AckCommits();
  proto::ContributeRequest next = OfferOf(Worker(0), 1, 0, 2);
  next.set_acked_through(1);
  EXPECT_FALSE(Contribute(next).came());
  EXPECT_EQ(Offer(Worker(0), 0, 0, 1)->verdict(), proto::STALE);
  EXPECT_EQ(Offer(Worker(0), 1, 0, 1)->verdict(), proto::STALE);
  // An offer cannot claim that it has itself been decided.
  proto::ContributeRequest own = OfferOf(Worker(1), 1, 1, 2);
  own.set_acked_through(2);
  EXPECT_EQ(Contribute(own)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(Status().pushes().stale(), 0u);
}

TEST_F(CoordinatorTest, TheOffersAboveAckedThroughAreBounded) {
  StartTraining();
  EXPECT_TRUE(Fails(
      Offer(Worker(0), 0, 0, kMaxUnacknowledgedPushes + 1).status(), kNotReady,
      {"push 4097 of /job:worker/task:0", "acked_through, 0"}));
  proto::ContributeRequest acked =
      OfferOf(Worker(0), 0, 0, kMaxUnacknowledgedPushes + 1);
  acked.set_acked_through(1);
  EXPECT_FALSE(Contribute(acked).came());
  EXPECT_EQ(Offer(Worker(1), 0, 1, kMaxUnacknowledgedPushes)->verdict(),
            proto::ACCEPTED);
}

TEST_F(CoordinatorTest, AnswersMayCallBack) {
  // Shards that answer inside the call, and workers that offer the next step
  // inside the verdict: the whole job in one call.
  Make();
  QuickLinks links;
  Begin(&links);
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare(MakeDeclaration(3)).status().ok());
  ASSERT_EQ(state().phase(), proto::TRAINING);

  std::vector<std::string> verdicts;
  std::function<void(uint32_t, uint64_t)> run = [&](uint32_t w, uint64_t step) {
    Send(OfferOf(Worker(w), step, w, step + 1),
         [&, w, step](absl::StatusOr<proto::ContributeResponse> response) {
           ASSERT_TRUE(response.ok()) << response.status();
           verdicts.push_back(absl::StrCat(
               step, ":", w, ":", proto::Verdict_Name(response->verdict())));
           if (step < 2) return run(w, step + 1);
           Leave(Worker(w));
         });
  };
  run(0, 0);
  run(1, 0);
  EXPECT_THAT(verdicts, testing::UnorderedElementsAre(
                            "0:0:ACCEPTED", "0:1:ACCEPTED", "1:0:ACCEPTED",
                            "1:1:ACCEPTED", "2:0:ACCEPTED", "2:1:ACCEPTED"));
  EXPECT_THAT(links.told,
              ElementsAre("Restore@0", "Restore@1", "Commit 0@0", "Commit 0@1",
                          "Commit 1@0", "Commit 1@1", "Commit 2@0",
                          "Commit 2@1", "End@0", "End@1"));
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(finished());
}

}  // namespace
}  // namespace holdfast
