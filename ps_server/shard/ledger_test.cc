#include "ps_server/shard/ledger.h"

#include <optional>

#include "common/rpc_limits.h"
#include "common/task_id.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing.h"

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

  // It does not come back, by a verdict that is late or by a lower mark.
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
                    absl::StatusCode::kResourceExhausted,
                    {"push 4097 of /job:worker/task:1 (incarnation 2)", "4096",
                     "acked_through, 0"}));

  ledger.AckThrough(kLife, PushSequence(10));
  EXPECT_TRUE(ledger.CheckInWindow(Push(11)).ok());
  EXPECT_TRUE(ledger.CheckInWindow(Push(kMaxUnacknowledgedPushes + 10)).ok());
  EXPECT_TRUE(Fails(ledger.CheckInWindow(Push(kMaxUnacknowledgedPushes + 11)),
                    absl::StatusCode::kResourceExhausted,
                    {"acked_through, 10"}));
  // Another worker's window has not moved.
  EXPECT_FALSE(ledger
                   .CheckInWindow(Push(kMaxUnacknowledgedPushes + 1,
                                       {{kWorkerJob, 0}, Incarnation(1)}))
                   .ok());
}

// As of a worker all of whose pushes are of weight 0, and reach no shard.
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
