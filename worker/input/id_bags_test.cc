// SPDX-License-Identifier: Apache-2.0
#include "worker/input/id_bags.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Fields = std::vector<std::vector<int>>;

// Three examples with the fields a, of up to two ids, and b, of one.
class IdBagsTest : public ::testing::Test {
 protected:
  const std::vector<IdField> fields_ = {{"a", 2}, {"b", 1}};
  // Entries beyond the counts are 99.
  const std::vector<uint64_t> ids_ = {7,  5,  5,   //
                                      3,  99, 99,  //
                                      99, 99, 7};
  const std::vector<uint32_t> counts_ = {2, 1, 1, 0, 0, 1};
  const std::vector<float> values_ = {1, 2, 3, 4, -1, -1, -1, -1, 5};
  const BatchIds from_ = {ids_.data(), counts_.data(), values_.data()};
};

TEST_F(IdBagsTest, HasABagForEachExampleAndField) {
  TableBags bags(fields_, Fields{{0, 1}});
  bags.Assign(3, from_);
  const IdBags& both = bags.Of(0);
  EXPECT_THAT(both.unique(), ElementsAre(3, 5, 7));
  // 7, 5 | 5 | 3 | | | 7
  EXPECT_THAT(both.rows(), ElementsAre(2, 1, 1, 0, 2));
  EXPECT_THAT(both.bags(), ElementsAre(0, 0, 1, 2, 5));
  EXPECT_THAT(both.values(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(both.offsets(), ElementsAre(0, 2, 3, 4, 4, 4, 5));
  EXPECT_THAT(both.begins(), ElementsAre(0, 1, 3, 5));
  EXPECT_THAT(both.uses(), ElementsAre(3, 1, 2, 0, 4));
}

TEST_F(IdBagsTest, HasTheFieldsOfEachTable) {
  TableBags bags(fields_, Fields{{1}, {0}, {1}});
  bags.Assign(3, {ids_.data(), counts_.data(), nullptr});
  EXPECT_EQ(bags.num_tables(), 3);
  EXPECT_EQ(&bags.Of(0), &bags.Of(2));
  EXPECT_THAT(bags.Of(0).unique(), ElementsAre(5, 7));
  EXPECT_THAT(bags.Of(0).offsets(), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(bags.Of(0).values(), IsEmpty());
  EXPECT_THAT(bags.Of(1).unique(), ElementsAre(3, 5, 7));
  EXPECT_THAT(bags.Of(1).bags(), ElementsAre(0, 0, 1));
}

TEST_F(IdBagsTest, APartHasTheRowsOfAll) {
  TableBags bags(fields_, Fields{{0, 1}});
  bags.Assign(3, from_);
  TableBags part;
  part.AssignPart(bags, 1, 3);
  const IdBags& of_part = part.Of(0);
  EXPECT_EQ(of_part.num_examples(), 2);
  EXPECT_THAT(of_part.unique(), ElementsAre(3, 5, 7));
  EXPECT_THAT(of_part.rows(), ElementsAre(0, 2));
  EXPECT_THAT(of_part.bags(), ElementsAre(0, 3));
  EXPECT_THAT(of_part.values(), ElementsAre(4, 5));
  EXPECT_THAT(of_part.offsets(), ElementsAre(0, 1, 1, 1, 2));
  EXPECT_THAT(of_part.begins(), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(of_part.uses(), ElementsAre(0, 1));
}

TEST_F(IdBagsTest, ABatchWithoutIdsHasEmptyBags) {
  TableBags bags(fields_, Fields{{0}});
  const std::vector<uint32_t> none(4);
  bags.Assign(2, {ids_.data(), none.data(), nullptr});
  EXPECT_THAT(bags.Of(0).unique(), IsEmpty());
  EXPECT_THAT(bags.Of(0).offsets(), ElementsAre(0, 0, 0));
  EXPECT_THAT(bags.Of(0).begins(), ElementsAre(0));
}

}  // namespace
}  // namespace holdfast
