// SPDX-License-Identifier: Apache-2.0

// Rows of embedding tables in the turns of a TrainingLoop. A pull of the fake
// cluster fills rows with the version.

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/testing/fake_cluster.h"
#include "client/training_loop.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class TrainingLoopRowsTest : public ::testing::Test {
 protected:
  // The variable a [2], and the tables "t", whose rows have 2 values, and "u",
  // whose rows have 1; a push has up to 3 rows of each.
  TrainingLoopRowsTest() {
    proto::Variable& variable = *declaration_.add_variables();
    variable.set_name("a");
    variable.add_shape(2);
    for (const auto& [name, length] : {std::pair("t", 2), {"u", 1}}) {
      proto::EmbeddingTable& table = *declaration_.add_tables();
      table.set_name(name);
      table.set_row_length(length);
      table.set_max_rows_per_push(3);
    }
  }

  void StartSynchronous(uint32_t seats, uint64_t steps) {
    auto* synchronous =
        declaration_.mutable_consistency()->mutable_synchronous();
    synchronous->set_replicas_to_aggregate(seats);
    synchronous->set_total_num_replicas(1);
    declaration_.set_total_steps(steps);
    Start();
  }

  void StartAsynchronous(uint32_t depth, uint64_t tickets) {
    declaration_.mutable_consistency()
        ->mutable_asynchronous()
        ->set_pipeline_depth(depth);
    declaration_.set_examples(proto::BY_TICKET);
    declaration_.set_total_steps(tickets);
    declaration_.set_total_tickets(tickets);
    Start();
  }

  void Start() {
    cluster_ = std::make_unique<FakeCluster>(declaration_);
    TrainingLoop::Options options;
    options.enter = [this] {
      return cluster_->AwaitVariables(absl::InfiniteFuture());
    };
    loop_ = std::make_unique<TrainingLoop>(cluster_.get(), &calls_, &clock_,
                                           options);
  }

  TrainingLoop::Turn Next() {
    const auto turn = loop_->Next(absl::InfiniteFuture());
    EXPECT_TRUE(turn.ok()) << turn.status();
    return turn.ok() ? **turn : TrainingLoop::Turn();
  }
  void Push() {
    ASSERT_EQ(loop_->Add(0, a_), absl::OkStatus());
    ASSERT_EQ(loop_->Contribute({8, 0.5, {}}), absl::OkStatus());
  }
  absl::Status WantRows(const std::vector<uint64_t>& ids) {
    return loop_->WantRows({{0, ids}});
  }
  // Reads rows of "t".
  absl::StatusOr<bool> ReadRows(const std::vector<uint64_t>& ids,
                                absl::Time until = absl::InfiniteFuture()) {
    values_.assign(ids.size() * 2, -1);
    return loop_->ReadRows({{0, ids}}, {absl::MakeSpan(values_)}, until);
  }
  bool Read(const std::vector<uint64_t>& ids) {
    const absl::StatusOr<bool> here = ReadRows(ids);
    EXPECT_TRUE(here.ok()) << here.status();
    return here.value_or(false);
  }
  absl::Status AddRows(const std::vector<uint64_t>& ids,
                       const std::vector<float>& gradients) {
    return loop_->AddRows(0, ids, gradients);
  }

  proto::Declaration declaration_;
  const SteadyClock clock_;
  BackgroundCalls calls_;
  std::unique_ptr<FakeCluster> cluster_;
  const std::vector<float> a_ = {3, 0};
  // The values read.
  std::vector<float> values_;
  std::unique_ptr<TrainingLoop> loop_;
};

TEST_F(TrainingLoopRowsTest, RowsThatAreWantedComeWithTheValues) {
  StartSynchronous(/*seats=*/1, /*steps=*/3);
  ASSERT_EQ(WantRows({7, 5, 7}), absl::OkStatus());
  for (uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(Next().step, GlobalStep(step));
    EXPECT_TRUE(Read({5, 7, 5}));
    const float value = static_cast<float>(step);
    EXPECT_THAT(values_, ElementsAre(value, value, value, value, value, value));
    ASSERT_EQ(WantRows({5, 7}), absl::OkStatus());
    Push();
  }
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(cluster_->calls("pull"),
              ElementsAre("pull 0", "pull 1", "pull 2", "pull 3"));
}

