// SPDX-License-Identifier: Apache-2.0
#include "client/plan.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/layout.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {

// For failure messages.
void PrintTo(const ElementRange& range, std::ostream* out) {
  *out << "{variable " << range.variable << ", [" << range.begin << ", "
       << range.begin + range.size << ")}";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Declared {
  int64_t size;
  uint32_t ps;
  bool trainable = true;
};

void AddVariable(int64_t size, bool trainable,
                 proto::GetPlacementResponse* placement) {
  proto::Variable* variable = placement->mutable_declaration()->add_variables();
  variable->set_name(
      absl::StrCat("v", placement->declaration().variables_size() - 1));
  variable->add_shape(size);
  variable->set_dtype(proto::FLOAT32);
  variable->set_trainable(trainable);
}

void AddSlice(const std::string& variable, uint64_t begin, uint64_t size,
              uint32_t ps, proto::GetPlacementResponse* placement) {
  proto::Slice* slice = placement->add_slices();
  slice->set_variable(variable);
  slice->set_begin(begin);
  slice->set_size(size);
  slice->set_ps(ps);
}

// Variables "v0", "v1", ... of one dimension, each in one slice.
Layout MakeLayout(const std::vector<Declared>& variables, uint32_t num_ps) {
  proto::GetPlacementResponse placement;
  for (size_t v = 0; v < variables.size(); ++v) {
    AddVariable(variables[v].size, variables[v].trainable, &placement);
    AddSlice(absl::StrCat("v", v), 0, variables[v].size, variables[v].ps,
             &placement);
  }
  return *Layout::Make(placement, num_ps);
}

// "v0" (20) on ps 0, 1, 0, 0; "v1" (5); "v2" (9) in three slices, all on ps 0.
// The slices are given in another order.
Layout MakeCutLayout() {
  proto::GetPlacementResponse placement;
  AddVariable(20, true, &placement);
  AddVariable(5, true, &placement);
  AddVariable(9, true, &placement);
  AddSlice("v2", 6, 3, 0, &placement);
  AddSlice("v0", 15, 5, 0, &placement);
  AddSlice("v0", 5, 5, 1, &placement);
  AddSlice("v2", 0, 3, 0, &placement);
  AddSlice("v0", 0, 5, 0, &placement);
  AddSlice("v1", 0, 5, 0, &placement);
  AddSlice("v0", 10, 5, 0, &placement);
  AddSlice("v2", 3, 3, 0, &placement);
  return *Layout::Make(placement, 2);
}

TEST(PlanPushTest, LastDeclaredFirst) {
  const Layout layout = MakeLayout({{10, 0}, {10, 0}, {10, 0}}, 1);
  // 40 bytes: one variable to a part.
  EXPECT_THAT(PlanPush(layout, 40).parts,
              ElementsAre(ElementsAre(ElementsAre(ElementRange{2, 0, 10}),
                                      ElementsAre(ElementRange{1, 0, 10}),
                                      ElementsAre(ElementRange{0, 0, 10}))));
}

TEST(PlanPushTest, SmallVariablesShareAPart) {
  // Parts of 25 elements: 5 + 10 + 10, and 10 is left.
  const Layout layout = MakeLayout({{10, 0}, {10, 0}, {10, 0}, {5, 0}}, 1);
  EXPECT_THAT(PlanPush(layout, 100).parts,
              ElementsAre(ElementsAre(
                  ElementsAre(ElementRange{3, 0, 5}, ElementRange{2, 0, 10},
                              ElementRange{1, 0, 10}),
                  ElementsAre(ElementRange{0, 0, 10}))));
}

TEST(PlanPushTest, CutsWhatIsLargerThanAPart) {
  // Parts of 8 elements. v2 (3) begins a part that v1 (20) does not fit in; v1
  // is cut in 8 + 8 + 4, and v0 (4) fits beside the rest.
  const Layout layout = MakeLayout({{4, 0}, {20, 0}, {3, 0}}, 1);
  EXPECT_THAT(PlanPush(layout, 32).parts,
              ElementsAre(ElementsAre(
                  ElementsAre(ElementRange{2, 0, 3}),
                  ElementsAre(ElementRange{1, 0, 8}),
                  ElementsAre(ElementRange{1, 8, 8}),
                  ElementsAre(ElementRange{1, 16, 4}, ElementRange{0, 0, 4}))));
}

TEST(PlanPushTest, CutAtTheEndOfAPartLeavesNoEmptyPart) {
  const Layout layout = MakeLayout({{16, 0}}, 1);
  EXPECT_THAT(PlanPush(layout, 32).parts,
              ElementsAre(ElementsAre(ElementsAre(ElementRange{0, 0, 8}),
                                      ElementsAre(ElementRange{0, 8, 8}))));
}

TEST(PlanPushTest, AShardWithoutAShareGetsNothing) {
  // ps 1 holds only what is not trainable, ps 2 nothing.
  const Layout layout = MakeLayout({{10, 0}, {10, 1, false}}, 3);
  EXPECT_THAT(PlanPush(layout, 40).parts,
              ElementsAre(ElementsAre(ElementsAre(ElementRange{0, 0, 10})),
                          IsEmpty(), IsEmpty()));
}

TEST(PlanPushTest, AVariableWithoutElementsIsInNoPart) {
  const Layout layout = MakeLayout({{0, 0}}, 1);
  const Plan plan = PlanPush(layout, 40);
  EXPECT_THAT(plan.parts, ElementsAre(IsEmpty()));
  EXPECT_THAT(plan.places, ElementsAre(IsEmpty()));
}

TEST(PlanPushTest, PlacesLeadToTheParts) {
  const Layout layout = MakeLayout({{4, 1}, {20, 0}}, 2);
  const Plan plan = PlanPush(layout, 32);
  const auto place = [](uint32_t ps, uint32_t part) {
    return ::testing::AllOf(::testing::Field(&Plan::Place::ps, ps),
                            ::testing::Field(&Plan::Place::part, part));
  };
  EXPECT_THAT(plan.places,
              ElementsAre(ElementsAre(place(1, 0)),
                          ElementsAre(place(0, 0), place(0, 1), place(0, 2))));
}

TEST(PlanPushTest, ManyScalarsAreBoundedByWhatSurroundsThem) {
  const int kScalars = 20000;
  const Layout layout =
      MakeLayout(std::vector<Declared>(kScalars, Declared{1, 0}), 1);
  const Plan plan = PlanPush(layout, 4 << 20);
  // 80000 bytes of values would be one part. Each scalar is surrounded by 66
  // bytes, 10 for its dimension and 2 to 6 for its name: at least 13000 fit in
  // 1 MiB.
  ASSERT_EQ(plan.parts[0].size(), 2);
  EXPECT_GT(plan.parts[0][0].size(), 12000);
  EXPECT_EQ(plan.parts[0][0].size() + plan.parts[0][1].size(), kScalars);
}

// A shard keeps each slice by itself: what crosses the border of two would be
// in neither.
TEST(PlanPushTest, SeveralSlicesOnAPsLastFirstAndNeverAcrossABorder) {
  // Everything would fit in one part.
  EXPECT_THAT(PlanPush(MakeCutLayout(), 1 << 20).parts,
              ElementsAre(ElementsAre(ElementsAre(
                              ElementRange{2, 6, 3}, ElementRange{2, 3, 3},
                              ElementRange{2, 0, 3}, ElementRange{1, 0, 5},
                              ElementRange{0, 15, 5}, ElementRange{0, 10, 5},
                              ElementRange{0, 0, 5})),
                          ElementsAre(ElementsAre(ElementRange{0, 5, 5}))));
}

TEST(PlanPushTest, CutsEachSliceByItself) {
  // Parts of 4 elements: 3 | 3 | 3 | 4 1 | 4 1 ...: a new part for what does
  // not fit beside the rest of another.
  EXPECT_THAT(PlanPush(MakeCutLayout(), 16).parts[0],
              ElementsAre(ElementsAre(ElementRange{2, 6, 3}),
                          ElementsAre(ElementRange{2, 3, 3}),
                          ElementsAre(ElementRange{2, 0, 3}),
                          ElementsAre(ElementRange{1, 0, 4}),
                          ElementsAre(ElementRange{1, 4, 1}),
                          ElementsAre(ElementRange{0, 15, 4}),
                          ElementsAre(ElementRange{0, 19, 1}),
                          ElementsAre(ElementRange{0, 10, 4}),
                          ElementsAre(ElementRange{0, 14, 1}),
                          ElementsAre(ElementRange{0, 0, 4}),
                          ElementsAre(ElementRange{0, 4, 1})));
}

TEST(PlanPushTest, PlacesCountEveryRangeOfAVariable) {
  const Plan plan = PlanPush(MakeCutLayout(), 24);
  // Parts of 6 elements: 3 3 | 3 | 5 | 5 | 5 | 5.
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> places;
  for (const std::vector<Plan::Place>& of_variable : plan.places) {
    places.emplace_back();
    for (const Plan::Place& place : of_variable) {
      places.back().push_back({place.ps, place.part});
    }
  }
  using Places = std::vector<std::pair<uint32_t, uint32_t>>;
  EXPECT_THAT(places,
              ElementsAre(Places{{0, 3}, {0, 4}, {0, 5}, {1, 0}},
                          Places{{0, 2}}, Places{{0, 0}, {0, 0}, {0, 1}}));
}

TEST(PlanPullTest, SeveralSlicesOnAPsFirstFirstAndNeverAcrossABorder) {
  EXPECT_THAT(PlanPull(MakeCutLayout(), 1 << 20).parts,
              ElementsAre(ElementsAre(ElementsAre(
                              ElementRange{0, 0, 5}, ElementRange{0, 10, 5},
                              ElementRange{0, 15, 5}, ElementRange{1, 0, 5},
                              ElementRange{2, 0, 3}, ElementRange{2, 3, 3},
                              ElementRange{2, 6, 3})),
                          ElementsAre(ElementsAre(ElementRange{0, 5, 5}))));
}

TEST(PlanPullTest, FirstDeclaredFirstWithWhatIsNotTrainable) {
  const Layout layout = MakeLayout({{10, 0}, {10, 0, false}, {10, 1}}, 3);
  EXPECT_THAT(
      PlanPull(layout, 80).parts,
      ElementsAre(ElementsAre(ElementsAre(ElementRange{0, 0, 10},
                                          ElementRange{1, 0, 10})),
                  ElementsAre(ElementsAre(ElementRange{2, 0, 10})), IsEmpty()));
}

// Elements that are just lent.
constexpr int64_t kLent = kMinLentBytes / sizeof(float);

TEST(PlanPushTest, WhatIsLentCountsOnlyAsItsPlace) {
  // ps 0 is a neighbor. Parts of 8 elements: of v1, which is lent whole, none
  // count, so v2 (3), v1 and v0 (4) are one part; ps 1 gets v3 in pieces.
  const Layout layout =
      MakeLayout({{4, 0}, {kLent + 1, 0}, {3, 0}, {kLent, 1}}, 2);
  const Plan plan = PlanPush(layout, 32, {true, false});
  EXPECT_THAT(plan.parts[0],
              ElementsAre(ElementsAre(ElementRange{2, 0, 3},
                                      ElementRange{1, 0, kLent + 1},
                                      ElementRange{0, 0, 4})));
  EXPECT_EQ(plan.parts[1].size(), kLent / 8);
  EXPECT_THAT(plan.lent,
              ElementsAre(IsEmpty(), ElementsAre(ElementRange{1, 0, kLent + 1}),
                          IsEmpty(), IsEmpty()));
}

TEST(PlanPushTest, WhatIsSmallIsSentToANeighborToo) {
  const Layout layout = MakeLayout({{kLent - 1, 0}, {kLent, 0}}, 1);
  const Plan plan = PlanPush(layout, 1 << 20, {true});
  EXPECT_THAT(plan.parts,
              ElementsAre(ElementsAre(ElementsAre(
                  ElementRange{1, 0, kLent}, ElementRange{0, 0, kLent - 1}))));
  EXPECT_THAT(plan.lent,
              ElementsAre(IsEmpty(), ElementsAre(ElementRange{1, 0, kLent})));
}

TEST(PlanPushTest, APartHasABoundedNumberOfLoans) {
  const Layout layout = MakeLayout(
      std::vector<Declared>(kMaxLoansInPart + 1, Declared{kLent, 0}), 1);
  const Plan plan = PlanPush(layout, 1 << 20, {true});
  ASSERT_EQ(plan.parts[0].size(), 2);
  EXPECT_EQ(plan.parts[0][0].size(), kMaxLoansInPart);
  EXPECT_EQ(plan.parts[0][1].size(), 1);
}

TEST(PlanPushTest, NothingIsLentInAJobWithCompression) {
  proto::GetPlacementResponse placement;
  AddVariable(2 * kLent, true, &placement);
  AddVariable(1, true, &placement);
  AddSlice("v0", 0, 2 * kLent, 0, &placement);
  AddSlice("v1", 0, 1, 0, &placement);
  for (const bool push : {false, true}) {
    proto::Compression& compression = *placement.mutable_declaration()
                                           ->mutable_variables(1)
                                           ->mutable_compression();
    compression.set_push(push ? proto::FLOAT16 : proto::EXACT);
    compression.set_pull(push ? proto::EXACT : proto::FLOAT16);
    const Plan plan = PlanPush(*Layout::Make(placement, 1), 4 * kLent, {true});
    EXPECT_EQ(plan.parts[0].size(), 3);
    EXPECT_THAT(plan.lent, ElementsAre(IsEmpty(), IsEmpty()));
  }
}

TEST(PlanPullTest, ANeighborIsAskedForAllAtOnce) {
  const Layout layout =
      MakeLayout({{4, 0}, {kLent, 0, false}, {2 * kLent, 0}}, 1);
  EXPECT_THAT(PlanPull(layout, 32, {true}).parts,
              ElementsAre(ElementsAre(
                  ElementsAre(ElementRange{0, 0, 4}, ElementRange{1, 0, kLent},
                              ElementRange{2, 0, 2 * kLent}))));
}

TEST(PlanPullTest, SomebodyIsAskedForTheVersion) {
  EXPECT_THAT(PlanPull(MakeLayout({{0, 0}}, 2), 80).parts,
              ElementsAre(ElementsAre(IsEmpty()), IsEmpty()));
}

}  // namespace
}  // namespace holdfast::client
