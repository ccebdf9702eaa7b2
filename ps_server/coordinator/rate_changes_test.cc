// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/rate_changes.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(RateChangesTest, HoldsFromAStepOnUntilTheNext) {
  RateChanges rates;
  EXPECT_EQ(rates.FactorAt(0), 1);
  ASSERT_TRUE(rates.Add(10, 0.5).ok());
  ASSERT_TRUE(rates.Add(20, 0.25).ok());
  EXPECT_EQ(rates.FactorAt(9), 1);
  EXPECT_EQ(rates.FactorAt(10), 0.5);
  EXPECT_EQ(rates.FactorAt(19), 0.5);
  EXPECT_EQ(rates.FactorAt(1000), 0.25);
  // An earlier change leaves them alone; one at the same step replaces its
  // predecessor.
  ASSERT_TRUE(rates.Add(5, 2).ok());
  ASSERT_TRUE(rates.Add(10, 3).ok());
  EXPECT_EQ(rates.FactorAt(7), 2);
  EXPECT_EQ(rates.FactorAt(12), 3);
  EXPECT_EQ(rates.FactorAt(20), 0.25);
}

TEST(RateChangesTest, GoesThroughTheJournal) {
  RateChanges rates;
  ASSERT_TRUE(rates.Add(20, 0.25).ok());
  ASSERT_TRUE(rates.Add(10, 0.5).ok());
  proto::Journal journal;
  rates.AddTo(journal.mutable_learning_rate_changes());
  ASSERT_EQ(journal.learning_rate_changes_size(), 2);
  EXPECT_EQ(journal.learning_rate_changes(0).step(), 10u);
  RateChanges again;
  again.TakeUp(journal);
  EXPECT_EQ(again.FactorAt(15), 0.5);
  EXPECT_EQ(again.FactorAt(25), 0.25);
}

TEST(RateChangesTest, ThereIsAnEndToThem) {
  RateChanges rates;
  for (size_t i = 0; i < RateChanges::kMost; ++i) {
    ASSERT_TRUE(rates.Add(i, 1).ok());
  }
  EXPECT_EQ(rates.Add(RateChanges::kMost, 1).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(rates.Add(7, 2).ok());
  EXPECT_EQ(rates.FactorAt(7), 2);
}

}  // namespace
}  // namespace holdfast
