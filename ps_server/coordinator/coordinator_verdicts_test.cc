// SPDX-License-Identifier: Apache-2.0

// Statements of workers that the coordinator does not believe without receipts
// (docs/protocol/life_of_a_step.md, P1; docs/protocol/asynchronous.md, P2 and
// P3).
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// "w" is on ps 0, "b" on ps 1.
class CoordinatorVerdictsTest : public CoordinatorTest {
 protected:
  // Sends the request with the receipts that it has.
  Answer<proto::ContributeResponse> OfferAsItIs(
      const proto::ContributeRequest& request) {
    return Ask(request);
  }
  Answer<proto::TakeTicketResponse> TakeAsItIs(
      const proto::TakeTicketRequest& request) {
    return Ask(request);
  }
  static PushId Push(const proto::Sender& sender, uint64_t sequence) {
    return {ToWorkerLife(sender), PushSequence(sequence)};
  }
};

TEST_F(CoordinatorVerdictsTest, ShardsAreGivenTheKeyOfTheGeneration) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  Declare();
  ASSERT_THAT(links_->restores, SizeIs(2));
  for (const auto& restore : links_->restores) {
    EXPECT_EQ(restore.request.receipt_key(),
              Receipts::MakeKey(options_.receipt_secret, Generation(1)));
  }
}

TEST_F(CoordinatorVerdictsTest, WhatAShardLacksIsNotSeated_P1) {
  StartTraining();
  const proto::ContributeRequest good = OfferOf(Worker(0), 0, 0, 1);
  const auto refused = [&](const proto::ContributeRequest& request,
                           const std::string& why) {
    return Fails(OfferAsItIs(request).status(), kNotReady,
                 {"push 1 of /job:worker/task:0", why});
  };
  proto::ContributeRequest bad = good;
  bad.clear_receipts();
  EXPECT_TRUE(refused(bad, "held whole by /job:ps/task:0: its receipt is mis"));
  bad = good;
  bad.set_receipts(1, 0);
  EXPECT_TRUE(refused(bad, "held whole by /job:ps/task:1: its receipt is mis"));
  bad.set_receipts(1, good.receipts(0));
  EXPECT_TRUE(refused(bad, "held whole by /job:ps/task:1: its receipt is wro"));
  // Receipts of another push, and of another step of this push.
  bad.set_receipts(1, OfferOf(Worker(0), 0, 0, 2).receipts(1));
  EXPECT_TRUE(refused(bad, "/job:ps/task:1"));
  bad.set_receipts(1, OfferOf(Worker(0), 1, 0, 1).receipts(1));
  EXPECT_TRUE(refused(bad, "/job:ps/task:1"));
  // This changes nothing, and does not disturb other workers.
  const auto other = OfferAsItIs(OfferOf(Worker(1), 0, 1, 1));
  EXPECT_FALSE(other.came());
  EXPECT_THAT(links_->commits, IsEmpty());
  EXPECT_EQ(OfferAsItIs(good)->verdict(), proto::ACCEPTED);
  EXPECT_EQ(other->verdict(), proto::ACCEPTED);
}

TEST_F(CoordinatorVerdictsTest, WhatWeighsNothingNeedsNone_P1) {
  StartTraining();
  proto::ContributeRequest nothing = OfferOf(Worker(0), 0, 0, 1, 0);
  nothing.clear_receipts();
  EXPECT_FALSE(OfferAsItIs(nothing).came());
  proto::ContributeRequest clipped = OfferOf(Worker(1), 0, 1, 1);
  clipped.set_clip_factor(0);
  clipped.clear_receipts();
  EXPECT_EQ(OfferAsItIs(clipped)->verdict(), proto::ACCEPTED);
}

// A worker that could no longer push is still told that its push is decided or
// too late.
TEST_F(CoordinatorVerdictsTest, VerdictsNeedNone_P1) {
  StartTraining(WithMode(1, 2));
  proto::ContributeRequest offer = OfferOf(Worker(0), 0, 0, 1);
  EXPECT_EQ(OfferAsItIs(offer)->verdict(), proto::ACCEPTED);
  offer.clear_receipts();
  EXPECT_EQ(OfferAsItIs(offer)->verdict(), proto::ACCEPTED);
  proto::ContributeRequest late = OfferOf(Worker(1), 0, 1, 1);
  late.clear_receipts();
  EXPECT_EQ(OfferAsItIs(late)->verdict(), proto::STALE);
}