// Rows are wanted for one pull only.
TEST_F(TrainingLoopRowsTest, OtherRowsTakeAPullOfTheTurnsVersion) {
  StartSynchronous(/*seats=*/1, /*steps=*/2);
  ASSERT_EQ(WantRows({5}), absl::OkStatus());
  Next();
  EXPECT_TRUE(Read({5}));
  EXPECT_THAT(cluster_->calls("pull"), ElementsAre("pull 0"));
  EXPECT_TRUE(Read({5, 6}));
  EXPECT_THAT(cluster_->calls("pull"), ElementsAre("pull 0", "pull 0"));
  EXPECT_EQ((*loop_->values())->Of(0).size(), 2);
  Push();
  Next();
  EXPECT_TRUE(Read({5}));
  EXPECT_THAT(values_, ElementsAre(1, 1));
  EXPECT_THAT(cluster_->calls("pull"),
              ElementsAre("pull 0", "pull 0", "pull 1", "pull 1"));
  Push();
  // If the turn is done: the final values.
  EXPECT_TRUE(Next().done);
  EXPECT_TRUE(Read({5}));
  EXPECT_THAT(values_, ElementsAre(2, 2));
}

TEST_F(TrainingLoopRowsTest, SeveralTablesAreReadByOnePull) {
  StartAsynchronous(/*depth=*/1, /*tickets=*/1);
  Next();
  const size_t before = cluster_->calls("pull").size();
  const std::vector<uint64_t> ids = {1, 1};
  std::vector<float> t(4, -1), u(2, -1);
  const auto read = loop_->ReadRows({{1, ids}, {0, ids}},
                                    {absl::MakeSpan(u), absl::MakeSpan(t)},
                                    absl::InfiniteFuture());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read);
  EXPECT_THAT(t, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(u, ElementsAre(0, 0));
  EXPECT_EQ(cluster_->calls("pull").size(), before + 1);
}

TEST_F(TrainingLoopRowsTest, ReadsInPortions) {
  StartSynchronous(/*seats=*/1, /*steps=*/1);
  Next();
  cluster_->delays["await pull 0"] = 2;
  const absl::Time at_once = absl::InfinitePast();
  EXPECT_EQ(*ReadRows({5}, at_once), false);
  // For other rows a new pull begins.
  EXPECT_EQ(*ReadRows({6}, at_once), false);
  EXPECT_EQ(*ReadRows({6}, at_once), true);
  EXPECT_THAT(cluster_->calls("pull"),
              ElementsAre("pull 0", "pull 0", "pull 0"));
  Push();
  EXPECT_TRUE(Next().done);
}

TEST_F(TrainingLoopRowsTest, AReadMayBeGivenUp) {
  StartSynchronous(/*seats=*/1, /*steps=*/1);
  Next();
  cluster_->delays["await pull 0"] = 1;
  EXPECT_EQ(*ReadRows({5}, absl::InfinitePast()), false);
  Push();
  EXPECT_TRUE(Next().done);
}

TEST_F(TrainingLoopRowsTest, GradientsOfARowAreAddedUp) {
  StartSynchronous(/*seats=*/2, /*steps=*/1);
  for (int seat = 0; seat < 2; ++seat) {
    Next();
    {
      const std::vector<uint64_t> ids = {9, 4, 9};
      const std::vector<float> gradients = {1, 10, 2, 20, 4, 40};
      ASSERT_EQ(loop_->AddRows(0, ids, gradients), absl::OkStatus());
      // Both belong to the caller again.
    }
    Push();
  }
  EXPECT_TRUE(Next().done);
  for (const uint64_t push : {1, 2}) {
    EXPECT_THAT(cluster_->pushed_rows(push),
                UnorderedElementsAre(Pair(
                    0, UnorderedElementsAre(Pair(4, ElementsAre(2, 20)),
                                            Pair(9, ElementsAre(5, 50))))));
  }
}

TEST_F(TrainingLoopRowsTest, TheGlobalNormIsOfTheSummedRowsAsWell) {
  declaration_.mutable_clipping()->set_global_norm(1);
  StartSynchronous(/*seats=*/1, /*steps=*/1);
  Next();
  ASSERT_EQ(AddRows({9, 9}, {1, 0, 3, 0}), absl::OkStatus());
  Push();
  EXPECT_TRUE(Next().done);
  // |(3, 0, 4, 0)| = 5.
  EXPECT_EQ(cluster_->contributions()[0].clip_factor, 0.2f);
}

