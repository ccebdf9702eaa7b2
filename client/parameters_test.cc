// SPDX-License-Identifier: Apache-2.0
#include "client/parameters.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/process/testing/host_memory_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ParametersTest, ValuesLieInMemoryOfTheirOwn) {
  Parameters values;
  EXPECT_THAT(values.All(), IsEmpty());
  values.Resize(2);
  const absl::Span<float> written = values.Write(1, 2);
  written[0] = 5;
  EXPECT_EQ(values.Write(1, 2).data(), written.data());
  EXPECT_EQ(values.Of(1).data(), written.data());
  EXPECT_EQ(values.AtFixedPlace(1).data(), written.data());
  EXPECT_THAT(values.All(), ElementsAre(IsEmpty(), ElementsAre(5, 0)));
  const Parameters moved = std::move(values);
  EXPECT_EQ(moved.Of(1).data(), written.data());
}

TEST(ParametersTest, ValuesAreWrittenToTheCallersMemory) {
  Parameters values;
  std::vector<float> given = {1, 2};
  values.SetMemory({{}, absl::MakeSpan(given)});
  values.Resize(2);
  EXPECT_FALSE(values.HasMemory(0));
  EXPECT_TRUE(values.HasMemory(1));
  EXPECT_EQ(values.Write(1, 2).data(), given.data());
  EXPECT_EQ(values.Of(1).data(), given.data());
}

TEST(ParametersTest, MemoryOfItsOwnIsPinned) {
  FakeHostMemory memory;
  const std::vector<float> lent = {3, 4};
  {
    Parameters values;
    values.SetHostMemory(&memory);
    values.Resize(2);
    // Kept values need no memory.
    values.Keep(1, lent, std::make_shared<int>());
    const absl::Span<float> written = values.Write(0, 2);
    written[0] = written[1] = 5;
    EXPECT_EQ(values.Write(0, 2).data(), written.data());
    EXPECT_EQ(memory.allocations(), 1);
    EXPECT_THAT(values.Of(0), ElementsAre(5, 5));
    EXPECT_THAT(values.AtFixedPlace(1), ElementsAre(3, 4));
    EXPECT_EQ(memory.allocations(), 2);
    // A copy is independent.
    const Parameters copy = values;
    values.Write(0, 2)[0] = 6;
    EXPECT_THAT(copy.Of(0), ElementsAre(5, 5));
    EXPECT_EQ(memory.buffers(), 2);
    const Parameters moved = std::move(values);
    EXPECT_EQ(moved.Of(0).data(), written.data());
  }
  EXPECT_EQ(memory.buffers(), 0);
}

TEST(ParametersTest, WithoutPinnedMemoryItTakesOther) {
  FakeHostMemory memory;
  memory.refuses = true;
  Parameters values;
  values.SetHostMemory(&memory);
  values.Resize(1);
  const absl::Span<float> written = values.Write(0, 2);
  written[1] = 5;
  EXPECT_EQ(values.Write(0, 2).data(), written.data());
  EXPECT_THAT(values.Of(0), ElementsAre(0, 5));
}

TEST(ParametersTest, WhatIsKeptIsKeptUntilItIsReleased) {
  const std::vector<float> lent = {3, 4};
  auto owner = std::make_shared<int>();
  Parameters values;
  values.Resize(1);
  values.Keep(0, lent, owner);
  EXPECT_EQ(values.Of(0).data(), lent.data());
  EXPECT_EQ(owner.use_count(), 2);
  values.Release();
  EXPECT_EQ(owner.use_count(), 1);
  values.Keep(0, lent, owner);
  values.Write(0, 2);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(ParametersTest, ACopyOfWhatIsKeptLiesAtAFixedPlace) {
  std::vector<float> lent = {3, 4};
  auto owner = std::make_shared<int>();
  Parameters values;
  values.Resize(1);
  values.Keep(0, lent, owner);
  const absl::Span<const float> copy = values.AtFixedPlace(0);
  EXPECT_THAT(copy, ElementsAre(3, 4));
  EXPECT_NE(copy.data(), lent.data());
  // The values were copied only once.
  lent[0] = 9;
  EXPECT_THAT(values.AtFixedPlace(0), ElementsAre(3, 4));
  // What was read elsewhere stays there.
  EXPECT_EQ(values.Of(0).data(), lent.data());
  values.Release();
  values.Keep(0, lent, owner);
  EXPECT_EQ(values.AtFixedPlace(0).data(), copy.data());
  EXPECT_THAT(copy, ElementsAre(9, 4));
}

TEST(ParametersTest, WantedRowsHaveValuesOnceTheyArePulled) {
  Parameters values;
  EXPECT_EQ(values.num_tables(), 0);
  EXPECT_THAT(values.RowIds(1), IsEmpty());
  EXPECT_THAT(values.RowsOf(1), IsEmpty());
  values.WantRows(1, {{4, 7}});
  EXPECT_EQ(values.num_tables(), 2);
  EXPECT_THAT(values.RowIds(0), IsEmpty());
  EXPECT_THAT(values.RowIds(1), ElementsAre(4, 7));
  EXPECT_THAT(values.RowsOf(1), IsEmpty());
  const absl::Span<float> rows = values.WriteRows(1, 2);
  ASSERT_EQ(rows.size(), 4);
  rows[3] = 5;
  EXPECT_EQ(values.WriteRows(1, 2).data(), rows.data());
  EXPECT_THAT(values.RowsOf(1), ElementsAre(0, 0, 0, 5));
  const Parameters copy = values;
  const Parameters moved = std::move(values);
  EXPECT_EQ(moved.RowsOf(1).data(), rows.data());
  EXPECT_THAT(copy.RowsOf(1), ElementsAre(0, 0, 0, 5));
  EXPECT_THAT(copy.RowIds(1), ElementsAre(4, 7));
}

TEST(ParametersTest, OtherRowsAreWrittenToTheSameMemory) {
  Parameters values;
  values.WantRows(0, {{4, 7}});
  const float* const memory = values.WriteRows(0, 2).data();
  values.WantRows(0, {{9}});
  EXPECT_THAT(values.RowsOf(0), IsEmpty());
  EXPECT_EQ(values.WriteRows(0, 2).data(), memory);
  EXPECT_EQ(values.RowsOf(0).size(), 2);
  values.WantRows(0, {{1, 2}});
  EXPECT_EQ(values.WriteRows(0, 2).data(), memory);
  values.WantRows(0, {});
  values.WriteRows(0, 2);
  EXPECT_THAT(values.RowsOf(0), IsEmpty());
}

TEST(ParametersTest, AllAtAVersion) {
  Parameters values(GlobalStep(3), {});
  values.versions = {GlobalStep(3), GlobalStep(0)};
  EXPECT_TRUE(values.AllAt(GlobalStep(3)));
  EXPECT_FALSE(values.AllAt(GlobalStep(2)));
  values.versions = {GlobalStep(3), GlobalStep(4)};
  EXPECT_FALSE(values.AllAt(GlobalStep(3)));
}

}  // namespace
}  // namespace holdfast
