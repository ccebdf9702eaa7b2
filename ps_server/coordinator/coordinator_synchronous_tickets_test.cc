// SPDX-License-Identifier: Apache-2.0

// Tickets of synchronous jobs (docs/protocol/life_of_a_step.md).
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(CoordinatorTest, SynchronousTicketsFixExamplesAlone) {
  StartTraining(ByTicket(2, 2, 8));
  const auto zero = Take(Worker(0), 1);
  EXPECT_EQ(Index(zero), 0u);
  EXPECT_THAT(zero->ticket().scalars(), IsEmpty());
  EXPECT_EQ(zero->global_step(), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
  Offer(Worker(1), 0, 1, 1);
  EXPECT_EQ(Offer(Worker(0), 0, 0, 1)->verdict(), proto::ACCEPTED);
  // The step determines the rate, whatever the tickets.
  EXPECT_EQ(Commit().scalars(0).learning_rate(), 0.1f);
  const auto next = Take(Worker(1), 2);
  EXPECT_EQ(Index(next), 2u);
  EXPECT_EQ(next->global_step(), 1u) << "the open step";
}

TEST_F(CoordinatorTest, AnOfferNeedsItsTicket) {
  StartTraining(ByTicket(2, 2, 8));
  EXPECT_TRUE(Fails(Offer(Worker(0), 0, 0, 1).status(), kInvalid,
                    {"push 1 of /job:worker/task:0", "has no ticket"}));
  Take(Worker(0), 2);
  EXPECT_TRUE(
      Fails(Offer(Worker(0), 0, 0, 1).status(), kInvalid, {"has no ticket"}))
      << "that of its own sequence";
  EXPECT_FALSE(Offer(Worker(0), 0, 0, 2).came());
}

TEST_F(CoordinatorTest, ATicketIsSpentByContributeAlone) {
  StartTraining(ByTicket(2, 2, 8));
  Take(Worker(0), 1);
  EXPECT_TRUE(
      Fails(Book(Worker(0), 1).status(), kInvalid, {"spent by Contribute"}));
  EXPECT_FALSE(Offer(Worker(0), 0, 0, 1).came());
}

TEST_F(CoordinatorTest, AVerdictOtherThanAcceptedReturnsTheTicket) {
  Make(1, 3);
  StartTraining(ByTicket(2, 3, 20));
  for (const uint32_t worker : {0, 1, 2}) {
    EXPECT_EQ(Index(Take(Worker(worker), 1)), worker);
  }
  Offer(Worker(0), 0, 0, 1);
  Offer(Worker(2), 0, 2, 1);
  ASSERT_THAT(links_->commits, SizeIs(1));
  // Too late for its step: its examples are used next.
  EXPECT_EQ(Offer(Worker(1), 0, 1, 1)->verdict(), proto::STALE);
  EXPECT_EQ(Index(Take(Worker(2), 2)), 1u);
  EXPECT_EQ(Index(Take(Worker(0), 2)), 3u) << "0 and 2 are spent";
  EXPECT_EQ(Offer(Worker(1), 0, 1, 1)->verdict(), proto::STALE);
  EXPECT_TRUE(Fails(Take(Worker(1), 1).status(), kInvalid, {"is over"}));
  AckCommits();

  // A second push to a seat.
  Offer(Worker(0), 1, 0, 2);
  EXPECT_EQ(Index(Take(Worker(1), 2)), 4u);
  Make(1, 1);
  StartTraining(ByTicket(2, 1, 20));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  Offer(Worker(0), 0, 0, 1);
  EXPECT_EQ(Offer(Worker(0), 0, 0, 2)->verdict(), proto::DUPLICATE);
  EXPECT_EQ(Index(Take(Worker(0), 3)), 1u);
}

TEST_F(CoordinatorTest, AReturnedTicketGoesToWhoWaits) {
  Make(1, 3);
  StartTraining(ByTicket(2, 3, 3));
  for (const uint32_t worker : {0, 1, 2}) Take(Worker(worker), 1);
  Offer(Worker(0), 0, 0, 1);
  Offer(Worker(1), 0, 1, 1);
  AckCommits();
  const auto waits = Take(Worker(0), 2);
  EXPECT_FALSE(waits.came());
  EXPECT_EQ(Offer(Worker(2), 0, 2, 1)->verdict(), proto::STALE);
  EXPECT_EQ(Index(waits), 2u);
}

TEST_F(CoordinatorTest, ASynchronousWorkerHoldsAsManyTicketsAsSeats) {
  const struct {
    uint32_t n, m;
    uint64_t tickets;
  } kCases[] = {{2, 2, 1}, {1, 2, 1}, {6, 2, 3}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::Message() << "N " << c.n << ", M " << c.m);
    Make(1, c.m);
    StartTraining(ByTicket(c.n, c.m, 100));
    for (uint64_t i = 1; i <= c.tickets; ++i) {
      EXPECT_EQ(Index(Take(Worker(0), i)), i - 1);
    }
    EXPECT_TRUE(Fails(Take(Worker(0), c.tickets + 1).status(), kExhausted,
                      {absl::StrCat("at most ", c.tickets)}));
  }
}

