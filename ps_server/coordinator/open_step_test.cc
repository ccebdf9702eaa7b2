// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/open_step.h"

#include <string>

#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

TaskId Worker(uint32_t index) { return {kWorkerJob, index}; }
WorkerLife Life(uint32_t worker) { return {Worker(worker), Incarnation(1)}; }

class OpenStepTest : public ::testing::Test {
 protected:
  // Opens step 3, with N = `n` and M = `m`.
  void Open(uint32_t n, uint32_t m, bool continues = false) {
    proto::Declaration declaration;
    auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
    mode.set_replicas_to_aggregate(n);
    mode.set_total_num_replicas(m);
    declaration.set_total_tickets(2);
    declaration.mutable_lost_workers()->set_policy(
        continues ? proto::LostWorkers::CONTINUE : proto::LostWorkers::WAIT);
    ASSERT_TRUE(declared_.Set(declaration).ok());
    step_.Open(GlobalStep(3));
  }
  // An offer without examples, which needs no receipts.
  absl::StatusOr<proto::Verdict> Offer(uint32_t worker, uint64_t step = 3,
                                       bool sealed = false) {
    proto::ContributeRequest request;
    request.set_step(step);
    request.set_seat(worker);
    return step_.Offer(request, {Life(worker), PushSequence(step + 1)}, worker,
                       sealed, tickets_, verdicts_);
  }
  bool IsComplete(bool short_handed = true) const {
    return step_.IsComplete(tickets_, short_handed);
  }

  JobDeclaration declared_{1, 3, false};
  TicketBook tickets_{&declared_};
  Verdicts verdicts_;
  OpenStep step_{&declared_};
};

TEST_F(OpenStepTest, NOffersCompleteIt) {
  Open(2, 3);
  EXPECT_FALSE(IsComplete());
  EXPECT_EQ(*Offer(0), proto::VERDICT_UNSPECIFIED);
  EXPECT_FALSE(IsComplete());
  EXPECT_EQ(*Offer(0), proto::VERDICT_UNSPECIFIED) << "asked again";
  EXPECT_EQ(*Offer(2), proto::VERDICT_UNSPECIFIED);
  EXPECT_TRUE(IsComplete());
  EXPECT_EQ(*Offer(1), proto::STALE) << "N are there";
}

TEST_F(OpenStepTest, WhatIsLateOrTooEarly) {
  Open(2, 2);
  EXPECT_EQ(*Offer(0, 2), proto::STALE);
  EXPECT_TRUE(Fails(Offer(0, 4).status(), absl::StatusCode::kFailedPrecondition,
                    {"the open step is 3"}));
  EXPECT_EQ(*Offer(0, 3, /*sealed=*/true), proto::STALE);
}

TEST_F(OpenStepTest, AllMembersThatAreLeftCompleteIt) {
  Open(3, 3, /*continues=*/true);
  step_.SetMembers({{Worker(0), 0}, {Worker(1), 1}}, /*as_of=*/0);
  EXPECT_FALSE(IsComplete()) << "[S3] an empty step never closes";
  Offer(2).IgnoreError();
  EXPECT_FALSE(IsComplete());
  Offer(0).IgnoreError();
  EXPECT_FALSE(IsComplete()) << "nobody else's offer counts for worker 1's";
  step_.Remove(Life(1));
  EXPECT_FALSE(IsComplete(/*short_handed=*/false));
  EXPECT_TRUE(IsComplete());
}

TEST_F(OpenStepTest, WhoIsShutOutGivesItsSeatBack) {
  Open(2, 2);
  Offer(0).IgnoreError();
  step_.Remove(Life(0));
  EXPECT_EQ(step_.step().num_offers(), 0);
  EXPECT_EQ(*Offer(0), proto::VERDICT_UNSPECIFIED);
}

TEST_F(OpenStepTest, TheLastTicketsCompleteIt) {
  Open(3, 3);
  tickets_.Begin(proto::Position());
  for (const uint32_t worker : {0, 1}) {
    tickets_.OnJoined(Life(worker), worker);
    tickets_.parked()->ParkLatest(
        {Life(worker), PushSequence(4)}, [](const auto&) {}, absl::Time());
  }
  while (tickets_.GrantNext(0).has_value()) {
  }
  ASSERT_EQ(tickets_.pool().left(), 0u);
  EXPECT_TRUE(Fails(Offer(2).status(), absl::StatusCode::kInvalidArgument,
                    {"has no ticket"}));
  Offer(0).IgnoreError();
  EXPECT_FALSE(IsComplete());
  Offer(1).IgnoreError();
  EXPECT_TRUE(IsComplete()) << "nobody else can get one";
}

}  // namespace
}  // namespace holdfast
