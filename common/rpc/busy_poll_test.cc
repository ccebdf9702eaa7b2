// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/busy_poll.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

// The number of waits that sleep at once before the next one that may poll.
int Skipped(BusyPoll* poll) {
  int skipped = 0;
  while (!poll->May()) ++skipped;
  return skipped;
}

TEST(BusyPollTest, GoesOnWhileItHelps) {
  BusyPoll poll;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Skipped(&poll), 0);
    poll.Tell(/*in_vain=*/false);
  }
}

TEST(BusyPollTest, InVainMakesItRare) {
  BusyPoll poll;
  std::vector<int> skipped;
  for (int i = 0; i < 9; ++i) {
    skipped.push_back(Skipped(&poll));
    poll.Tell(/*in_vain=*/true);
  }
  EXPECT_THAT(skipped, ElementsAre(0, 1, 3, 7, 15, 31, 63, 127, 127));
}

TEST(BusyPollTest, BeginsAnewWhenItHelpsAgain) {
  BusyPoll poll;
  for (int i = 0; i < 5; ++i) {
    Skipped(&poll);
    poll.Tell(/*in_vain=*/true);
  }
  Skipped(&poll);
  poll.Tell(/*in_vain=*/false);
  EXPECT_EQ(Skipped(&poll), 0);
  poll.Tell(/*in_vain=*/true);
  EXPECT_EQ(Skipped(&poll), 1);
}

}  // namespace
}  // namespace holdfast
