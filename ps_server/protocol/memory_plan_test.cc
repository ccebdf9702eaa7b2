// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/memory_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// "w", 1000 elements of which 600 are on ps 0, in two slices, and 400 on ps 1;
// "frozen", 50 elements on ps 0. Adam: two slots.
proto::Declaration MakeDeclaration() {
  proto::Declaration declaration;
  proto::Variable& w = *declaration.add_variables();
  w.set_name("w");
  w.add_shape(1000);
  proto::Variable& frozen = *declaration.add_variables();
  frozen.set_name("frozen");
  frozen.add_shape(50);
  frozen.set_trainable(false);
  declaration.add_optimizers()->mutable_adam();
  declaration.set_num_workers(3);
  return declaration;
}

std::vector<proto::Slice> Slices() {
  std::vector<proto::Slice> slices(4);
  const auto set = [](proto::Slice& slice, const char* variable, uint64_t begin,
                      uint64_t size, uint32_t ps) {
    slice.set_variable(variable);
    slice.set_begin(begin);
    slice.set_size(size);
    slice.set_ps(ps);
  };
  set(slices[0], "w", 0, 200, 0);
  set(slices[1], "w", 200, 400, 1);
  set(slices[2], "w", 600, 400, 0);
  set(slices[3], "frozen", 0, 50, 0);
  return slices;
}

proto::Declaration Synchronous(uint32_t n, uint32_t m) {
  proto::Declaration declaration = MakeDeclaration();
  auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(n);
  mode.set_total_num_replicas(m);
  declaration.set_num_workers(m);
  return declaration;
}

proto::Declaration Asynchronous(uint32_t depth) {
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_consistency()->mutable_asynchronous()->set_pipeline_depth(
      depth);
  return declaration;
}

// T of ps 0.
constexpr int64_t kT = 600 * 4;
// Values and slots of ps 0.
constexpr int64_t kFixed = kT + 50 * 4 + 2 * kT;

struct Case {
  std::string name;
  proto::Declaration declaration;
  // The pushes that fit besides values, slots, and the two versions.
  int64_t pushes;
  size_t reserved_per_worker;
  size_t wanted_extra;
};

std::vector<Case> Cases() {
  return {
      {"N = M", Synchronous(3, 3), 3, 1, 3},
      {"backup", Synchronous(2, 3), 3, 1, 3},
      {"N = 2 M", Synchronous(6, 3), 6, 2, 6},
      {"one has two seats", Synchronous(4, 3), 6, 2, 6},
      {"asynchronous", Asynchronous(1), 3, 1, 0},
      {"deep", Asynchronous(4), 3, 1, 9},
  };
}

TEST(MemoryPlanTest, TheLeastIsTheSumOfItsParts) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const int64_t least = kFixed + 2 * kT + c.pushes * kT;
    const auto plan = PlanMemory(c.declaration, Slices(), 0, least);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->needed_bytes, least);
    EXPECT_EQ(plan->reserved_per_worker, c.reserved_per_worker);
    EXPECT_EQ(plan->extra_pushes, 0u);
    EXPECT_EQ(plan->max_pinned_versions, 1u);
    EXPECT_FALSE(PlanMemory(c.declaration, Slices(), 0, least - 1).ok());
  }
}

TEST(MemoryPlanTest, WhatIsAveragedHasNoSlots) {
  proto::Declaration declaration = Synchronous(3, 3);
  declaration.mutable_variables(0)->mutable_moving_average();
  const auto plan = PlanMemory(declaration, Slices(), 0, 1 << 20);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->needed_bytes, kFixed - 2 * kT + 2 * kT + 3 * kT);
}

TEST(MemoryPlanTest, WhatIsLeftGoesToPushesThenToPins) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const int64_t least = kFixed + 2 * kT + c.pushes * kT;
    for (size_t more = 0; more < 100; ++more) {
      const auto plan =
          PlanMemory(c.declaration, Slices(), 0, least + more * kT + kT / 2);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->extra_pushes, std::min(more, c.wanted_extra));
      EXPECT_EQ(plan->max_pinned_versions,
                std::min<size_t>(64, 1 + more - plan->extra_pushes));
    }
    const auto unlimited = PlanMemory(c.declaration, Slices(), 0, 0);
    ASSERT_TRUE(unlimited.ok()) << unlimited.status();
    EXPECT_EQ(unlimited->extra_pushes, c.wanted_extra);
    EXPECT_EQ(unlimited->max_pinned_versions, 64u);
  }
}

TEST(MemoryPlanTest, LentVersionsComeBeforePins) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const bool asynchronous = c.declaration.consistency().has_asynchronous();
    // Two for each of three workers, and two; or four versions.
    const size_t wanted = asynchronous ? 8 : 4;
    const int64_t least = kFixed + 2 * kT + (c.pushes + c.wanted_extra) * kT;
    for (size_t more = 0; more < 20; ++more) {
      const auto plan = PlanMemory(c.declaration, Slices(), 0,
                                   least + more * kT + kT / 2, /*lends=*/true);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->extra_pushes, c.wanted_extra);
      EXPECT_EQ(plan->max_lent_versions, std::min(more, wanted));
      EXPECT_EQ(plan->max_pinned_versions, 1 + more - plan->max_lent_versions);
    }
    const auto nobody = PlanMemory(c.declaration, Slices(), 0, 0);
    ASSERT_TRUE(nobody.ok()) << nobody.status();
    EXPECT_EQ(nobody->max_lent_versions, 0u);
  }
}

