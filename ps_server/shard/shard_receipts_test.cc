// SPDX-License-Identifier: Apache-2.0

// Which receipts a shard gives, and which it asks for
// (docs/protocol/life_of_a_step.md, P1 and P4; docs/protocol/asynchronous.md,
// P2 and P3).
#include <string>
#include <utility>

#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

using SynchronousReceiptsTest = ShardTest;
using AsynchronousReceiptsTest = AsynchronousShardTest;

TEST_F(SynchronousReceiptsTest, AWholePushIsAcknowledgedWithAReceipt_P1) {
  Restore();
  const auto part = [&](uint32_t i) {
    return i == 0 ? Part(0, 1, 0, {Tensor("w", {2, 2}, {1, 1, 1, 1})}, 0, 2)
                  : Part(0, 1, 0, {Tensor("b", {2}, {1, 1})}, 1, 2);
  };
  const PushId push{{{kWorkerJob, 0}, Incarnation(1)}, PushSequence(1)};
  const uint64_t receipt = ReceiptsOf().Held(kThisPs, push, GlobalStep(0));
  EXPECT_EQ(Push(part(1))->receipt(), 0u);
  EXPECT_EQ(Push(part(1))->receipt(), 0u) << "again";
  EXPECT_EQ(Push(part(0))->receipt(), receipt);
  // Sent again because the answer was lost.
  EXPECT_EQ(Push(part(0))->receipt(), receipt);
  EXPECT_EQ(Push(part(1))->receipt(), receipt);
  // Another push, and the same of another step, have others.
  Commit(0, {{0, 1, 1}});
  EXPECT_EQ(Push(part(0))->receipt(), 0u) << "decided";
  EXPECT_NE(Push(Whole(0, 2, 1, 1))->receipt(), receipt);
}

// This shard has no trainable slice.
TEST_F(SynchronousReceiptsTest, WhoHoldsNothingOfAPushNeedsNothingOfIt_P4) {
  proto::RestoreRequest restore = MakeRestore();
  restore.mutable_slices(0)->set_ps(0);
  restore.mutable_slices(2)->set_ps(0);
  Restore(restore);
  Commit(0, {{0, 1, 1}});
  EXPECT_EQ(shard_.version(), GlobalStep(1));
  // Nothing is decided or kept here, whatever the step.
  for (const uint64_t step : {0, 1, 2}) {
    const auto answer = Push(Part(0, 1, step, {}));
    EXPECT_TRUE(answer.status().ok()) << answer.status();
    EXPECT_EQ(answer->verdict(), proto::VERDICT_UNSPECIFIED);
    EXPECT_EQ(answer->receipt(), 0u);
  }
  EXPECT_TRUE(Fails(Push(Whole(0, 2, 1, 1)).status(), kInvalid, {"\"w\""}));
  EXPECT_EQ(shard_.verdicts_kept(), 0u);
  EXPECT_EQ(shard_.staged_bytes(), 0);
}

TEST_F(AsynchronousReceiptsTest, AnApplicationHasAReceipt_P3) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 2));
  const PushId push{{{kWorkerJob, 0}, Incarnation(1)}, PushSequence(1)};
  const uint64_t receipt = ReceiptsOf().Applied(kThisPs, push);
  EXPECT_EQ(Apply(0, 1)->receipt(), receipt);
  EXPECT_EQ(Apply(0, 1)->receipt(), receipt) << "again";
  const auto parked = Apply(NothingOf(0, 3));
  EXPECT_FALSE(Apply(0, 4).came());
  EXPECT_NE(Apply(NothingOf(0, 2))->receipt(), receipt);
  EXPECT_NE(parked->receipt(), 0u);
}