TEST_F(CoordinatorTest, TheLastStepClosesBelowNWhenNothingElseCanCome) {
  StartTraining(ByTicket(2, 2, 3));
  for (const uint32_t worker : {0, 1}) Take(Worker(worker), 1);
  OfferBoth(0);
  AckCommits();
  EXPECT_EQ(Index(Take(Worker(1), 2)), 2u);
  const auto parked = Take(Worker(0), 2);
  EXPECT_FALSE(parked.came());
  const auto last = Offer(Worker(1), 1, 1, 2);
  EXPECT_EQ(last->verdict(), proto::ACCEPTED);
  EXPECT_EQ(S(Commit()), "1:worker1#2*1");
  EXPECT_FALSE(parked.came()) << "no shard has committed it";
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Leave(Worker(1))->state().phase(), proto::TRAINING)
      << "who has seen the last version may leave";
  AckCommits();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(Empty(parked));
  EXPECT_EQ(parked->state().phase(), proto::DONE);
  EXPECT_EQ(Status().global_step(), 2u);
  EXPECT_EQ(Status().pushes().accepted(), 3u);
}

TEST_F(CoordinatorTest, AStepDoesNotCloseBelowNWhileATicketIsElsewhere) {
  Make(1, 3);
  StartTraining(ByTicket(3, 3, 5));
  for (const uint32_t worker : {0, 1, 2}) Take(Worker(worker), 1);
  for (const uint32_t worker : {0, 1, 2}) Offer(Worker(worker), 0, worker, 1);
  AckCommits();
  Take(Worker(0), 2);
  const auto first = Offer(Worker(0), 1, 0, 2);
  EXPECT_FALSE(first.came()) << "one is left";
  Take(Worker(1), 2);
  EXPECT_FALSE(first.came()) << "one is out with worker 1";
  EXPECT_THAT(links_->commits, IsEmpty());
  Pass(absl::Seconds(1), AllTasks());
  EXPECT_EQ(first->waiting_for(), "/job:worker/task:1 (host-of-worker1:77)")
      << "not worker 2, who has none";
  Offer(Worker(1), 1, 1, 2);
  EXPECT_EQ(S(Commit()), "0:worker0#2*0.5 1:worker1#2*0.5");
}

// The last ticket is out with a worker that is late: the ticket is returned.
TEST_F(CoordinatorTest, ALateWorkersTicketMakesTheLastStep) {
  Make(1, 2);
  StartTraining(ByTicket(1, 2, 2));
  for (const uint32_t worker : {0, 1}) Take(Worker(worker), 1);
  Offer(Worker(0), 0, 0, 1);
  AckCommits();
  const auto waits = Take(Worker(0), 2);
  EXPECT_EQ(Offer(Worker(1), 0, 1, 1)->verdict(), proto::STALE);
  EXPECT_EQ(Index(waits), 1u);
  EXPECT_EQ(Offer(Worker(0), 1, 0, 2)->verdict(), proto::ACCEPTED);
  AckCommits();
  EXPECT_EQ(state().phase(), proto::DONE);
}

TEST_F(CoordinatorTest, ALostWorkerEndsASynchronousJobByTicketToo) {
  recovery_timeout_ = absl::ZeroDuration();
  StartTraining(ByTicket(2, 2, 8));
  Take(Worker(1), 1);
  Pass(kLease, AllBut(Worker(1)));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(links_->fences, IsEmpty());
  EXPECT_THAT(state().reason(), HasSubstr("/job:worker/task:1"));
}

}  // namespace
}  // namespace holdfast
