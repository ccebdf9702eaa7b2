// SPDX-License-Identifier: Apache-2.0

// Tickets: how they are handed out, booked and returned
// (docs/protocol/asynchronous.md, steps A1 and A4).
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
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

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// ---- Handing out [A1] ----

TEST_F(CoordinatorTest, TicketsAreHandedOutInOrderToWhoAsks) {
  StartTraining(Asynchronous(10));
  const auto first = Take(Worker(1), 1);
  EXPECT_EQ(Index(first), 0u);
  EXPECT_EQ(first->generation(), 1u);
  EXPECT_EQ(first->state().phase(), proto::TRAINING);
  EXPECT_EQ(first->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_EQ(first->waiting_for(), "");
  EXPECT_EQ(first->global_step(), 0u);
  EXPECT_EQ(Index(Take(Worker(0), 1)), 1u);
  EXPECT_EQ(Index(Take(Worker(1), 2)), 2u);
}

TEST_F(CoordinatorTest, ARepeatedRequestGetsTheSameTicket_T1) {
  StartTraining(Asynchronous(3));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  Take(Worker(1), 1);
  // Regardless of how many tickets are held, and whether any is left.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Index(Take(Worker(0), 1)), 0u);
    EXPECT_EQ(Index(Take(Worker(0), 2)), 1u);
    EXPECT_EQ(Index(Take(Worker(1), 1)), 2u);
  }
}

TEST_F(CoordinatorTest, ATicketsScalarsFollowItsIndex) {
  proto::Declaration declaration = Asynchronous(10);
  proto::Optimizer& optimizer = *declaration.mutable_optimizers(0);
  optimizer.mutable_schedule()->set_warmup_steps(10);
  proto::Optimizer& second = *declaration.add_optimizers();
  second.set_learning_rate(0.25f);
  second.mutable_adam()->set_beta1(0.5f);
  second.mutable_adam()->set_beta2(0.75f);
  StartTraining(declaration);
  // The warm-up rises to 0.1 by 0.01 a step; Adam's corrections at step t, the
  // (t + 1)st, are 1 - beta^(t + 1).
  Take(Worker(0), 1);
  for (const auto& answer : {Take(Worker(0), 2), Take(Worker(0), 2)}) {
    ASSERT_THAT(answer->ticket().scalars(), SizeIs(2));
    EXPECT_FLOAT_EQ(answer->ticket().scalars(0).learning_rate(), 0.01f);
    EXPECT_EQ(answer->ticket().scalars(1).learning_rate(), 0.25f);
    EXPECT_EQ(answer->ticket().scalars(1).bias_correction1(), 0.75f);
    EXPECT_EQ(answer->ticket().scalars(1).bias_correction2(), 0.4375f);
  }
  const auto next = Take(Worker(1), 1);
  EXPECT_FLOAT_EQ(next->ticket().scalars(0).learning_rate(), 0.02f);
  EXPECT_EQ(next->ticket().scalars(1).bias_correction1(), 0.875f);
}

TEST_F(CoordinatorTest, AWorkerMayReadOneBatchAhead) {
  for (const uint32_t depth : {0, 1, 3}) {
    SCOPED_TRACE(depth);
    Make();
    proto::Declaration declaration = Asynchronous(100, depth);
    if (depth == 0) {
      // Left out it is 1.
      declaration.mutable_consistency()
          ->mutable_asynchronous()
          ->clear_pipeline_depth();
    }
    StartTraining(declaration);
    const uint64_t may_hold = std::max(1u, depth) + 1;
    for (uint64_t i = 1; i <= may_hold; ++i) {
      EXPECT_EQ(Index(Take(Worker(0), i)), i - 1);
    }
    EXPECT_TRUE(
        Fails(Take(Worker(0), may_hold + 1).status(), kExhausted,
              {absl::StrCat("push ", may_hold + 1, " of /job:worker/task:0"),
               absl::StrCat("at most ", may_hold)}));
    EXPECT_EQ(Index(Take(Worker(1), 1)), may_hold) << "another worker";
    // A ticket that the request itself reports as spent is no longer held.
    EXPECT_EQ(Index(Take(Worker(0), may_hold + 1, {Spent(1)})), may_hold + 1);
  }
}

