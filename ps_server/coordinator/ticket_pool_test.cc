// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/ticket_pool.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

PushId Push(uint64_t sequence, uint32_t worker = 0, uint64_t incarnation = 1) {
  return {{{kWorkerJob, worker}, Incarnation(incarnation)},
          PushSequence(sequence)};
}

std::vector<uint64_t> Sequences(
    const std::map<PushSequence, TicketPool::Out>& tickets) {
  std::vector<uint64_t> sequences;
  for (const auto& [sequence, ticket] : tickets) {
    sequences.push_back(sequence.value());
  }
  return sequences;
}

TEST(TicketPoolTest, HandsOutEachIndexOnce) {
  TicketPool pool(3);
  EXPECT_EQ(pool.left(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pool.Take(Push(i + 1)), i);
    EXPECT_EQ(pool.left(), 2 - i);
    EXPECT_EQ(pool.Find(Push(i + 1))->index, i);
  }
  EXPECT_FALSE(pool.Find(Push(4)).has_value());
  EXPECT_THAT(pool.out(), SizeIs(3));
  EXPECT_EQ(pool.num_out(), 3u);
  EXPECT_EQ(pool.spent(), 0u);
}

TEST(TicketPoolTest, IsSpentWhenEachIndexIs) {
  TicketPool pool(2);
  pool.Take(Push(1));
  pool.Take(Push(2));
  EXPECT_TRUE(pool.Spend(Push(2)).has_value());
  EXPECT_FALSE(pool.Spend(Push(2)).has_value()) << "once";
  EXPECT_FALSE(pool.Return(Push(2))) << "and for good";
  EXPECT_EQ(pool.spent(), 1u);
  EXPECT_FALSE(pool.all_spent());
  EXPECT_EQ(pool.left(), 0u);
  EXPECT_TRUE(pool.Spend(Push(1)).has_value());
  EXPECT_TRUE(pool.all_spent());
  EXPECT_THAT(pool.out(), IsEmpty());
  EXPECT_EQ(pool.num_out(), 0u);
  EXPECT_FALSE(pool.Spend(Push(3)).has_value()) << "never out";
}

TEST(TicketPoolTest, ReturnedOnesGoOutAgainFirstTheLowestFirst) {
  TicketPool pool(6);
  for (uint64_t i = 1; i <= 4; ++i) pool.Take(Push(i));
  EXPECT_TRUE(pool.Return(Push(3)));
  EXPECT_FALSE(pool.Return(Push(3)));
  EXPECT_TRUE(pool.Return(Push(2)));
  EXPECT_EQ(pool.left(), 4u);
  EXPECT_FALSE(pool.Find(Push(2)).has_value());
  EXPECT_FALSE(pool.Spend(Push(2)).has_value());
  EXPECT_EQ(pool.Take(Push(5)), 1u);
  EXPECT_EQ(pool.Take(Push(6)), 2u);
  EXPECT_EQ(pool.Take(Push(7)), 4u);
  EXPECT_EQ(pool.left(), 1u);
}

TEST(TicketPoolTest, TellsWhatIsOutWithALife) {
  TicketPool pool(10);
  for (const PushId& push :
       {Push(3), Push(1), Push(2, 1), Push(1, 0, 2), Push(7)}) {
    pool.Take(push);
  }
  pool.Spend(Push(3));
  EXPECT_THAT(Sequences(pool.OutWith(Push(1).from)), ElementsAre(1, 7));
  EXPECT_THAT(Sequences(pool.OutWith(Push(1, 0, 2).from)), SizeIs(1));
  EXPECT_THAT(Sequences(pool.OutWith(Push(1, 2).from)), IsEmpty());
}

}  // namespace
}  // namespace holdfast
