// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/push_memory.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

const TaskId kFirst = {"worker", 0};
const TaskId kSecond = {"worker", 1};

std::string WhyNot(const PushMemory& memory, const TaskId& worker,
                   bool reserved) {
  const absl::Status room = memory.CheckRoom(
      PushId{{worker, Incarnation(1)}, PushSequence(9)}, reserved);
  EXPECT_TRUE(room.ok() || absl::IsResourceExhausted(room)) << room;
  return std::string(room.message());
}

TEST(PushMemoryTest, AWorkersOwnPlaceIsTakenByNobodyElse) {
  PushMemory memory({.max_per_worker = 2, .max_extra = 1});
  memory.Take(kFirst, /*reserved=*/true);
  memory.Take(kFirst, /*reserved=*/false);
  EXPECT_EQ(memory.num_pushes(kFirst), 2u);
  // The shared place is taken.
  EXPECT_THAT(WhyNot(memory, kSecond, false),
              HasSubstr("no room beside the 2 undecided pushes"));
  EXPECT_EQ(WhyNot(memory, kSecond, true), "");
  // And a worker may have only so many.
  EXPECT_THAT(WhyNot(memory, kFirst, false),
              HasSubstr("2 undecided pushes of this worker are held"));
  EXPECT_THAT(WhyNot(memory, kFirst, true), HasSubstr("2 undecided pushes"));
  memory.Release(kFirst, /*reserved=*/false);
  EXPECT_EQ(WhyNot(memory, kSecond, false), "");
}

TEST(PushMemoryTest, AHeldPushMayMoveToItsWorkersOwnPlace) {
  PushMemory memory({.max_per_worker = 2, .max_extra = 1});
  memory.Take(kFirst, /*reserved=*/false);
  EXPECT_NE(WhyNot(memory, kSecond, false), "");
  memory.Reserve(kFirst);
  EXPECT_EQ(WhyNot(memory, kSecond, false), "");
  memory.Release(kFirst, /*reserved=*/true);
  EXPECT_EQ(memory.num_pushes(kFirst), 0u);
}

TEST(PushMemoryTest, BytesComeWithPartsAndGoWithPushes) {
  PushMemory memory({.max_per_worker = 1, .max_extra = 0});
  memory.Take(kFirst, true);
  memory.AddBytes(100);
  memory.Take(kSecond, true);
  memory.AddBytes(30);
  EXPECT_EQ(memory.bytes(), 130);
  memory.AddBytes(-100);
  memory.Release(kFirst, true);
  EXPECT_EQ(memory.bytes(), 30);
}

}  // namespace
}  // namespace holdfast
