// SPDX-License-Identifier: Apache-2.0
#include "common/data/in_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/synchronization/notification.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

TEST(InOrderTest, GivesInTheOrderOfTaking) {
  for (const int threads : {1, 2, 5}) {
    int next = 0;
    std::vector<int> given;
    RunInOrder<int>(
        threads,
        [&](int* piece) {
          *piece = next++;
          return *piece < 1000;
        },
        [](int* piece) { *piece *= 2; },
        [&](int* piece) {
          given.push_back(*piece);
          return true;
        });
    ASSERT_EQ(given.size(), 1000);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(given[i], 2 * i);
  }
}

// The first piece is finished only after the second one.
TEST(InOrderTest, MakesSeveralAtOnce) {
  int next = 0;
  absl::Notification second;
  std::vector<int> given;
  RunInOrder<int>(
      2,
      [&](int* piece) {
        *piece = next++;
        return *piece < 2;
      },
      [&](int* piece) {
        if (*piece == 1) second.Notify();
        second.WaitForNotification();
      },
      [&](int* piece) {
        given.push_back(*piece);
        return true;
      });
  EXPECT_THAT(given, ElementsAre(0, 1));
}

TEST(InOrderTest, StopsWhereNoMoreIsWanted) {
  for (const int threads : {1, 4}) {
    int next = 0;
    std::vector<int> given;
    RunInOrder<int>(
        threads,
        [&](int* piece) {
          *piece = next++;
          return true;
        },
        [](int*) {},
        [&](int* piece) {
          given.push_back(*piece);
          return *piece < 3;
        });
    EXPECT_THAT(given, ElementsAre(0, 1, 2, 3));
  }
}

}  // namespace
}  // namespace holdfast
