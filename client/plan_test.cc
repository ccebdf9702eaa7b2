#include "client/plan.h"

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {

// For failure messages.
void PrintTo(const Stretch& stretch, std::ostream* out) {
  *out << "{variable " << stretch.variable << ", [" << stretch.begin << ", "
       << stretch.begin + stretch.size << ")}";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Declared {
  int64_t size;
  uint32_t ps;
  bool trainable = true;
};

// Variables "v0", "v1", ... of one dimension, each in one slice.
Layout MakeLayout(const std::vector<Declared>& variables, uint32_t num_ps) {
  proto::GetPlacementResponse placement;
  for (const Declared& declared : variables) {
    proto::Variable* variable =
        placement.mutable_declaration()->add_variables();
    variable->set_name(
        absl::StrCat("v", placement.declaration().variables_size() - 1));
    variable->add_shape(declared.size);
    variable->set_dtype(proto::FLOAT32);
    variable->set_trainable(declared.trainable);
    proto::Slice* slice = placement.add_slices();
    slice->set_variable(variable->name());
    slice->set_size(declared.size);
    slice->set_ps(declared.ps);
  }
  return *Layout::Make(placement, num_ps);
}

TEST(PlanPushTest, LastDeclaredFirst) {
  const Layout layout = MakeLayout({{10, 0}, {10, 0}, {10, 0}}, 1);
  // 40 bytes: one variable to a part.
  EXPECT_THAT(PlanPush(layout, 40).parts,
              ElementsAre(ElementsAre(ElementsAre(Stretch{2, 0, 10}),
                                      ElementsAre(Stretch{1, 0, 10}),
                                      ElementsAre(Stretch{0, 0, 10}))));
}

TEST(PlanPushTest, SmallVariablesShareAPart) {
  // Parts of 25 elements: 5 + 10 + 10, and 10 is left.
  const Layout layout = MakeLayout({{10, 0}, {10, 0}, {10, 0}, {5, 0}}, 1);
  EXPECT_THAT(
      PlanPush(layout, 100).parts,
      ElementsAre(ElementsAre(
          ElementsAre(Stretch{3, 0, 5}, Stretch{2, 0, 10}, Stretch{1, 0, 10}),
          ElementsAre(Stretch{0, 0, 10}))));
}

TEST(PlanPushTest, CutsWhatIsLargerThanAPart) {
  // Parts of 8 elements. v2 (3) begins a part that v1 (20) does not fit in; v1
  // is cut in 8 + 8 + 4, and v0 (4) fits beside the rest.
  const Layout layout = MakeLayout({{4, 0}, {20, 0}, {3, 0}}, 1);
  EXPECT_THAT(PlanPush(layout, 32).parts,
              ElementsAre(ElementsAre(
                  ElementsAre(Stretch{2, 0, 3}), ElementsAre(Stretch{1, 0, 8}),
                  ElementsAre(Stretch{1, 8, 8}),
                  ElementsAre(Stretch{1, 16, 4}, Stretch{0, 0, 4}))));
}

TEST(PlanPushTest, CutAtTheEndOfAPartLeavesNoEmptyPart) {
  const Layout layout = MakeLayout({{16, 0}}, 1);
  EXPECT_THAT(PlanPush(layout, 32).parts,
              ElementsAre(ElementsAre(ElementsAre(Stretch{0, 0, 8}),
                                      ElementsAre(Stretch{0, 8, 8}))));
}

TEST(PlanPushTest, AShardWithoutAShareGetsOneEmptyPart) {
  // ps 1 holds only what is not trainable, ps 2 nothing.
  const Layout layout = MakeLayout({{10, 0}, {10, 1, false}}, 3);
  EXPECT_THAT(PlanPush(layout, 40).parts,
              ElementsAre(ElementsAre(ElementsAre(Stretch{0, 0, 10})),
                          ElementsAre(IsEmpty()), ElementsAre(IsEmpty())));
}

TEST(PlanPushTest, AVariableWithoutElementsIsInNoPart) {
  const Layout layout = MakeLayout({{0, 0}}, 1);
  const Plan plan = PlanPush(layout, 40);
  EXPECT_THAT(plan.parts, ElementsAre(ElementsAre(IsEmpty())));
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

TEST(PlanPullTest, FirstDeclaredFirstWithWhatIsNotTrainable) {
  const Layout layout = MakeLayout({{10, 0}, {10, 0, false}, {10, 1}}, 3);
  EXPECT_THAT(
      PlanPull(layout, 80).parts,
      ElementsAre(
          ElementsAre(ElementsAre(Stretch{0, 0, 10}, Stretch{1, 0, 10})),
          ElementsAre(ElementsAre(Stretch{2, 0, 10})), ElementsAre(IsEmpty())));
}

// Layout::Make, with a placement that is right except for what `spoil` does.
absl::Status MakeSpoilt(void (*spoil)(proto::GetPlacementResponse*)) {
  proto::GetPlacementResponse placement;
  proto::Variable* variable = placement.mutable_declaration()->add_variables();
  variable->set_name("w");
  variable->add_shape(4);
  variable->add_shape(5);
  variable->set_dtype(proto::FLOAT32);
  for (uint32_t ps : {1, 0}) {
    proto::Slice* slice = placement.add_slices();
    slice->set_variable("w");
    slice->set_begin(ps * 12);
    slice->set_size(ps == 0 ? 12 : 8);
    slice->set_ps(ps);
  }
  placement.add_ps_addresses("a:1");
  placement.add_ps_addresses("b:1");
  spoil(&placement);
  return Layout::Make(placement, 2).status();
}

TEST(LayoutTest, TestsWhatTheCoordinatorTells) {
  using Placement = proto::GetPlacementResponse;
  const std::vector<
      std::tuple<void (*)(Placement*), absl::StatusCode, std::string>>
      cases = {
          {[](Placement*) {}, absl::StatusCode::kOk, ""},
          {[](Placement* p) { p->add_ps_addresses("c:1"); },
           absl::StatusCode::kFailedPrecondition,
           "the cluster has 3 ps tasks, the ClusterSpec here 2"},
          {[](Placement* p) {
             p->mutable_declaration()->mutable_variables(0)->set_shape(0, -1);
           },
           absl::StatusCode::kInternal, "variable \"w\""},
          {[](Placement* p) {
             p->mutable_declaration()->mutable_variables(0)->clear_dtype();
           },
           absl::StatusCode::kInternal, "not float32"},
          {[](Placement* p) {
             *p->mutable_declaration()->add_variables() =
                 p->declaration().variables(0);
           },
           absl::StatusCode::kInternal, "stands twice"},
          {[](Placement* p) { p->mutable_slices(0)->set_variable("x"); },
           absl::StatusCode::kInternal, "not declared"},
          {[](Placement* p) { p->mutable_slices(0)->set_ps(2); },
           absl::StatusCode::kInternal, "at ps 2 of 2"},
          {[](Placement* p) { p->mutable_slices()->RemoveLast(); },
           absl::StatusCode::kInternal, "do not cover"},
          {[](Placement* p) { p->mutable_slices(0)->set_begin(11); },
           absl::StatusCode::kInternal, "do not cover"},
          {[](Placement* p) { p->mutable_slices(0)->set_size(~uint64_t{0}); },
           absl::StatusCode::kInternal, "do not cover"},
      };
  for (const auto& [spoil, code, message] : cases) {
    const absl::Status status = MakeSpoilt(spoil);
    EXPECT_EQ(status.code(), code) << message << ": " << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
  }
}

}  // namespace
}  // namespace holdfast::client