TEST_F(CoordinatorTest, TicketsThatAreWaitedForCountAsHeld) {
  StartTraining(Asynchronous(3));
  Take(Worker(1), 1);
  Take(Worker(1), 2);
  Take(Worker(0), 1);
  const auto waits = Take(Worker(0), 2);
  EXPECT_FALSE(waits.came());
  EXPECT_TRUE(Fails(Take(Worker(0), 3).status(), kExhausted,
                    {"holds or waits for 2 tickets"}));
  EXPECT_FALSE(waits.came()) << "it waits on";
  // Asking again for the same ticket does not count as another one.
  EXPECT_FALSE(Take(Worker(0), 2).came());
}

TEST_F(CoordinatorTest, ASequenceThatIsOverGetsNoTicket) {
  StartTraining(Asynchronous(10));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  Book(Worker(0), 1);
  EXPECT_TRUE(Fails(Take(Worker(0), 1).status(), kInvalid,
                    {"push 1 of /job:worker/task:0", "is over"}));
  proto::TakeTicketRequest acked = TakeOf(Worker(0), 3, {Spent(2)});
  acked.set_acked_through(2);
  EXPECT_EQ(Index(Take(acked)), 2u);
  for (const uint64_t sequence : {1, 2}) {
    EXPECT_TRUE(
        Fails(Take(Worker(0), sequence).status(), kInvalid, {"is over"}));
  }
}

TEST_F(CoordinatorTest, SequencesAboveAckedThroughAreBounded) {
  StartTraining(Asynchronous(10));
  EXPECT_TRUE(Fails(Take(Worker(0), kMaxUnacknowledgedPushes + 1).status(),
                    kNotReady,
                    {"push 4097 of /job:worker/task:0", "acked_through, 0"}));
}

// Shards would wait for ever for the skipped push.
TEST_F(CoordinatorTest, ASequenceThatIsLeftOutIsAnError) {
  StartTraining(Asynchronous(3));
  Take(Worker(0), 1);
  EXPECT_TRUE(Fails(Take(Worker(0), 3).status(), kNotReady,
                    {"push 3 of /job:worker/task:0", "expected push 2"}));
  Take(Worker(1), 1);
  Take(Worker(1), 2);
  // A waiting push counts as asked for.
  EXPECT_FALSE(Take(Worker(0), 2).came());
  const auto third = Take(TakeOf(Worker(0), 3, {Spent(1)}));
  EXPECT_FALSE(third.came());
  EXPECT_TRUE(
      Fails(Take(Worker(0), 5).status(), kNotReady, {"expected push 4"}));

  // Contributions have no order.
  Make();
  StartTraining(ByTicket(2, 2, 8));
  EXPECT_EQ(Index(Take(Worker(0), 7)), 0u);
}

// Shards remember only the pushes in between.
TEST_F(CoordinatorTest, NoTicketIsFarAheadOfOneThatIsOut_P3) {
  StartTraining(Asynchronous(10, /*depth=*/2));
  for (const uint64_t sequence : {1, 2, 3}) Take(Worker(0), sequence);
  const auto waits = Take(Worker(0), 4, {Spent(2)});
  EXPECT_FALSE(waits.came()) << "push 1 is out";
  EXPECT_EQ(Index(Take(Worker(1), 1)), 3u) << "another worker's";
  EXPECT_EQ(Status().global_step(), 1u);
  Book(Worker(0), 1);
  EXPECT_EQ(Index(waits), 4u);
}

TEST_F(CoordinatorTest, WhoMayTakeNoTicket) {
  Make();
  Join(Worker(0));
  EXPECT_TRUE(Fails(Take(Worker(0), 1).status(), kNotReady,
                    {"no tickets yet", "/job:ps/task:1 (not joined)"}));
  EXPECT_TRUE(Fails(Take(Worker(1), 1).status(), kNotFound,
                    {"/job:worker/task:1", "register first"}));
  StartTraining();
  EXPECT_TRUE(
      Fails(Take(Worker(0), 1).status(), kNotReady, {"examples are by step"}));
  EXPECT_TRUE(Fails(Take(Ps(1), 1).status(), kInvalid,
                    {"/job:ps/task:1 is not a worker"}));
}

