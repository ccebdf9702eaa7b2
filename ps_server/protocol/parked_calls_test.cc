// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/parked_calls.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The response does not matter here; a call is identified by its request.
using Calls = ParkedCalls<int, int, std::string>;

absl::Time At(int seconds) { return absl::FromUnixSeconds(seconds); }

void Park(Calls& calls, int key, const std::string& name, int deadline) {
  calls.Park(
      key, [](absl::StatusOr<int>) {}, At(deadline), name);
}

std::vector<std::string> Names(const std::vector<Calls::Call>& calls) {
  std::vector<std::string> names;
  for (const Calls::Call& call : calls) names.push_back(call.request);
  return names;
}

TEST(ParkedCallsTest, TakesCallsOfOneKeyInTheirOrder) {
  Calls calls;
  Park(calls, 1, "a", 30);
  Park(calls, 2, "b", 20);
  Park(calls, 1, "c", 10);
  EXPECT_THAT(Names(calls.Take(3)), IsEmpty());
  EXPECT_THAT(Names(calls.Take(1)), ElementsAre("a", "c"));
  EXPECT_THAT(Names(calls.Take(1)), IsEmpty());
  EXPECT_EQ(calls.size(), 1u);
}

TEST(ParkedCallsTest, TakesRangesOfKeysInTheOrderOfParking) {
  Calls calls;
  for (const int key : {5, 3, 1, 4, 2}) {
    Park(calls, key, std::to_string(key), 10);
  }
  EXPECT_THAT(Names(calls.TakeBetween(2, 4)), ElementsAre("3", "4", "2"));
  EXPECT_THAT(Names(calls.TakeBetween(std::numeric_limits<int>::min(), 4)),
              ElementsAre("1"));
  EXPECT_THAT(Names(calls.TakeAll()), ElementsAre("5"));
  EXPECT_TRUE(calls.empty());
}

TEST(ParkedCallsTest, TheLatestCallOfAKeyTakesThePlaceOfEarlierOnes) {
  Calls calls(2);
  const auto park = [&](int key, const std::string& name) {
    return calls.ParkLatest(
        key, [](absl::StatusOr<int>) {}, At(10), name);
  };
  EXPECT_THAT(Names(park(1, "a").earlier), IsEmpty());
  EXPECT_THAT(Names(park(2, "b").earlier), IsEmpty());
  const Calls::Latest again = park(1, "c");
  EXPECT_THAT(Names(again.earlier), ElementsAre("a"));
  EXPECT_FALSE(again.no_room) << "it has the room of the earlier one";
  EXPECT_TRUE(park(3, "d").no_room);
  EXPECT_THAT(Names(calls.TakeAll()), ElementsAre("b", "c", "d"));
}

TEST(ParkedCallsTest, TakesWhatIsDueInTheOrderOfParking) {
  Calls calls;
  Park(calls, 1, "a", 30);
  Park(calls, 2, "b", 20);
  Park(calls, 3, "c", 10);
  Park(calls, 4, "d", 20);
  EXPECT_THAT(Names(calls.TakeDue(At(9))), IsEmpty());
  EXPECT_THAT(Names(calls.TakeDue(At(20))), ElementsAre("b", "c", "d"));
  // A call that was taken by its key is no longer due.
  EXPECT_THAT(Names(calls.Take(1)), ElementsAre("a"));
  EXPECT_THAT(Names(calls.TakeDue(At(100))), IsEmpty());
}

TEST(ParkedCallsTest, TakesAlsoWhatHasNoDeadline) {
  Calls calls;
  calls.Park(
      1, [](absl::StatusOr<int>) {}, absl::InfiniteFuture(), "a");
  EXPECT_THAT(Names(calls.TakeDue(At(1000))), IsEmpty());
  EXPECT_THAT(Names(calls.TakeAll()), ElementsAre("a"));
}

TEST(ParkedCallsTest, TakesWhatAPredicateSelects) {
  Calls calls;
  for (const int key : {4, 3, 2, 1}) Park(calls, key, std::to_string(key), 10);
  EXPECT_THAT(Names(calls.TakeIf(
                  [](const Calls::Call& call) { return call.key % 2 == 0; })),
              ElementsAre("4", "2"));
  EXPECT_THAT(Names(calls.TakeAll()), ElementsAre("3", "1"));
}

TEST(ParkedCallsTest, ShowsCallsWithoutTakingThem) {
  Calls calls;
  Park(calls, 2, "a", 10);
  Park(calls, 1, "b", 10);
  Park(calls, 1, "c", 10);
  std::vector<std::string> by_key;
  for (const Calls::Call* call : calls.Between(0, 2)) {
    by_key.push_back(call->request);
  }
  EXPECT_THAT(by_key, ElementsAre("b", "c", "a"));
  std::vector<std::string> by_number;
  for (auto* call = calls.Next(0); call; call = calls.Next(call->number)) {
    by_number.push_back(call->request);
  }
  EXPECT_THAT(by_number, ElementsAre("a", "b", "c"));
  // A number stays valid when its call is gone.
  const uint64_t first = calls.Next(0)->number;
  calls.Take(2);
  ASSERT_NE(calls.Next(first), nullptr);
  EXPECT_EQ(calls.Next(first)->request, "b");
  EXPECT_EQ(calls.Next(calls.Next(first)->number)->request, "c");
  EXPECT_EQ(calls.size(), 2u);
}

// A key that counts how often it is compared.
struct CountingKey {
  int value = 0;
  friend bool operator<(const CountingKey& a, const CountingKey& b) {
    ++comparisons;
    return a.value < b.value;
  }
  static int comparisons;
};
int CountingKey::comparisons = 0;

// However many others are parked.
TEST(ParkedCallsTest, FindsACallWithoutGoingThroughAll) {
  ParkedCalls<CountingKey, int> calls;
  const auto park = [&](int key) {
    calls.Park(
        {key}, [](absl::StatusOr<int>) {}, At(key));
  };
  for (int key = 0; key < 10000; ++key) park(key);
  CountingKey::comparisons = 0;
  EXPECT_EQ(calls.Take({5000}).size(), 1u);
  EXPECT_EQ(calls.TakeDue(At(0)).size(), 1u);
  EXPECT_EQ(calls.Between({7000}, {7001}).size(), 2u);
  park(5000);
  EXPECT_LT(CountingKey::comparisons, 200);
}

TEST(ParkedCallsTest, IsFullAtItsLimit) {
  Calls calls(2);
  Park(calls, 1, "a", 10);
  EXPECT_FALSE(calls.full());
  Park(calls, 1, "b", 10);
  EXPECT_TRUE(calls.full());
  calls.TakeAll();
  EXPECT_FALSE(calls.full());
}

// The reply to a taken call may park that call's successor.
TEST(ParkedCallsTest, RepliesMayParkAgain) {
  Calls calls;
  int answers = 0;
  const auto ask = [&](auto& self, int left) -> void {
    calls.Park(
        1,
        [&, left](absl::StatusOr<int>) {
          ++answers;
          if (left > 0) self(self, left - 1);
        },
        At(10));
  };
  ask(ask, 2);
  ask(ask, 0);
  for (Calls::Call& call : calls.Take(1)) call.reply(0);
  EXPECT_EQ(answers, 2);
  EXPECT_EQ(calls.size(), 1u);
  for (Calls::Call& call : calls.TakeDue(At(10))) call.reply(0);
  for (Calls::Call& call : calls.TakeAll()) call.reply(0);
  EXPECT_EQ(answers, 4);
  EXPECT_TRUE(calls.empty());
}

}  // namespace
}  // namespace holdfast
