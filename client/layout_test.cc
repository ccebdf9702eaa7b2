// SPDX-License-Identifier: Apache-2.0
#include "client/layout.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

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

// Layout::Make with a valid placement that `spoil` has changed.
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
           "the cluster has 3 ps tasks, but the ClusterSpec here has 2"},
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
           absl::StatusCode::kInternal, "is declared twice"},
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

proto::EmbeddingTable* AddTable(const std::string& name,
                                proto::GetPlacementResponse* placement) {
  proto::EmbeddingTable* table = placement->mutable_declaration()->add_tables();
  table->set_name(name);
  table->set_row_length(16);
  table->set_max_rows_per_push(1000);
  return table;
}

TEST(LayoutTest, TablesAreTested) {
  using Placement = proto::GetPlacementResponse;
  const std::vector<std::pair<void (*)(Placement*), std::string>> cases = {
      {[](Placement* p) { AddTable("t", p)->clear_row_length(); },
       "placement: table \"t\" has rows without values"},
      {[](Placement* p) { AddTable("t", p)->clear_max_rows_per_push(); },
       "placement: table \"t\" takes no rows"},
      {[](Placement* p) {
         AddTable("t", p);
         AddTable("t", p);
       },
       "placement: table \"t\" has the name of another table or variable"},
      {[](Placement* p) { AddTable("w", p); },
       "placement: table \"w\" has the name of another table or variable"},
      {[](Placement* p) {
         AddTable("t", p);
         p->mutable_slices(0)->set_variable("t");
       },
       "placement: slice of \"t\", which is not declared as a variable"},
  };
  for (const auto& [spoil, message] : cases) {
    EXPECT_EQ(MakeSpoilt(spoil), absl::InternalError(message));
  }
}

void AddVariable(const std::string& name, const std::vector<int64_t>& shape,
                 proto::GetPlacementResponse* placement) {
  proto::Variable* variable = placement->mutable_declaration()->add_variables();
  variable->set_name(name);
  variable->mutable_shape()->Assign(shape.begin(), shape.end());
  variable->set_dtype(proto::FLOAT32);
}

struct Placed {
  std::string variable;
  uint64_t begin;
  uint64_t size;
  uint32_t ps;
};

absl::StatusOr<Layout> MakeOf(const std::vector<Placed>& slices) {
  proto::GetPlacementResponse placement;
  AddVariable("w", {4, 5}, &placement);
  AddVariable("b", {3}, &placement);
  AddVariable("s", {}, &placement);
  AddVariable("e", {0, 5}, &placement);
  for (const Placed& placed : slices) {
    proto::Slice* slice = placement.add_slices();
    slice->set_variable(placed.variable);
    slice->set_begin(placed.begin);
    slice->set_size(placed.size);
    slice->set_ps(placed.ps);
  }
  AddTable("t", &placement);
  return Layout::Make(placement, 2);
}

TEST(LayoutTest, SlicesInAnyOrderSeveralOnAPs) {
  const absl::StatusOr<Layout> layout = MakeOf({{"s", 0, 1, 0},
                                                {"w", 15, 5, 0},
                                                {"w", 0, 5, 0},
                                                {"b", 1, 2, 1},
                                                {"w", 10, 5, 1},
                                                {"e", 0, 0, 1},
                                                {"b", 0, 1, 0},
                                                {"w", 5, 5, 0}});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->variables().size(), 4);
  EXPECT_EQ(layout->variables()[0].size, 20);
  // Neighbours stay two slices.
  EXPECT_THAT(layout->slices(0),
              ElementsAre(ElementRange{0, 0, 5}, ElementRange{0, 5, 5},
                          ElementRange{0, 15, 5}, ElementRange{1, 0, 1},
                          ElementRange{2, 0, 1}));
  EXPECT_THAT(layout->slices(1),
              ElementsAre(ElementRange{0, 10, 5}, ElementRange{1, 1, 2}));
  ASSERT_EQ(layout->tables().size(), 1);
  EXPECT_EQ(layout->tables()[0].name, "t");
  EXPECT_EQ(layout->tables()[0].row_length, 16);
  EXPECT_EQ(layout->tables()[0].max_rows_per_push, 1000);
}

TEST(LayoutTest, SlicesThatDoNotCoverOnce) {
  const std::vector<std::vector<Placed>> cases = {
      // A hole at the beginning, in the middle, at the end.
      {{"w", 5, 15, 0}},
      {{"w", 0, 5, 0}, {"w", 10, 10, 1}},
      {{"w", 0, 5, 0}, {"w", 5, 10, 0}},
      // Twice, in part and as a whole, on one ps and on two.
      {{"w", 0, 10, 0}, {"w", 9, 11, 1}},
      {{"w", 0, 10, 0}, {"w", 0, 10, 0}, {"w", 10, 10, 0}},
      {{"w", 0, 10, 0}, {"w", 10, 10, 0}, {"w", 10, 10, 1}},
      // Beyond the end, and so far that a sum would wrap.
      {{"w", 0, 10, 0}, {"w", 10, 11, 1}},
      {{"w", 0, 10, 0}, {"w", 10, ~uint64_t{0} - 9, 1}},
      {{"w", 0, 30, 0}, {"w", 30, ~uint64_t{0} - 9, 1}},
      {{"w", 0, 20, 0}, {"w", ~uint64_t{0}, 1, 1}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<Placed> slices = cases[i];
    slices.push_back({"b", 0, 3, 0});
    slices.push_back({"s", 0, 1, 0});
    const absl::StatusOr<Layout> layout = MakeOf(slices);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInternal) << i;
    EXPECT_THAT(std::string(layout.status().message()),
                ::testing::HasSubstr("\"w\" do not cover"))
        << i;
  }
}

}  // namespace
}  // namespace holdfast::client
