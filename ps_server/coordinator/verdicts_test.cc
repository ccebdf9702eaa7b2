// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/verdicts.h"

#include <string>

#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

constexpr absl::StatusCode kNotProven = absl::StatusCode::kFailedPrecondition;

const PushId kPush{{{kWorkerJob, 0}, Incarnation(1)}, PushSequence(4)};

class VerdictsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    proto::Declaration declaration;
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name("w");
    variable.add_shape(4);
    variable.set_dtype(proto::FLOAT32);
    ASSERT_TRUE(declared_.Set(declaration).ok());
  }
  // The receipts that ps 0, which holds everything, gives in that generation.
  Receipts ReceiptsOf(Generation generation) {
    const std::string key =
        verdicts_.MakeReceipts(secret_, generation, declared_, 1);
    return Receipts(key, generation, *declared_,
                    {declared_.slices().begin(), declared_.slices().end()}, 1);
  }

  const std::string secret_ = std::string(Receipts::kKeyBytes, 's');
  JobDeclaration declared_{1, 1, false};
  Verdicts verdicts_;
};

TEST_F(VerdictsTest, TheFirstVerdictStands) {
  EXPECT_FALSE(verdicts_.Find(kPush).has_value());
  verdicts_.Record(kPush, proto::ACCEPTED);
  verdicts_.Record(kPush, proto::STALE);
  EXPECT_EQ(verdicts_.Find(kPush), proto::ACCEPTED);
  verdicts_.AckThrough(kPush.from, kPush.sequence);
  EXPECT_EQ(verdicts_.size(), 0u);
  EXPECT_EQ(verdicts_.Find(kPush), proto::STALE) << "its worker knew";
  verdicts_.Forget(kPush.from);
  EXPECT_FALSE(verdicts_.Find(kPush).has_value());
}

TEST_F(VerdictsTest, AGenerationTakesItsVerdictsAlong) {
  verdicts_.Record(kPush, proto::ACCEPTED);
  verdicts_.Reset();
  EXPECT_FALSE(verdicts_.Find(kPush).has_value());
}

TEST_F(VerdictsTest, WhatChangesSomethingIsProvenToBeHeld_P1) {
  const Receipts receipts = ReceiptsOf(Generation(2));
  proto::ContributeRequest request;
  request.set_step(3);
  request.set_examples(10);
  EXPECT_TRUE(Fails(verdicts_.CheckHeld(request, kPush), kNotProven,
                    {"/job:ps/task:0", "missing"}));
  request.add_receipts(receipts.Held(0, kPush, GlobalStep(3)));
  EXPECT_TRUE(verdicts_.CheckHeld(request, kPush).ok());
  request.set_step(4);
  EXPECT_TRUE(
      Fails(verdicts_.CheckHeld(request, kPush), kNotProven, {"wrong"}));
  request.set_clip_factor(0);
  EXPECT_TRUE(verdicts_.CheckHeld(request, kPush).ok()) << "changes nothing";
}

TEST_F(VerdictsTest, WhatIsSpentIsProvenToBeApplied_P3) {
  const Receipts old = ReceiptsOf(Generation(1));
  const Receipts receipts = ReceiptsOf(Generation(2));
  proto::SpentTicket spent;
  spent.add_receipts(old.Applied(0, kPush));
  EXPECT_TRUE(Fails(verdicts_.CheckSpent(spent, kPush), kNotProven,
                    {"wrong", "so its worker is fenced"}));
  spent.set_receipts(0, receipts.Applied(0, kPush));
  EXPECT_TRUE(verdicts_.CheckSpent(spent, kPush).ok());
}

}  // namespace
}  // namespace holdfast