TEST_F(CoordinatorTest, ATicketOfAnotherGenerationIsAborted) {
  StartTraining(Asynchronous(10));
  Take(Worker(0), 1);
  for (const uint64_t generation : {0, 2}) {
    proto::TakeTicketRequest request = TakeOf(Worker(0), 2, {Spent(1)});
    request.mutable_sender()->set_generation(generation);
    request.set_acked_through(1);
    const auto answer = Take(request);
    EXPECT_EQ(answer->verdict(), proto::ABORTED);
    EXPECT_EQ(answer->generation(), 1u);
    EXPECT_TRUE(Empty(answer));
  }
  EXPECT_EQ(Status().global_step(), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
}

TEST_F(CoordinatorTest, ARequestWaitsWhileNoneIsLeftButSomeAreOut) {
  StartTraining(Asynchronous(2));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  const auto soon = Take(Worker(0), 2);
  proto::TakeTicketRequest request = TakeOf(Worker(1), 2);
  request.set_wait_ms(~uint64_t{0});
  const auto later = Take(request);
  Pass(absl::Milliseconds(750), AllTasks());
  EXPECT_FALSE(soon.came());
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_TRUE(Empty(soon));
  EXPECT_EQ(soon->state().phase(), proto::TRAINING);
  EXPECT_EQ(soon->waiting_for(),
            "/job:worker/task:0 (host-of-worker0:77), "
            "/job:worker/task:1 (host-of-worker1:77)");
  request.set_wait_ms(0);
  request.mutable_sender()->mutable_task()->set_index(0);
  EXPECT_TRUE(Empty(Take(request)));
  Book(Worker(1), 1);
  EXPECT_EQ(Take(request)->waiting_for(),
            "/job:worker/task:0 (host-of-worker0:77)");
  Pass(kMaxPark - absl::Milliseconds(1250), AllTasks());
  EXPECT_FALSE(later.came());
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_TRUE(Empty(later));
}

TEST_F(CoordinatorTest, WhoAsksAgainForATicketWaitsForOneAnswer) {
  StartTraining(Asynchronous(2));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  const auto first = Take(Worker(0), 2);
  const auto other = Take(Worker(1), 2);
  const auto second = Take(Worker(0), 2);
  EXPECT_TRUE(Empty(first));
  EXPECT_FALSE(second.came());
  EXPECT_FALSE(other.came()) << "it asked for itself";
  Leave(Worker(1));
  PuppetLinks::AnswerAll(links_->fences);
  PuppetLinks::AnswerAll(links_->resolves);
  EXPECT_EQ(Index(second), 1u);
}

TEST_F(CoordinatorTest, WhoWaitsLongestIsServedFirst) {
  Make(1, 4);
  StartTraining(Asynchronous(2));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  const auto one = Take(Worker(3), 1);
  const auto two = Take(Worker(1), 1);
  const auto three = Take(Worker(2), 1);
  Leave(Worker(0));
  PuppetLinks::AnswerAll(links_->fences);
  PuppetLinks::AnswerAll(links_->resolves);
  EXPECT_EQ(Index(one), 0u);
  EXPECT_EQ(Index(two), 1u);
  EXPECT_FALSE(three.came());
}

TEST_F(CoordinatorTest, AFailureAnswersWhoWaitsForATicket) {
  StartTraining(Asynchronous(1));
  Take(Worker(0), 1);
  const auto parked = Take(Worker(1), 1);
  Fail("told to stop");
  EXPECT_TRUE(Empty(parked));
  EXPECT_EQ(parked->state().phase(), proto::FAILED);
  EXPECT_EQ(parked->state().reason(), "told to stop");
  EXPECT_EQ(parked->waiting_for(), "");
  // From then on nothing is handed out or booked.
  for (const uint64_t sequence : {0, 1, 2}) {
    const auto late = Take(Worker(0), sequence, {Spent(1), Spent(9)});
    EXPECT_TRUE(Empty(late)) << sequence;
    EXPECT_EQ(late->state().reason(), "told to stop");
  }
  EXPECT_EQ(Status().global_step(), 0u);
  EXPECT_EQ(Status().pushes().accepted(), 0u);
}

TEST_F(CoordinatorTest, WhatAFailureReturnsIsNotHandedOut) {
  Make(1, 3);
  StartTraining(ByTicket(3, 3, 2));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  const auto parked = Take(Worker(2), 1);
  const auto offer = Offer(Worker(0), 0, 0, 1);
  Fail("told to stop");
  EXPECT_EQ(offer->verdict(), proto::ABORTED);
  EXPECT_TRUE(Empty(parked));
  EXPECT_EQ(parked->state().phase(), proto::FAILED);
}

TEST_F(CoordinatorTest, AFailureBeforeThereAreTicketsIsToldToo) {
  Make();
  Join(Worker(0));
  Fail("told to stop");
  const auto answer = Take(Worker(0), 2, {Spent(1)});
  EXPECT_TRUE(Empty(answer));
  EXPECT_EQ(answer->state().reason(), "told to stop");
}

// ---- Booking [A4] ----

TEST_F(CoordinatorTest, WhatIsSpentIsBookedAsTheRequestComesIn_T4) {
  StartTraining(Asynchronous(2));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  Advance(absl::Seconds(3));
  // The request is parked, the booking is not.
  const auto parked = Take(Worker(0), 2, {Spent(1, 30, 0.5, 4)});
  EXPECT_FALSE(parked.came());
  proto::GetStatusResponse status = Status();
  EXPECT_EQ(status.global_step(), 1u);
  EXPECT_EQ(status.examples(), 30u);
  EXPECT_EQ(status.pushes().accepted(), 1u);
  EXPECT_EQ(status.train_loss(), 0.5);
  EXPECT_DOUBLE_EQ(status.training_seconds(), 3);
  ASSERT_THAT(status.workers(), SizeIs(1));
  EXPECT_EQ(status.workers(0).worker().index(), 0u);
  EXPECT_EQ(status.workers(0).pushes(), 1u);
  ASSERT_THAT(status.staleness(), SizeIs(1));
  EXPECT_EQ(status.staleness(0).staleness(), 4u);
  EXPECT_EQ(status.staleness(0).pushes(), 1u);
}

TEST_F(CoordinatorTest, WhatIsSpentMayBeToldAlone) {
  StartTraining(Asynchronous(10));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  const auto answer = Take(Worker(0), 0, {Spent(2), Spent(1)});
  EXPECT_TRUE(Empty(answer));
  EXPECT_EQ(answer->global_step(), 2u);
  EXPECT_EQ(answer->waiting_for(), "");
  EXPECT_EQ(answer->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_EQ(Index(Take(Worker(0), 3)), 2u);
}

TEST_F(CoordinatorTest, WhatIsToldTwiceIsBookedOnce_R9) {
  StartTraining(Asynchronous(10));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  Take(Worker(0), 0, {Spent(1), Spent(1)});
  Book(Worker(0), 1);
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Status().pushes().accepted(), 1u);
  proto::TakeTicketRequest acked = TakeOf(Worker(0), 0, {Spent(1), Spent(2)});
  acked.set_acked_through(2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Take(acked)->global_step(), 2u);
  }
  EXPECT_EQ(Status().examples(), 20u);
}

