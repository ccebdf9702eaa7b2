// SPDX-License-Identifier: Apache-2.0
#include "client/value_sets.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

TEST(ValueSetsTest, ASetIsUsedAgainWhenNobodyHasIt) {
  const auto sets = ValueSets::Make(1, {});
  auto first = sets->Take();
  auto second = sets->Take();
  EXPECT_EQ(first->number, 0);
  EXPECT_EQ(second->number, 1);
  const float* const place = first->values.Write(0, 2).data();
  const auto kept = first;
  first.reset();
  EXPECT_EQ(sets->Take()->number, 2);
  second.reset();
  EXPECT_EQ(sets->Take()->number, 1);
  first = kept;
  EXPECT_EQ(first->values.Of(0).data(), place);
}

TEST(ValueSetsTest, WhatIsGivenBackKeepsNothing) {
  const auto sets = ValueSets::Make(1, {});
  const std::vector<float> lent = {3, 4};
  auto owner = std::make_shared<int>();
  auto set = sets->Take();
  set->values.Keep(0, lent, owner);
  set.reset();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(ValueSetsTest, AllWriteToTheCallersMemory) {
  std::vector<float> given(2);
  const auto sets = ValueSets::Make(2, {{}, absl::MakeSpan(given)});
  for (const auto& set : {sets->Take(), sets->Take()}) {
    EXPECT_EQ(set->values.size(), 2);
    EXPECT_EQ(set->values.Write(1, 2).data(), given.data());
    EXPECT_NE(set->values.Write(0, 2).data(), given.data());
  }
}

TEST(ValueSetsTest, MemoryOutlivesTheSets) {
  auto sets = ValueSets::Make(1, {});
  const auto set = sets->Take();
  sets.reset();
  set->values.Write(0, 1)[0] = 5;
  EXPECT_EQ(set->values.Of(0)[0], 5);
}

}  // namespace
}  // namespace holdfast::client
