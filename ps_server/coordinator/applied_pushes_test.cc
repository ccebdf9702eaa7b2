// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/applied_pushes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::Key;

PushId Push(uint32_t worker, uint64_t sequence) {
  return {{{kWorkerJob, worker}, Incarnation(1)}, PushSequence(sequence)};
}

class AppliedPushesTest : public ::testing::Test {
 protected:
  // A shard reports one push.
  void Add(const PushId& push, uint64_t staleness, uint64_t examples = 10,
           bool not_finite = false) {
    AppliedPushes::Message told;
    proto::AppliedPush& one = *told.Add();
    one.mutable_from()->mutable_worker()->set_job(push.from.worker.job);
    one.mutable_from()->mutable_worker()->set_index(push.from.worker.index);
    one.mutable_from()->set_incarnation(push.from.incarnation.value());
    one.set_sequence(push.sequence.value());
    one.set_clip_factor(0.5f);
    one.set_examples(examples);
    one.set_staleness(staleness);
    one.set_not_finite(not_finite);
    applied_.Add(told);
  }

  AppliedPushes applied_;
};

TEST_F(AppliedPushesTest, WhatAnyShardHasAppliedCounts) {
  Add(Push(1, 4), 0);
  Add(Push(0, 7), 0);
  Add(Push(1, 4), 0);
  EXPECT_THAT(applied_.pushes(), ElementsAre(Key(Push(0, 7)), Key(Push(1, 4))));
  EXPECT_TRUE(applied_.Contains(Push(1, 4)));
  EXPECT_FALSE(applied_.Contains(Push(1, 5)));
  applied_.Clear();
  EXPECT_FALSE(applied_.Contains(Push(1, 4)));
}

// Each shard sees how far behind the push was on its own.
TEST_F(AppliedPushesTest, ItWasAsStaleAsOnTheShardWhereItWasStalest) {
  for (const uint64_t staleness : {2, 5, 3}) Add(Push(0, 1), staleness);
  EXPECT_EQ(applied_.pushes().at(Push(0, 1)).staleness(), 5u);
}

TEST_F(AppliedPushesTest, AShardIsToldTheScalarsOfTheTicket) {
  proto::Declaration declaration;
  for (const float rate : {0.5f, 2.f}) {
    proto::Optimizer& optimizer = *declaration.add_optimizers();
    optimizer.set_learning_rate(rate);
    optimizer.mutable_adam()->set_beta1(0.5f);
    optimizer.mutable_adam()->set_beta2(0.25f);
  }
  Add(Push(0, 1), 0);
  AppliedPushes::Message told;
  // Twice: the first time leaves nothing behind.
  for (int i = 0; i < 2; ++i) {
    applied_.Tell(Push(0, 1), /*index=*/1, declaration, LearningState(),
                  /*rate_factor=*/1, &told);
  }
  ASSERT_EQ(told.size(), 2);
  const proto::AppliedPush& one = told.Get(1);
  EXPECT_EQ(one.sequence(), 1u);
  EXPECT_EQ(one.clip_factor(), 0.5f);
  ASSERT_EQ(one.scalars_size(), 2);
  EXPECT_EQ(one.scalars(0).learning_rate(), 0.5f);
  EXPECT_EQ(one.scalars(1).learning_rate(), 2);
  // 1 - beta^2: the ticket after the first is the second update.
  EXPECT_EQ(one.scalars(0).bias_correction1(), 0.75f);
  EXPECT_EQ(one.scalars(0).bias_correction2(), 0.9375f);
}

TEST_F(AppliedPushesTest, ItCountsAsIfItsWorkerHadToldOfIt) {
  proto::Declaration declaration;
  declaration.mutable_loss_scale()->set_initial(8);
  declaration.mutable_loss_scale()->set_growth_interval(100);
  LearningState learning(declaration, proto::Position());
  Progress progress;
  Add(Push(0, 1), /*staleness=*/3);
  Add(Push(1, 1), /*staleness=*/0, /*examples=*/0, /*not_finite=*/true);
  TicketPool::Out ticket;
  ticket.loss_scale = 8;
  applied_.Count(Push(0, 1), ticket, &progress, &learning);
  EXPECT_EQ(learning.loss_scale(), 8);
  applied_.Count(Push(1, 1), ticket, &progress, &learning);
  EXPECT_LT(learning.loss_scale(), 8) << "the second was not finite";

  proto::GetStatusResponse status;
  progress.AddTo(&status);
  EXPECT_EQ(status.examples(), 10u);
  EXPECT_EQ(status.pushes().accepted(), 2u);
  EXPECT_EQ(status.pushes().not_finite(), 1u);
  ASSERT_EQ(status.staleness_size(), 2);
  EXPECT_EQ(status.staleness(1).staleness(), 3u);
  EXPECT_EQ(status.staleness(1).pushes(), 1u);
  EXPECT_EQ(status.train_loss(), 0) << "nobody knows their losses";
}

}  // namespace
}  // namespace holdfast
