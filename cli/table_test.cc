// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

TEST(TableTest, AlignsColumns) {
  Table table({{"name"}, {"bytes", true}, {"what"}});
  table.Add({"a", "7", "short"});
  table.Add({"longer", "12345678", "b"});
  EXPECT_THAT(table.Lines(),
              ElementsAre("name       bytes  what", "a              7  short",
                          "longer  12345678  b"));
}

TEST(TableTest, KeepsTheWidthThatIsGiven) {
  Table table({{"name"}, {"wait", false, 6}, {"time", true, 6}});
  table.Add({"a", "b", "1 s"});
  EXPECT_THAT(table.Lines(),
              ElementsAre("name  wait      time", "a     b          1 s"));
}

TEST(TableTest, LeavesOutWhatIsNotKnown) {
  Table table({{"name"}, {"never"}, {"once", true}});
  table.Add({"a", "", ""});
  table.Add({"b", "", "1"});
  EXPECT_THAT(table.Lines(),
              ElementsAre("name  once", "a        -", "b        1"));
}

}  // namespace
}  // namespace holdfast