TEST_F(TrainingLoopRowsTest, MistakesNameTheTableAndChangeNothing) {
  StartSynchronous(/*seats=*/1, /*steps=*/1);
  EXPECT_TRUE(absl::IsFailedPrecondition(AddRows({1}, {1, 1})));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadRows({1}).status()));
  Next();
  const auto invalid = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(invalid(loop_->AddRows(2, {}, {})), "there is no table 2, only 2");
  EXPECT_EQ(invalid(loop_->WantRows({{2, {}}})), "there is no table 2, only 2");
  EXPECT_THAT(
      invalid(
          loop_->ReadRows({{1, {}}, {1, {}}}, {{}, {}}, absl::InfiniteFuture())
              .status()),
      HasSubstr("table \"u\" is named twice"));
  EXPECT_EQ(invalid(AddRows({1, 2}, {1, 1, 1})),
            "table \"t\": the gradients of 2 rows of 2 values are 3 numbers");
  EXPECT_EQ(invalid(AddRows({1, 2, 3, 4}, {1, 1, 1, 1, 1, 1, 1, 1})),
            "table \"t\": 4 rows are pushed, but max_rows_per_push is 3");
  ASSERT_EQ(AddRows({1}, {2, 3}), absl::OkStatus());
  EXPECT_EQ(invalid(AddRows({1}, {7, 7})),
            "table \"t\": its rows were handed in before");
  Push();
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(cluster_->pushed_rows(1)[0],
              ElementsAre(Pair(1, ElementsAre(2, 3))));
  EXPECT_EQ(cluster_->contributions()[0].examples, 8);
}

TEST_F(TrainingLoopRowsTest, ARowThatIsNotFiniteIsNamed) {
  StartSynchronous(/*seats=*/1, /*steps=*/2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const absl::Status error =
      absl::InvalidArgumentError("table \"t\": element 1 of row 6 is nan");
  Next();
  EXPECT_EQ(AddRows({8, 6}, {1, 1, 1, nan}), error);
  // The rows that are handed in instead count.
  ASSERT_EQ(AddRows({8, 6}, {1, 1, 1, 1}), absl::OkStatus());
  Push();
  Next();
  EXPECT_EQ(loop_->counts().not_finite, 0);
  // If no others are handed in, the turn is passed.
  EXPECT_EQ(AddRows({8, 6}, {1, 1, 1, nan}), error);
  Push();
  EXPECT_TRUE(Next().done);
  EXPECT_EQ(loop_->counts().not_finite, 1);
  EXPECT_EQ(cluster_->contributions()[0].examples, 8);
  EXPECT_TRUE(cluster_->contributions()[1].not_finite);
  EXPECT_THAT(cluster_->pushed_rows(2), IsEmpty());
}

// The fake cluster refuses to continue while the worker still has a handle.
TEST_F(TrainingLoopRowsTest, ARollBackEndsTheTurnWhoseRowsAreRead) {
  StartSynchronous(/*seats=*/1, /*steps=*/2);
  Next();
  Push();
  Next();
  cluster_->roll_backs["await pull 1"].version = 0;
  EXPECT_EQ(ReadRows({5}).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ReadRows({5}).status().code(), absl::StatusCode::kAborted);
  // What is handed in is dropped.
  EXPECT_EQ(AddRows({5}, {1, 1}), absl::OkStatus());
  const TrainingLoop::Turn turn = Next();
  EXPECT_TRUE(turn.rolled_back);
  EXPECT_EQ(turn.step, GlobalStep(0));
  EXPECT_TRUE(Read({5}));
  EXPECT_THAT(values_, ElementsAre(0, 0));
}

TEST_F(TrainingLoopRowsTest, APipelinedPushKeepsItsRows) {
  StartAsynchronous(/*depth=*/2, /*tickets=*/4);
  float value = 0;
  for (;; ++value) {
    if (Next().done) break;
    ASSERT_EQ(AddRows({5}, {value, value}), absl::OkStatus());
    Push();
  }
  for (const uint64_t push : {1, 2, 3, 4}) {
    EXPECT_EQ(cluster_->pushed_rows(push)[0][5][0], push - 1) << push;
  }
}

}  // namespace
}  // namespace holdfast