TEST_F(CoordinatorTest, OnlyATicketOfOnesOwnIsSpent) {
  StartTraining(Asynchronous(3));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  Take(Worker(1), 2);
  Take(Worker(0), 2);  // waits
  for (const uint64_t sequence : {2, 3}) {
    SCOPED_TRACE(sequence);
    // Nothing of such a request is booked.
    EXPECT_TRUE(Fails(
        Take(Worker(0), 0, {Spent(1), Spent(sequence)}).status(), kInvalid,
        {absl::StrCat("push ", sequence, " of /job:worker/task:0"),
         "reported as spent, but has no ticket"}));
  }
  EXPECT_EQ(Status().global_step(), 0u);
  EXPECT_EQ(Book(Worker(0), 1)->global_step(), 1u);
}

TEST_F(CoordinatorTest, WhatIsOutIsNotDecidedWhateverItsWorkerSays) {
  StartTraining(Asynchronous(10, /*depth=*/3));
  for (const uint64_t sequence : {1, 2, 3, 4}) Take(Worker(0), sequence);
  Book(Worker(0), 1);
  Book(Worker(0), 2);
  proto::TakeTicketRequest request = TakeOf(Worker(0), 0);
  request.set_acked_through(1000);
  Take(request);
  EXPECT_TRUE(Fails(Take(Worker(0), 2).status(), kInvalid, {"is over"}));
  EXPECT_EQ(Index(Take(Worker(0), 3)), 2u);
  EXPECT_EQ(Take(Worker(0), 0, {Spent(3), Spent(4)})->global_step(), 4u);
  EXPECT_EQ(Index(Take(Worker(0), 5)), 4u);

  Make();
  StartTraining(ByTicket(2, 2, 8));
  Take(Worker(0), 1);
  Take(request);
  EXPECT_FALSE(Offer(Worker(0), 0, 0, 1).came()) << "not STALE";

  // The same holds for an offer.
  Make();
  StartTraining(ByTicket(4, 2, 8));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  proto::ContributeRequest second = OfferOf(Worker(0), 0, 2, 2);
  second.set_acked_through(1);
  Contribute(second);
  EXPECT_FALSE(Offer(Worker(0), 0, 0, 1).came());
}