TEST(MemoryPlanTest, LentRowsComeBeforeLentVersions) {
  proto::Declaration declaration = Synchronous(3, 3);
  const auto lent_rows = [&](int64_t limit, bool lends) {
    const auto plan = PlanMemory(declaration, Slices(), 0, limit, lends);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan->lent_row_bytes;
  };
  EXPECT_EQ(lent_rows(0, /*lends=*/true), 0) << "no tables";
  proto::EmbeddingTable& table = *declaration.add_tables();
  table.set_name("t");
  table.set_row_length(4);
  table.set_max_rows(1 << 14);
  table.mutable_initializer()->mutable_zeros();
  table.set_max_rows_per_push(10);
  constexpr int64_t kMost = 64 << 20;
  // Four values, and 16 bytes besides.
  constexpr int64_t kRowBytes = 4 * 4 + 16;
  EXPECT_EQ(lent_rows(0, /*lends=*/true), kMost);
  EXPECT_EQ(lent_rows(0, /*lends=*/false), 0);

  const auto unlimited = PlanMemory(declaration, Slices(), 0, 0);
  ASSERT_TRUE(unlimited.ok()) << unlimited.status();
  const int64_t least = unlimited->needed_bytes;
  const auto pushes =
      static_cast<int64_t>(unlimited->extra_pushes) * (kT + 10 * kRowBytes);
  EXPECT_EQ(lent_rows(least, /*lends=*/true), 0);
  EXPECT_EQ(lent_rows(least + pushes + 5000, /*lends=*/true), 5000);
  const auto more = PlanMemory(declaration, Slices(), 0,
                               least + pushes + kMost + kT, /*lends=*/true);
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(more->lent_row_bytes, kMost);
  EXPECT_EQ(more->max_lent_versions, 1u);
}

TEST(MemoryPlanTest, OtherPsAndNothingToTrain) {
  const auto other = PlanMemory(Asynchronous(1), Slices(), 1, 0);
  ASSERT_TRUE(other.ok()) << other.status();
  // 400 elements: value, two slots, two versions, three pushes.
  EXPECT_EQ(other->needed_bytes, 400 * 4 * 8);
  const auto nothing = PlanMemory(Asynchronous(2), Slices(), 2, 1);
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_EQ(nothing->needed_bytes, 0);
  EXPECT_EQ(nothing->extra_pushes, 3u);
}

TEST(MemoryPlanTest, TheRefusalShowsTheSum) {
  const auto plan = PlanMemory(Asynchronous(1), Slices(), 0, 4096);
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(plan.status().message()),
      AllOf(HasSubstr("/job:ps/task:0 may take 4.0 KiB (--memory_limit; 80 % "
                      "of the memory unless set), the "
                      "job needs 18.9 KiB there"),
            HasSubstr("values 2.5 KiB + optimizer slots 4.7 KiB + next version "
                      "2.3 KiB + a version being read 2.3 KiB + 3 pushes of "
                      "2.3 KiB each")));
  // 18.9 KiB both.
  EXPECT_THAT(
      std::string(
          PlanMemory(Asynchronous(1), Slices(), 0, 19399).status().message()),
      HasSubstr("may take 19399 bytes (--memory_limit; 80 % of the memory "
                "unless set), the job needs 19400 "
                "bytes there"));
}

TEST(MemoryPlanTest, WhatIsLeftIsForPinsAndForCopiesOfRows) {
  proto::Declaration declaration = Asynchronous(1);
  const auto without = PlanMemory(declaration, Slices(), 0, 1 << 20);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->held_row_bytes, 0);
  proto::EmbeddingTable& table = *declaration.add_tables();
  table.set_name("t");
  table.set_row_length(1);
  table.set_max_rows_per_push(1);
  table.set_max_rows(kRowBuckets);
  table.mutable_initializer()->mutable_zeros();
  const auto all = PlanMemory(declaration, Slices(), 0, 0);
  ASSERT_TRUE(all.ok()) << all.status();
  // A push has a row of 4 bytes, and 16 for its id and place.
  const auto with = PlanMemory(
      declaration, Slices(), 0,
      all->needed_bytes + all->extra_pushes * (kT + 4 + 16) + 6 * kT);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->extra_pushes, all->extra_pushes);
  EXPECT_EQ(with->held_row_bytes, 3 * kT);
  EXPECT_EQ(with->max_pinned_versions, 1 + 3u);
}

// Values and slots that are being written are kept besides those in training.
TEST(MemoryPlanTest, CheckpointsCostWhatTheyHold) {
  for (Case c : Cases()) {
    SCOPED_TRACE(c.name);
    c.declaration.mutable_checkpoints();
    const int64_t least = kFixed + 2 * kT + c.pushes * kT + kT + 2 * kT;
    const auto plan = PlanMemory(c.declaration, Slices(), 0, least);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->needed_bytes, least);
    EXPECT_EQ(plan->extra_pushes, 0u);
    EXPECT_EQ(plan->max_pinned_versions, 1u);
    // 7.0 KiB are 3 x 2400 bytes.
    EXPECT_THAT(std::string(PlanMemory(c.declaration, Slices(), 0, least - 1)
                                .status()
                                .message()),
                HasSubstr("a version being read 2.3 KiB + a checkpoint being "
                          "written 7.0 KiB + "));
  }
}

// Sizes that overflow 64 bits are refused, with or without a limit.
TEST(MemoryPlanTest, AbsurdSizesAreRefused) {
  std::vector<proto::Slice> slices = Slices();
  slices[0].set_size(uint64_t{1} << 61);
  EXPECT_FALSE(PlanMemory(Asynchronous(1), slices, 0, 0).ok());
  slices[0].set_size(~uint64_t{0});
  EXPECT_FALSE(PlanMemory(Asynchronous(1), slices, 0, 1 << 30).ok());
}

}  // namespace
}  // namespace holdfast
