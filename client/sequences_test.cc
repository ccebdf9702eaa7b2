// SPDX-License-Identifier: Apache-2.0
#include "client/sequences.h"

#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

PushSequence Number(uint64_t number) { return PushSequence(number); }

TEST(SequencesTest, CountFromOne) {
  Sequences sequences;
  EXPECT_EQ(sequences.acked_through(), Number(0));
  EXPECT_EQ(sequences.Take(GlobalStep(0)), Number(1));
  EXPECT_EQ(sequences.Take(GlobalStep(0)), Number(2));
  EXPECT_EQ(sequences.acked_through(), Number(0));
}

TEST(SequencesTest, TheMarkIsAPrefix) {
  Sequences sequences;
  for (int i = 0; i < 3; ++i) sequences.Take(GlobalStep(0));
  sequences.Settle(Number(2));
  EXPECT_EQ(sequences.acked_through(), Number(0));
  sequences.Settle(Number(1));
  EXPECT_EQ(sequences.acked_through(), Number(2));
  EXPECT_EQ(sequences.Take(GlobalStep(0)), Number(4));
  sequences.Settle(Number(4));
  EXPECT_EQ(sequences.acked_through(), Number(2));
  sequences.Settle(Number(3));
  EXPECT_EQ(sequences.acked_through(), Number(4));
}

TEST(SequencesTest, SettledTwiceAndUnknownAreNothing) {
  Sequences sequences;
  sequences.Take(GlobalStep(0));
  sequences.Settle(Number(1));
  sequences.Settle(Number(1));
  sequences.Release(Number(1));
  sequences.Settle(Number(7));
  sequences.Hold(Number(7), GlobalStep(0));
  EXPECT_EQ(sequences.acked_through(), Number(1));
}

// A push that no handle holds may still be in its step: it is settled only when
// the step is known to be closed.
TEST(SequencesTest, AbandonedIsSettledWhenItsStepIsClosed) {
  Sequences sequences;
  const PushSequence push = sequences.Take(GlobalStep(5));
  sequences.Reached(GlobalStep(5));
  sequences.Release(push);
  EXPECT_EQ(sequences.acked_through(), Number(0));
  sequences.Reached(GlobalStep(6));
  EXPECT_EQ(sequences.acked_through(), push);
}

TEST(SequencesTest, AbandonedAfterItsStepClosed) {
  Sequences sequences;
  const PushSequence push = sequences.Take(GlobalStep(5));
  sequences.Reached(GlobalStep(6));
  EXPECT_EQ(sequences.acked_through(), Number(0));
  sequences.Release(push);
  EXPECT_EQ(sequences.acked_through(), push);
}

TEST(SequencesTest, APushIsHeldByItsOfferToo) {
  Sequences sequences;
  const PushSequence push = sequences.Take(GlobalStep(5));
  sequences.Hold(push, GlobalStep(5));
  sequences.Release(push);
  sequences.Reached(GlobalStep(6));
  EXPECT_EQ(sequences.acked_through(), Number(0));
  sequences.Release(push);
  EXPECT_EQ(sequences.acked_through(), push);
}

// A number without a push belongs to no step until it is offered.
TEST(SequencesTest, ANumberWithoutAStepWaitsForItsOffer) {
  Sequences sequences;
  const PushSequence number = sequences.Take(std::nullopt);
  sequences.Release(number);
  sequences.Reached(GlobalStep(100));
  EXPECT_EQ(sequences.acked_through(), Number(0));
  sequences.Hold(number, GlobalStep(100));
  sequences.Settle(number);
  EXPECT_EQ(sequences.acked_through(), number);
}

// A push of an asynchronous job is over when it is settled, not before.
TEST(SequencesTest, APushOfNoStepIsNotSettledByAVersion) {
  Sequences sequences;
  const PushSequence push = sequences.Take(std::nullopt);
  sequences.Release(push);
  sequences.Hold(push, std::nullopt);
  sequences.Release(push);
  sequences.Reached(GlobalStep(100));
  EXPECT_EQ(sequences.acked_through(), Number(0));
  sequences.Settle(push);
  EXPECT_EQ(sequences.acked_through(), push);
}

}  // namespace
}  // namespace holdfast::client