TEST_F(CoordinatorTest, WhatIsWaitedForCountsWhateverItsWorkerSays) {
  StartTraining(Asynchronous(2));
  Take(Worker(1), 1);
  Take(Worker(1), 2);
  proto::TakeTicketRequest request = TakeOf(Worker(0), 1);
  request.set_acked_through(1000);
  const auto parked = Take(request);
  Leave(Worker(1));
  PuppetLinks::AnswerAll(links_->fences);
  PuppetLinks::AnswerAll(links_->resolves);
  EXPECT_EQ(Index(parked), 0u);
  EXPECT_EQ(Index(Take(Worker(0), 1)), 0u);
  EXPECT_EQ(Book(Worker(0), 1)->global_step(), 1u);
}

TEST_F(CoordinatorTest, TheJobIsDoneExactlyWhenAllTicketsAreSpent) {
  StartTraining(Asynchronous(3));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  Take(Worker(1), 1);
  const auto parked = Take(Worker(1), 2);
  Take(Worker(0), 3, {Spent(1), Spent(2)});
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_FALSE(parked.came());
  const auto last = Take(Worker(1), 3, {Spent(1)});
  EXPECT_EQ(state().phase(), proto::DONE);
  for (const auto& answer : {parked, last}) {
    EXPECT_TRUE(Empty(answer));
    EXPECT_EQ(answer->state().phase(), proto::DONE);
    EXPECT_EQ(answer->global_step(), 3u);
    EXPECT_EQ(answer->waiting_for(), "");
  }
  EXPECT_EQ(Take(Worker(0), 4)->state().phase(), proto::DONE);
  EXPECT_EQ(Book(Worker(1), 1)->state().phase(), proto::DONE);
  EXPECT_THAT(links_->ends, IsEmpty()) << "workers may be reading";
  Leave(Worker(0));
  Leave(Worker(1));
  EXPECT_THAT(links_->fences, IsEmpty())
      << "nobody who leaves a job that is done";
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
  EXPECT_EQ(links_->ends[0].request.state().phase(), proto::DONE);
  AckEnds();
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorTest, APushOfAnAsynchronousJobIsNotContributed) {
  StartTraining(Asynchronous(10));
  Take(Worker(0), 1);
  EXPECT_TRUE(Fails(Offer(Worker(0), 0, 0, 1).status(), kNotReady,
                    {"the job is asynchronous"}));
  // The acknowledgement has no effect on pushes whose tickets are out.
  proto::ContributeRequest offer = OfferOf(Worker(0), 0, 0, 100);
  offer.set_acked_through(99);
  EXPECT_FALSE(Contribute(offer).status().ok());
  EXPECT_EQ(Book(Worker(0), 1)->global_step(), 1u);
}