TEST_F(AsynchronousReceiptsTest, APushIsAppliedWhenTheOthersHoldIt_P2) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 2));
  const proto::ApplyRequest good = ApplyOf(0, 1);
  const auto refused = [&](const proto::ApplyRequest& request,
                           const std::string& why) {
    return Fails(Ask(shard_, &Shard::Apply, request).status(), kNotReady,
                 {"push 1 of /job:worker/task:0", why});
  };
  proto::ApplyRequest bad = good;
  bad.clear_receipts();
  EXPECT_TRUE(refused(bad, "held whole by /job:ps/task:2: its receipt is mis"));
  bad = good;
  bad.set_receipts(2, good.receipts(1));
  EXPECT_TRUE(refused(bad, "held whole by /job:ps/task:2: its receipt is wro"));
  bad = good;
  bad.set_receipts(2, ApplyOf(0, 2).receipts(2));
  EXPECT_TRUE(refused(bad, "/job:ps/task:2"));
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  // ps 0 holds nothing of the push, and this ps knows what it holds itself.
  proto::ApplyRequest enough = good;
  enough.set_receipts(0, 0);
  enough.set_receipts(1, 0);
  EXPECT_EQ(Ask(shard_, &Shard::Apply, enough)->verdict(), proto::ACCEPTED);
  // A push that changes nothing needs no receipts.
  proto::ApplyRequest nothing = NothingOf(0, 2);
  nothing.clear_receipts();
  EXPECT_EQ(Ask(shard_, &Shard::Apply, nothing)->verdict(), proto::ACCEPTED);
}

TEST_F(AsynchronousReceiptsTest, ScalarsAreThoseOfTheTicket_P2) {
  RestoreAsynchronous();
  Stage(Whole(0, 1, 0, 2));
  const proto::ApplyRequest good = ApplyOf(0, 1);
  proto::ApplyRequest bad = good;
  bad.mutable_scalars(0)->set_learning_rate(1e9f);
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Apply, bad).status(), kNotReady,
                    {"push 1 of /job:worker/task:0", "receipt is wrong"}));
  bad = good;
  bad.clear_ticket_receipt();
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Apply, bad).status(), kNotReady,
                    {"receipt is missing"}));
  bad.set_ticket_receipt(ApplyOf(1, 1).ticket_receipt());
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Apply, bad).status(), kNotReady,
                    {"receipt is wrong"}))
      << "another worker's";
  // Even a push that changes nothing needs a ticket.
  bad = NothingOf(0, 1);
  bad.clear_ticket_receipt();
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Apply, bad).status(), kNotReady));
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  EXPECT_EQ(Ask(shard_, &Shard::Apply, good)->verdict(), proto::ACCEPTED);
}

// This shard has no trainable slice.
TEST_F(AsynchronousReceiptsTest, WhoHoldsNothingOfAPushIsAtEveryVersion_P4) {
  proto::RestoreRequest restore = MakeAsynchronous();
  restore.mutable_slices(0)->set_ps(0);
  restore.mutable_slices(2)->set_ps(0);
  Restore(restore);
  EXPECT_EQ(Push(Part(0, 7, 3, {}))->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_EQ(Apply(0, 7)->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Newest("frozen"), ElementsAre(3));
  proto::PullRequest pull = MakePull({"frozen"});
  pull.set_min_version(20);
  const auto pulled = Ask(shard_, &Shard::Pull, pull);
  EXPECT_EQ(pulled->version, GlobalStep(20));
  EXPECT_THAT(Values(pulled, 0), ElementsAre(3));
  // Pushes that others have applied do not concern it.
  EXPECT_EQ(Told(*Fence({Life(0)})), "");
  EXPECT_TRUE(Resolve({Life(0)}, {Applied(Life(0), 5)}).status().ok());
  EXPECT_EQ(shard_.verdicts_kept(), 0u);
  Ask(shard_, &Shard::Hold, HoldOf(1));
  EXPECT_TRUE(Ask(shard_, &Shard::Save, SaveOf(1, 12, {Applied(Life(1), 4)}))
                  .status()
                  .ok());
  EXPECT_EQ(shard_.version(), GlobalStep(12));
}

}  // namespace
}  // namespace holdfast
