// SPDX-License-Identifier: Apache-2.0

// How a push is made to count: by its offer, or by its application.
#include "client/follow_up.h"

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/testing/generation_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FollowUpTest : public GenerationTest {
 protected:
  ~FollowUpTest() override {
    if (calls_ != nullptr) calls_->Cancel();
  }

  void Make(bool asynchronous) {
    push_ = MakePush(MakeGeneration(2, 1 << 20, asynchronous));
    calls_ = std::make_unique<CallGroup>(push_.generation->context,
                                         push_.generation->sender);
    auto on_outcome = [this](const absl::StatusOr<Cluster::Outcome>& outcome) {
      EXPECT_FALSE(outcome_.has_value()) << "told twice";
      outcome_ = outcome;
    };
    follow_up_ = asynchronous
                     ? MakeApplication(&push_, calls_.get(), on_outcome)
                     : MakeOffer(&push_, calls_.get(), on_outcome);
    absl::MutexLock lock(&push_.context().mutex);
    for (uint32_t ps = 0; ps < 2; ++ps) {
      push_.generation->sequences.KeepReceipt(push_.sequence, ps, 101 + ps);
    }
  }
  static Contribution Of8Examples() {
    Contribution contribution;
    contribution.seat = 5;
    contribution.examples = 8;
    contribution.clip_factor = 0.5f;
    contribution.loss = 2.25;
    return contribution;
  }
  std::string Missing() {
    absl::MutexLock lock(&push_.context().mutex);
    return follow_up_->Missing();
  }
  static proto::ApplyResponse Applied(proto::Verdict verdict,
                                      uint64_t staleness, uint64_t receipt) {
    proto::ApplyResponse response;
    response.set_verdict(verdict);
    response.set_staleness(staleness);
    response.set_receipt(receipt);
    return response;
  }
  // The spent tickets that the next request for a ticket reports.
  std::vector<proto::SpentTicket> TakeSpent() {
    if (!transport_.Has(rpc::kTakeTicket)) {
      transport_.Pass(push_.context().timing.tell_spent);
    }
    if (!transport_.Has(rpc::kTakeTicket)) return {};
    const auto spent = transport_.Take(rpc::kTakeTicket).request.spent();
    return {spent.begin(), spent.end()};
  }

  PushFacts push_;
  std::unique_ptr<CallGroup> calls_;
  std::unique_ptr<FollowUp> follow_up_;
  std::optional<absl::StatusOr<Cluster::Outcome>> outcome_;
};

TEST_F(FollowUpTest, AnOfferIsMadeUntilThereIsAVerdict) {
  Make(/*asynchronous=*/false);
  follow_up_->Start(Of8Examples());
  auto first = transport_.Take(rpc::kContribute);
  EXPECT_EQ(first.request.step(), 7);
  EXPECT_EQ(first.request.seat(), 5);
  EXPECT_EQ(first.request.sequence(), 1);
  EXPECT_EQ(first.request.examples(), 8);
  EXPECT_EQ(first.request.clip_factor(), 0.5f);
  EXPECT_EQ(first.request.loss(), 2.25);
  EXPECT_THAT(first.request.receipts(), ElementsAre(101, 102));
  EXPECT_EQ(Missing(), "the verdict on push 1 by ps 0");

  proto::ContributeResponse waits;
  waits.set_global_step(7);
  waits.set_waiting_for("/job:worker/task:0");
  transport_.Pass(push_.context().timing.park);
  first.Answer(waits);
  EXPECT_EQ(Missing(),
            "the verdict on push 1 by ps 0; step 7 waits for "
            "/job:worker/task:0");
  EXPECT_FALSE(outcome_.has_value());

  proto::ContributeResponse accepted;
  accepted.set_verdict(proto::ACCEPTED);
  accepted.set_global_step(8);
  transport_.Take(rpc::kContribute).Answer(accepted);
  ASSERT_TRUE(outcome_.has_value() && outcome_->ok());
  EXPECT_EQ((*outcome_)->verdict, proto::ACCEPTED);
  EXPECT_EQ((*outcome_)->global_step, GlobalStep(8));
  EXPECT_EQ(follow_up_->next_version(), GlobalStep(8));
  EXPECT_TRUE(follow_up_->IsFollowed(proto::STALE));
  EXPECT_FALSE(follow_up_->IsFollowed(proto::FENCED));
  absl::MutexLock lock(&push_.context().mutex);
  EXPECT_EQ(push_.generation->sequences.acked_through(), push_.sequence);
}

TEST_F(FollowUpTest, AnOfferOfNothingProvesNothing) {
  Make(false);
  Contribution nothing;
  nothing.not_finite = true;
  follow_up_->Start(nothing);
  const auto request = transport_.Take(rpc::kContribute).request;
  EXPECT_THAT(request.receipts(), IsEmpty());
  EXPECT_TRUE(request.not_finite());
}

TEST_F(FollowUpTest, ADoneJobGivesNoVerdict) {
  Make(false);
  follow_up_->Start(Of8Examples());
  proto::ContributeResponse done;
  done.mutable_state()->set_phase(proto::DONE);
  transport_.Take(rpc::kContribute).Answer(done);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->status(),
            absl::FailedPreconditionError(
                "ps 0: the job is done, there is no verdict on push 1"));
}