TEST_F(CoordinatorTest, AnAsynchronousJobBeginsWithItsFirstWorker) {
  Make(1, 3);
  Join(Worker(1));
  Advance(absl::Seconds(2));
  Declare(Asynchronous(10), Worker(1));
  Advance(absl::Seconds(2));
  PuppetLinks::AnswerAll(links_->restores);
  Advance(absl::Seconds(2));
  Take(Worker(1), 1);
  Book(Worker(1), 1);
  EXPECT_DOUBLE_EQ(Status().training_seconds(), 2);
}

// ---- Bounded staleness [A1] ----

TEST_F(CoordinatorTest, WithoutABoundNobodyWaitsForTheSlowest) {
  StartTraining(Asynchronous(100));
  for (uint64_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(Index(Take(Worker(0), i)), i - 1);
    Book(Worker(0), i);
  }
}

TEST_F(CoordinatorTest, AtBound0WorkersGoInStep) {
  StartTraining(Bounded(0));
  EXPECT_EQ(Index(Take(Worker(0), 1)), 0u);
  const auto held = Take(Worker(0), 2);
  EXPECT_FALSE(held.came()) << "it holds one, and worker 1 has spent none";
  Book(Worker(0), 1);
  EXPECT_FALSE(held.came()) << "nor when that is spent";
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
  EXPECT_FALSE(held.came());
  const auto other = Take(Worker(1), 2, {Spent(1)});
  EXPECT_EQ(Index(held), 2u);
  EXPECT_EQ(Index(other), 3u);
}

TEST_F(CoordinatorTest, AWorkerIsAtMostTheBoundAhead) {
  Make(1, 3);
  StartTraining(Bounded(2, 100, /*depth=*/9));
  // c_0 before each is 0, 1, 2; then 3 > 2 + 0.
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(Index(Take(Worker(0), i)), i - 1);
  const auto ahead = Take(Worker(0), 4);
  Take(Worker(0), 0, {Spent(1), Spent(2)});
  EXPECT_FALSE(ahead.came()) << "spent or held is the same";
  // A worker that is not too far ahead gets the ticket that the other waits
  // for.
  EXPECT_EQ(Index(Take(Worker(1), 1)), 3u);
  Book(Worker(1), 1);
  EXPECT_FALSE(ahead.came()) << "worker 2 has spent none";
  Take(Worker(2), 1);
  EXPECT_FALSE(ahead.came()) << "to hold one is not to have spent it";
  Book(Worker(2), 1);
  EXPECT_EQ(Index(ahead), 5u);
  EXPECT_FALSE(Take(Worker(0), 5).came()) << "4 > 2 + 1";
}

TEST_F(CoordinatorTest, WhoWaitsForTheSlowestIsToldWhoHoldsTickets) {
  StartTraining(Bounded(0));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  const auto waits = Take(Worker(0), 2, {Spent(1)});
  Pass(absl::Seconds(1), AllTasks());
  EXPECT_EQ(waits->waiting_for(), "/job:worker/task:1 (host-of-worker1:77)");
  EXPECT_TRUE(Empty(waits));
}

TEST_F(CoordinatorTest, WhoJoinsLaterBeginsAtTheSlowest) {
  Make(1, 3);
  Join(Worker(0));
  Join(Worker(1));
  Declare(Bounded(1));
  PuppetLinks::AnswerAll(links_->restores);
  uint64_t sequence[2] = {0, 0};
  const auto push = [&](uint32_t worker) {
    ++sequence[worker];
    EXPECT_TRUE(Take(Worker(worker), sequence[worker])->has_ticket());
    Book(Worker(worker), sequence[worker]);
  };
  for (int i = 0; i < 5; ++i) {
    push(0);
    push(1);
  }
  push(0);
  // Worker 0 has spent 6, worker 1 5; the newcomer counts as 5, not as 0 or 6.
  Join(Worker(2));
  push(1);
  EXPECT_TRUE(Take(Worker(0), 7)->has_ticket()) << "6 <= 1 + 5";
  EXPECT_FALSE(Take(Worker(0), 8).came()) << "7 > 1 + 5";
  EXPECT_TRUE(Take(Worker(2), 1)->has_ticket());
  EXPECT_TRUE(Take(Worker(2), 2)->has_ticket());
  Book(Worker(2), 1);
  // The newcomer is at 6, and may go to 7.
  Take(Worker(2), 3);
  Book(Worker(2), 2);
  EXPECT_FALSE(Take(Worker(2), 4).came()) << "8 > 1 + 6";
}