TEST_F(CoordinatorVerdictsTest, APsThatHoldsNothingGivesNone_P1) {
  Make(/*num_ps=*/3);
  StartTraining();
  proto::ContributeRequest offer = OfferOf(Worker(0), 0, 0, 1);
  offer.set_receipts(2, 0);
  EXPECT_FALSE(OfferAsItIs(offer).came());
  offer = OfferOf(Worker(1), 0, 1, 1);
  offer.mutable_receipts()->Truncate(2);
  EXPECT_EQ(OfferAsItIs(offer)->verdict(), proto::ACCEPTED);
}

TEST_F(CoordinatorVerdictsTest, ATicketVouchesForItsScalars_P2) {
  StartTraining(Asynchronous(10));
  const auto first = Take(Worker(0), 1);
  const auto second = Take(Worker(0), 2);
  const Receipts receipts = *ReceiptsNow();
  EXPECT_TRUE(receipts
                  .CheckTicket(Push(SenderOf(Worker(0)), 1),
                               first->ticket().scalars(),
                               first->ticket().receipt())
                  .ok());
  EXPECT_NE(first->ticket().receipt(), second->ticket().receipt());
  EXPECT_EQ(Take(Worker(0), 1)->ticket().receipt(), first->ticket().receipt());
  Make();
  StartTraining(ByTicket(2, 2, 8));
  EXPECT_EQ(Take(Worker(0), 1)->ticket().receipt(), 0u);
}

TEST_F(CoordinatorVerdictsTest, AFalseClaimIsNotBooked_P3) {
  StartTraining(Asynchronous(10));
  Take(Worker(0), 1);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
  EXPECT_EQ(Index(Take(Worker(1), 2)), 2u);
  const auto waits = Take(Worker(1), 3, {Spent(1)});
  ASSERT_EQ(Index(waits), 3u);
  // Ps 1 has not applied push 2, and nobody has reported push 3 at all.
  proto::TakeTicketRequest claim = TakeOf(Worker(1), 0, {Spent(3), Spent(2)});
  claim.mutable_spent(1)->set_receipts(1, 0);
  EXPECT_TRUE(Fails(TakeAsItIs(claim).status(), kNotReady,
                    {"push 2 of /job:worker/task:1",
                     "applied by /job:ps/task:1", "its worker is fenced"}));
  EXPECT_EQ(Status().global_step(), 1u) << "nothing of the request is booked";
  EXPECT_EQ(state().phase(), proto::TRAINING);
  // Its worker is fenced, and its tickets are for others.
  EXPECT_EQ(Take(Worker(1), 4)->verdict(), proto::FENCED);
  EXPECT_TRUE(Fails(Renew(Worker(1)).status(), kAborted, {"has been fenced"}));
  ASSERT_THAT(links_->fences, SizeIs(2));
  EXPECT_EQ(links_->fences[0].request.lives(0).worker().index(), 1u);
  PuppetLinks::AnswerAll(links_->fences);
  PuppetLinks::AnswerAll(links_->resolves);
  EXPECT_EQ(Index(Take(Worker(0), 2)), 2u);
  // Its place is free.
  EXPECT_TRUE(Register(Worker(1), /*nonce=*/2).status().ok());
}

TEST_F(CoordinatorVerdictsTest, WhatAnyShardAppliedOfAFalseClaimCounts_P3) {
  StartTraining(Asynchronous(10));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  proto::TakeTicketRequest claim = TakeOf(Worker(1), 0, {Spent(1)});
  claim.mutable_spent(0)->set_receipts(1, 77);
  EXPECT_TRUE(Fails(TakeAsItIs(claim).status(), kNotReady,
                    {"/job:ps/task:1: its receipt is wrong"}));
  proto::FenceResponse applied;
  proto::AppliedPush& push = *applied.add_applied();
  *push.mutable_from() = links_->fences[0].request.lives(0);
  push.set_sequence(1);
  push.set_clip_factor(1);
  PuppetLinks::Answer(links_->fences, 0, absl::OkStatus(), applied);
  PuppetLinks::AnswerAll(links_->fences);
  ASSERT_THAT(links_->resolves, SizeIs(2));
  EXPECT_EQ(links_->resolves[1].request.applied_size(), 1);
  PuppetLinks::AnswerAll(links_->resolves);
  EXPECT_EQ(Status().global_step(), 1u);
}

}  // namespace
}  // namespace holdfast
