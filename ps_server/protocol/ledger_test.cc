// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/ledger.h"

#include <optional>

#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

const WorkerLife kLife = {{kWorkerJob, 1}, Incarnation(2)};

PushId Push(uint64_t sequence, const WorkerLife& from = kLife) {
  return {from, PushSequence(sequence)};
}

TEST(LedgerTest, KnowsNothingAtFirst) {
  const Ledger ledger;
  EXPECT_EQ(ledger.Find(Push(1)), std::nullopt);
}

TEST(LedgerTest, TheFirstVerdictStands) {
  Ledger ledger;
  ledger.Record(Push(1), proto::ACCEPTED);
  ledger.Record(Push(1), proto::STALE);
  ledger.Record(Push(2), proto::DUPLICATE);
  EXPECT_EQ(ledger.Find(Push(1)), proto::ACCEPTED);
  EXPECT_EQ(ledger.Find(Push(2)), proto::DUPLICATE);
  EXPECT_EQ(ledger.Find(Push(3)), std::nullopt);
}

TEST(LedgerTest, LivesHaveVerdictsOfTheirOwn) {
  Ledger ledger;
  const WorkerLife next_life = {kLife.worker, Incarnation(3)};
  const WorkerLife neighbour = {{kWorkerJob, 2}, Incarnation(2)};
  const WorkerLife chief = {{kChiefJob, 1}, Incarnation(2)};
  ledger.Record(Push(1), proto::ACCEPTED);
  ledger.AckThrough(kLife, PushSequence(1));
  for (const WorkerLife& other : {next_life, neighbour, chief}) {
    EXPECT_EQ(ledger.Find(Push(1, other)), std::nullopt) << other.ToString();
  }
}

TEST(LedgerTest, WhatIsAcknowledgedIsForgottenAndStaysDecided) {
  Ledger ledger;
  ledger.Record(Push(1), proto::ACCEPTED);
  ledger.Record(Push(2), proto::ACCEPTED);
  ledger.Record(Push(3), proto::ACCEPTED);
  ledger.AckThrough(kLife, PushSequence(2));
  EXPECT_EQ(ledger.Find(Push(1)), proto::STALE);
  EXPECT_EQ(ledger.Find(Push(2)), proto::STALE);
  EXPECT_EQ(ledger.Find(Push(3)), proto::ACCEPTED);
  EXPECT_EQ(ledger.size(), 1u);

  // Neither a late verdict nor a lower mark brings it back.
  ledger.Record(Push(2), proto::ACCEPTED);
  ledger.AckThrough(kLife, PushSequence(1));
  EXPECT_EQ(ledger.Find(Push(2)), proto::STALE);
  ledger.AckThrough(kLife, PushSequence(0));
  EXPECT_EQ(ledger.Find(Push(1)), proto::STALE);
}

TEST(LedgerTest, AMarkOfNothingDecidesNothing) {
  Ledger ledger;
  ledger.AckThrough(kLife, PushSequence(0));
  EXPECT_EQ(ledger.Find(Push(1)), std::nullopt);
}

TEST(LedgerTest, TheWindowIsBounded) {
  Ledger ledger;
  // kMaxUnacknowledgedPushes sequences lie above the mark: 1 to 4096 above 0,
  // 11 to 4106 above 10.
  EXPECT_TRUE(ledger.CheckInWindow(Push(1)).ok());
  EXPECT_TRUE(ledger.CheckInWindow(Push(kMaxUnacknowledgedPushes)).ok());
  EXPECT_TRUE(Fails(ledger.CheckInWindow(Push(kMaxUnacknowledgedPushes + 1)),
                    absl::StatusCode::kFailedPrecondition,
                    {"push 4097 of /job:worker/task:1 (incarnation 2)",
                     "acked_through, 0", "a sequence from 1 to 4096"}));

  ledger.AckThrough(kLife, PushSequence(10));
  EXPECT_TRUE(ledger.CheckInWindow(Push(11)).ok());
  EXPECT_TRUE(ledger.CheckInWindow(Push(kMaxUnacknowledgedPushes + 10)).ok());
  EXPECT_TRUE(Fails(ledger.CheckInWindow(Push(kMaxUnacknowledgedPushes + 11)),
                    absl::StatusCode::kFailedPrecondition,
                    {"acked_through, 10", "a sequence from 11 to 4106"}));
  // Another worker's window has not moved.
  EXPECT_FALSE(ledger
                   .CheckInWindow(Push(kMaxUnacknowledgedPushes + 1,
                                       {{kWorkerJob, 0}, Incarnation(1)}))
                   .ok());
}