TEST_F(CoordinatorTest, AWorkerThatIsGoneHoldsNobodyBack) {
  for (const bool by_leaving : {false, true}) {
    SCOPED_TRACE(by_leaving);
    Make(1, 3);
    StartTraining(Bounded(0));
    for (const uint32_t worker : {0, 1}) {
      Take(Worker(worker), 1);
      Book(Worker(worker), 1);
    }
    proto::TakeTicketRequest request = TakeOf(Worker(0), 2);
    request.set_wait_ms(30000);
    const auto waits = Take(request);
    EXPECT_FALSE(waits.came());
    if (by_leaving) {
      Leave(Worker(2));
    } else {
      Pass(kLease, AllBut(Worker(2)));
    }
    // No shard has confirmed anything yet.
    EXPECT_EQ(Index(waits), 2u);
    EXPECT_THAT(links_->resolves, IsEmpty());
  }
}

// ---- Re-entrancy ----

// Each answer to a repeated request asks again; nevertheless each push gets one
// ticket.
TEST_F(CoordinatorTest, AnAnswerMayAskForTheSameAgain) {
  StartTraining(Bounded(0));
  Take(Worker(0), 1);
  int answers = 0;
  std::function<void(int)> ask = [&](int again) {
    Send(TakeOf(Worker(0), 2),
         [&, again](absl::StatusOr<proto::TakeTicketResponse> response) {
           ASSERT_TRUE(response.ok()) << response.status();
           ++answers;
           if (again > 0) ask(again - 1);
         });
  };
  ask(1);
  ask(1);
  EXPECT_GT(answers, 0);
  Book(Worker(0), 1);
  Take(Worker(1), 1);
  Book(Worker(1), 1);
  EXPECT_EQ(Index(Take(Worker(0), 2)), 2u);
  EXPECT_EQ(Index(Take(Worker(1), 2)), 3u);
}

// Worker 1 leaves from inside the answer that its own booking releases.
TEST_F(CoordinatorTest, WhoIsShutOutByAnAnswerGetsNoTicket) {
  StartTraining(Bounded(0, 3));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  Book(Worker(0), 1);
  Send(TakeOf(Worker(0), 2),
       [&](absl::StatusOr<proto::TakeTicketResponse>) { Leave(Worker(1)); });
  const auto shut_out = Take(Worker(1), 2, {Spent(1)});
  EXPECT_EQ(shut_out->verdict(), proto::FENCED);
  EXPECT_TRUE(Empty(shut_out));
  PuppetLinks::AnswerAll(links_->fences);
  PuppetLinks::AnswerAll(links_->resolves);
  Book(Worker(0), 2);
  EXPECT_EQ(state().phase(), proto::DONE);
}

TEST_F(CoordinatorTest, TicketAnswersMayCallBack) {
  // Workers that take and book from inside the answers: the whole job in two
  // calls.
  Make(1, 2);
  QuickLinks links;
  Begin(&links);
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare(Bounded(1, 8)).status().ok());
  std::vector<uint64_t> indices;
  std::function<void(uint32_t, uint64_t)> run = [&](uint32_t w, uint64_t s) {
    std::vector<proto::SpentTicket> spent;
    if (s > 1) spent.push_back(Spent(s - 1));
    Send(TakeOf(Worker(w), s, spent),
         [&, w, s](absl::StatusOr<proto::TakeTicketResponse> response) {
           ASSERT_TRUE(response.ok()) << response.status();
           if (!response->has_ticket()) {
             EXPECT_EQ(response->state().phase(), proto::DONE);
             Leave(Worker(w));
             return;
           }
           indices.push_back(response->ticket().index());
           run(w, s + 1);
         });
  };
  run(0, 1);
  run(1, 1);
  EXPECT_THAT(indices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(finished());
}

}  // namespace
}  // namespace holdfast
