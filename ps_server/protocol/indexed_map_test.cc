// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/indexed_map.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

using Map = IndexedMap<int, std::string>;

std::vector<std::pair<int, std::string>> Entries(const Map& map) {
  return {map.begin(), map.end()};
}

TEST(IndexedMapTest, FindsWhatIsThere) {
  Map map;
  map[2] = "two";
  map[1] = "one";
  map[2] += "!";
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.at(2), "two!");
  EXPECT_EQ(map.find(1)->second, "one");
  EXPECT_TRUE(map.find(3) == map.end());
  EXPECT_EQ(map.count(1), 1u);
  EXPECT_EQ(map.count(3), 0u);
  const Map& same = map;
  EXPECT_EQ(same.find(1)->second, "one");
  EXPECT_EQ(same.at(1), "one");
  EXPECT_TRUE(same.find(3) == same.end());
}

TEST(IndexedMapTest, IsInTheOrderOfKeys) {
  Map map;
  for (const int key : {5, 3, 9, 1}) map[key] = std::to_string(key);
  EXPECT_THAT(Entries(map), ElementsAre(Pair(1, "1"), Pair(3, "3"),
                                        Pair(5, "5"), Pair(9, "9")));
}

TEST(IndexedMapTest, ForgetsWhatIsErased) {
  Map map;
  map[1] = "one";
  map[2] = "two";
  map.erase(1);
  map.erase(3);
  EXPECT_EQ(map.count(1), 0u);
  EXPECT_TRUE(map.find(1) == map.end());
  EXPECT_EQ(map[1], "");
  EXPECT_THAT(Entries(map), ElementsAre(Pair(1, ""), Pair(2, "two")));
}

TEST(IndexedMapTest, ReferencesOutliveLaterEntriesAndMoves) {
  Map map;
  std::string& first = map[0];
  for (int key = 1; key < 1000; ++key) map[key];
  first = "first";
  Map moved = std::move(map);
  EXPECT_EQ(moved.at(0), "first");
  EXPECT_EQ(&moved.at(0), &first);
  moved = Map();
  EXPECT_EQ(moved.count(0), 0u);
}

TEST(IndexedMapTest, CopiesAreIndependent) {
  Map map;
  map[1] = "one";
  Map copy = map;
  copy[1] = "changed";
  copy[2] = "two";
  EXPECT_EQ(copy.find(1)->second, "changed");
  EXPECT_THAT(Entries(map), ElementsAre(Pair(1, "one")));
}

}  // namespace
}  // namespace holdfast