TEST_F(FollowUpTest, AnOfferInAnExchangeSaysAndHearsTheSame) {
  Make(false);
  proto::PushPullRequest request;
  follow_up_->FillIn(Of8Examples(), &request);
  EXPECT_EQ(request.contribution().seat(), 5);
  EXPECT_EQ(request.contribution().examples(), 8);
  EXPECT_EQ(request.contribution().clip_factor(), 0.5f);
  EXPECT_EQ(request.contribution().loss(), 2.25);
  proto::PushPullResponse response;
  response.set_verdict(proto::STALE);
  response.set_global_step(9);
  follow_up_->Take(Of8Examples(), response);
  ASSERT_TRUE(outcome_.has_value() && outcome_->ok());
  EXPECT_EQ((*outcome_)->verdict, proto::STALE);
  EXPECT_EQ((*outcome_)->global_step, GlobalStep(9));
  EXPECT_THAT(transport_.names(), IsEmpty());
}

TEST_F(FollowUpTest, AnApplicationIsOverWhenAllShardsHaveMadeIt) {
  Make(/*asynchronous=*/true);
  follow_up_->Start(Of8Examples());
  auto first = transport_.Take(rpc::kApply, 0);
  EXPECT_EQ(first.request.sequence(), 1);
  EXPECT_EQ(first.request.scalars(0).learning_rate(), 0.5f);
  EXPECT_EQ(first.request.ticket_receipt(), 99);
  EXPECT_THAT(first.request.receipts(), ElementsAre(101, 102));
  EXPECT_EQ(first.request.clip_factor(), 0.5f);
  first.Answer(Applied(proto::ACCEPTED, 3, 201));
  EXPECT_FALSE(outcome_.has_value());

  proto::ApplyResponse waits;
  waits.set_waiting_for("push 0");
  transport_.Pass(push_.context().timing.park);
  transport_.Take(rpc::kApply, 1).Answer(waits);
  EXPECT_EQ(Missing(),
            "the application of push 1 by ps 1, which waits for push 0");
  transport_.Take(rpc::kApply, 1).Answer(Applied(proto::ACCEPTED, 2, 202));
  ASSERT_TRUE(outcome_.has_value() && outcome_->ok());
  EXPECT_EQ((*outcome_)->verdict, proto::ACCEPTED);
  EXPECT_EQ((*outcome_)->staleness, 3);
  EXPECT_TRUE(follow_up_->IsFollowed(proto::ACCEPTED));
  EXPECT_FALSE(follow_up_->IsFollowed(proto::STALE));

  const std::vector<proto::SpentTicket> spent = TakeSpent();
  ASSERT_EQ(spent.size(), 1);
  EXPECT_EQ(spent[0].sequence(), 1);
  EXPECT_EQ(spent[0].examples(), 8);
  EXPECT_EQ(spent[0].loss(), 2.25);
  EXPECT_EQ(spent[0].staleness(), 3);
  EXPECT_THAT(spent[0].receipts(), ElementsAre(201, 202));
}

TEST_F(FollowUpTest, WhatOneShardRefusesIsNotSpent) {
  Make(true);
  follow_up_->Start(Of8Examples());
  transport_.Take(rpc::kApply, 0).Answer(Applied(proto::FENCED, 0, 0));
  ASSERT_TRUE(outcome_.has_value() && outcome_->ok());
  EXPECT_EQ((*outcome_)->verdict, proto::FENCED);
  // The other answer is not reported.
  transport_.Take(rpc::kApply, 1).Answer(Applied(proto::FENCED, 0, 0));
  EXPECT_THAT(TakeSpent(), IsEmpty());
}

TEST_F(FollowUpTest, AnApplicationOfNothingChangesNothing) {
  Make(true);
  follow_up_->Start({});
  const auto request = transport_.Take(rpc::kApply, 0).request;
  EXPECT_TRUE(request.has_clip_factor());
  EXPECT_EQ(request.clip_factor(), 0);
  EXPECT_THAT(request.receipts(), IsEmpty());
  proto::PushPullRequest exchange;
  follow_up_->FillIn({}, &exchange);
  EXPECT_TRUE(exchange.application().has_clip_factor());
  EXPECT_EQ(exchange.application().clip_factor(), 0);
}

TEST_F(FollowUpTest, ADoneJobAppliesNothing) {
  Make(true);
  follow_up_->Start(Of8Examples());
  proto::ApplyResponse done;
  done.mutable_state()->set_phase(proto::DONE);
  transport_.Take(rpc::kApply, 1).Answer(done);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->status(),
            absl::FailedPreconditionError(
                "ps 1: the job is done, push 1 will not be applied"));
}

TEST_F(FollowUpTest, AnAsynchronousLossMustBeFinite) {
  Contribution contribution = Of8Examples();
  contribution.loss = HUGE_VAL;
  Make(false);
  EXPECT_EQ(follow_up_->Check(contribution), absl::OkStatus());
  Make(true);
  EXPECT_TRUE(absl::IsInvalidArgument(follow_up_->Check(contribution)));
  contribution.examples = 0;
  EXPECT_EQ(follow_up_->Check(contribution), absl::OkStatus());
}

}  // namespace
}  // namespace holdfast::client