TEST(LedgerTest, DecisionsKeepWhatTheyWereMadeOf) {
  Ledger ledger;
  EXPECT_EQ(ledger.FindDecision(Push(1)), nullptr);
  EXPECT_TRUE(ledger.Kept(kLife).empty());
  ledger.Record(Push(1), {proto::ACCEPTED, 0.5f, 30, 7});
  ledger.Record(Push(1), {proto::STALE, 1, 1, 1});
  ledger.Record(Push(2), proto::ACCEPTED);
  const Decision* const decision = ledger.FindDecision(Push(1));
  ASSERT_NE(decision, nullptr);
  EXPECT_EQ(decision->verdict, proto::ACCEPTED) << "the first stands";
  EXPECT_EQ(decision->clip_factor, 0.5f);
  EXPECT_EQ(decision->examples, 30u);
  EXPECT_EQ(decision->staleness, 7u);
  EXPECT_EQ(ledger.Kept(kLife).size(), 2u);
  EXPECT_EQ(ledger.Kept(kLife).at(PushSequence(1)).examples, 30u);

  ledger.AckThrough(kLife, PushSequence(1));
  EXPECT_EQ(ledger.FindDecision(Push(1)), nullptr) << "forgotten";
  EXPECT_EQ(ledger.Kept(kLife).count(PushSequence(1)), 0u);
  EXPECT_EQ(ledger.Kept(kLife).count(PushSequence(2)), 1u);
  EXPECT_TRUE(ledger.Kept({kLife.worker, Incarnation(3)}).empty());
}

TEST(LedgerTest, DecidedThroughIsTheHighestDecision) {
  Ledger ledger;
  EXPECT_EQ(ledger.DecidedThrough(kLife), PushSequence(0));
  ledger.Record(Push(1), proto::ACCEPTED);
  ledger.Record(Push(2), proto::ACCEPTED);
  EXPECT_EQ(ledger.DecidedThrough(kLife), PushSequence(2));
  ledger.AckThrough(kLife, PushSequence(1));
  EXPECT_EQ(ledger.DecidedThrough(kLife), PushSequence(2));
  ledger.AckThrough(kLife, PushSequence(2));
  EXPECT_EQ(ledger.DecidedThrough(kLife), PushSequence(2))
      << "though forgotten";
  EXPECT_EQ(ledger.DecidedThrough({kLife.worker, Incarnation(3)}),
            PushSequence(0));
}

TEST(LedgerTest, ALifeThatIsForgottenLeavesNothing) {
  Ledger ledger;
  const WorkerLife other = {kLife.worker, Incarnation(3)};
  ledger.Record(Push(2), proto::ACCEPTED);
  ledger.AckThrough(kLife, PushSequence(1));
  ledger.Record(Push(1, other), proto::ACCEPTED);
  ledger.Forget(kLife);
  EXPECT_EQ(ledger.Find(Push(1)), std::nullopt);
  EXPECT_EQ(ledger.Find(Push(2)), std::nullopt);
  EXPECT_EQ(ledger.size(), 1u);
  EXPECT_EQ(ledger.Find(Push(1, other)), proto::ACCEPTED);
}

TEST(LedgerTest, TellsOfWhomItKnows) {
  Ledger ledger;
  EXPECT_TRUE(ledger.Lives().empty());
  const WorkerLife other = {kLife.worker, Incarnation(3)};
  ledger.Record(Push(2), proto::ACCEPTED);
  ledger.AckThrough(kLife, PushSequence(2));
  ledger.Record(Push(1, other), proto::ACCEPTED);
  ASSERT_EQ(ledger.Lives().size(), 2u);
  EXPECT_EQ(ledger.Lives()[0].incarnation, kLife.incarnation);
  EXPECT_EQ(ledger.Lives()[1].incarnation, other.incarnation);
  ledger.Forget(kLife);
  ASSERT_EQ(ledger.Lives().size(), 1u);
  EXPECT_EQ(ledger.Lives()[0].incarnation, other.incarnation);
}

// Like those of a worker whose pushes all have weight 0, and reach no shard.
TEST(LedgerTest, KeepsNoMoreVerdictsThanTheWindowHas) {
  Ledger ledger;
  for (uint64_t i = 1; i <= kMaxUnacknowledgedPushes + 2; ++i) {
    ledger.Record(Push(i), proto::ACCEPTED);
  }
  EXPECT_EQ(ledger.size(), kMaxUnacknowledgedPushes);
  EXPECT_EQ(ledger.Find(Push(2)), proto::STALE) << "forgotten";
  EXPECT_EQ(ledger.Find(Push(3)), proto::ACCEPTED);
  EXPECT_EQ(ledger.Find(Push(kMaxUnacknowledgedPushes + 2)), proto::ACCEPTED);
  EXPECT_TRUE(ledger.CheckInWindow(Push(kMaxUnacknowledgedPushes + 2)).ok());
}

}  // namespace
}  // namespace holdfast
