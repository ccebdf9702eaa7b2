// SPDX-License-Identifier: Apache-2.0

// From the declaration to the first version: where variables are placed, how
// they are made, and which calls wait for them.
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

TEST_F(CoordinatorTest, VariablesAreMadeOnceEveryPsHasJoined) {
  for (const bool declare_first : {true, false}) {
    SCOPED_TRACE(declare_first);
    Make(3, 1);
    Join(Worker(0));
    if (declare_first) {
      ASSERT_TRUE(Declare().status().ok());
    }
    Join(Ps(2));
    EXPECT_THAT(links_->restores, IsEmpty());
    Join(Ps(1));
    if (!declare_first) {
      EXPECT_THAT(links_->restores, IsEmpty());
      ASSERT_TRUE(Declare().status().ok());
    }
    EXPECT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0, 1, 2));
    EXPECT_THAT(links_->addresses,
                ElementsAre(Pair(2, "host2:2000"), Pair(1, "host1:2000")));

    // Each shard is told everything: the declaration with defaults, and the
    // whole placement.
    proto::Declaration declared = WithMode(1, 1);
    declared.set_examples(proto::BY_STEP);
    declared.set_num_workers(1);
    declared.mutable_lost_workers()->set_policy(proto::LostWorkers::WAIT);
    for (const auto& sent : links_->restores) {
      const proto::RestoreRequest& restore = sent.request;
      EXPECT_EQ(restore.sender().task().job(), kPsJob);
      EXPECT_EQ(restore.sender().task().index(), 0u);
      EXPECT_EQ(restore.sender().generation(), 1u);
      EXPECT_EQ(restore.declaration().SerializeAsString(),
                declared.SerializeAsString());
      ASSERT_THAT(restore.slices(), SizeIs(2));
      EXPECT_EQ(restore.slices(0).variable(), "w");
      EXPECT_EQ(restore.slices(0).begin(), 0u);
      EXPECT_EQ(restore.slices(0).size(), 6u);
      EXPECT_EQ(restore.slices(0).ps(), 0u);
      EXPECT_EQ(restore.slices(1).variable(), "b");
      EXPECT_EQ(restore.slices(1).size(), 3u);
      EXPECT_EQ(restore.slices(1).ps(), 1u);
    }

    // Training begins when all shards have their variables.
    PuppetLinks::Answer(links_->restores, 2);
    PuppetLinks::Answer(links_->restores, 0);
    EXPECT_EQ(state().phase(), proto::STARTING);
    EXPECT_FALSE(GetPlacement(0)->ready());
    PuppetLinks::Answer(links_->restores, 1);
    EXPECT_EQ(state().phase(), proto::TRAINING);
    const auto placement = GetPlacement(0);
    EXPECT_TRUE(placement->ready());
    EXPECT_EQ(placement->generation(), 1u);
    EXPECT_EQ(placement->declaration().SerializeAsString(),
              declared.SerializeAsString());
    ASSERT_THAT(placement->slices(), SizeIs(2));
    EXPECT_EQ(placement->slices(1).ps(), 1u);
    EXPECT_THAT(placement->ps_addresses(),
                ElementsAre("host0:2000", "host1:2000", "host2:2000"));
  }
}

TEST_F(CoordinatorTest, PlacementGoesByTheStrategy) {
  proto::Declaration declaration = MakeDeclaration();
  declaration.set_placement(proto::GREEDY_BY_BYTES);
  proto::Variable& third = *declaration.add_variables();
  third = declaration.variables(1);
  third.set_name("c");
  StartTraining(declaration);
  // w [2,3] of 24 bytes goes to ps 0; b and c of 12 to ps 1, with 0 and
  // then 12.
  const auto placement = GetPlacement(0);
  ASSERT_THAT(placement->slices(), SizeIs(3));
  EXPECT_EQ(placement->slices(0).ps(), 0u);
  EXPECT_EQ(placement->slices(1).ps(), 1u);
  EXPECT_EQ(placement->slices(2).ps(), 1u);
}

TEST_F(CoordinatorTest, CreateIsSentAgainUntilItHolds) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare().status().ok());
  PuppetLinks::Answer(links_->restores, 0);
  PuppetLinks::Answer(links_->restores, 1,
                      absl::UnavailableError("not yet up"));
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_THAT(PuppetLinks::To(links_->restores), ElementsAre(1));
  PuppetLinks::Answer(links_->restores, 1);
  EXPECT_EQ(state().phase(), proto::TRAINING);
}

TEST_F(CoordinatorTest, AShardThatRefusesItsVariablesEndsTheJob) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare().status().ok());
  PuppetLinks::Answer(links_->restores, 1,
                      absl::InvalidArgumentError("no room"));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(),
              AllOf(HasSubstr("/job:ps/task:1"), HasSubstr("no room")));
  PuppetLinks::Answer(links_->restores, 0);
  EXPECT_EQ(state().phase(), proto::FAILED);
}

// "w" [2,3] on ps 0 and "b" [3] on ps 1, with SGD: the values, the next version
// and one that is read, and a push of each of the two workers, so 5 times 24
// and 5 times 12 bytes (memory_plan.h).
TEST_F(CoordinatorTest, AJobThatCannotFitIsRefusedByName) {
  const struct {
    int64_t of_ps0;
    uint64_t of_ps1;
    std::string text;  // empty: it fits
  } kCases[] = {
      {0, 0, ""},
      {120, 60, ""},
      {119, 60, "/job:ps/task:0 may take 119 bytes"},
      {120, 59, "/job:ps/task:1 may take 59 bytes"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.of_ps0 << ", " << c.of_ps1);
    Make();
    options_.memory_limit_bytes = c.of_ps0;
    Begin();
    Join(Worker(0));
    ASSERT_TRUE(Declare().status().ok());
    EXPECT_EQ(state().phase(), proto::STARTING) << "ps 1 may have more";
    proto::RegisterRequest ps1 = RegisterOf(Ps(1));
    ps1.set_memory_limit_bytes(c.of_ps1);
    ASSERT_TRUE(Ask(ps1).status().ok());
    if (c.text.empty()) {
      EXPECT_EQ(state().phase(), proto::STARTING) << state().reason();
      EXPECT_THAT(links_->restores, SizeIs(2));
    } else {
      EXPECT_EQ(state().phase(), proto::FAILED);
      EXPECT_THAT(state().reason(), HasSubstr(c.text));
      EXPECT_THAT(links_->restores, IsEmpty());
    }
  }
}

TEST_F(CoordinatorTest, GetPlacementWaitsAndTellsForWhat) {
  Make();
  Join(Worker(0));
  const auto soon = GetPlacement(500);
  const auto later = GetPlacement(60000);
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_FALSE(soon.came());
  Pass(absl::Milliseconds(250), AllTasks());
  ASSERT_TRUE(soon.came());
  EXPECT_FALSE(soon->ready());
  EXPECT_EQ(soon->state().phase(), proto::STARTING);
  EXPECT_EQ(soon->waiting_for(),
            "/job:ps/task:1 (not joined), the declaration by "
            "/job:worker/task:0 (host-of-worker0:77)");
  ASSERT_TRUE(Declare().status().ok());
  EXPECT_EQ(GetPlacement(0)->waiting_for(), "/job:ps/task:1 (not joined)");
  Join(Ps(1));
  PuppetLinks::Answer(links_->restores, 0);
  EXPECT_EQ(GetPlacement(0)->waiting_for(),
            "creating the variables at /job:ps/task:1");
  EXPECT_FALSE(later.came());
  PuppetLinks::Answer(links_->restores, 1);
  ASSERT_TRUE(later.came());
  EXPECT_TRUE(later->ready());
}

TEST_F(CoordinatorTest, NobodyIsParkedForLongerThanTheLimit) {
  StartTraining();
  const auto offer = [&] {
    proto::ContributeRequest request = OfferOf(Worker(0), 0, 0, 1);
    request.set_wait_ms(~uint64_t{0});
    return Contribute(request);
  }();
  Pass(kMaxPark - absl::Milliseconds(250), AllTasks());
  EXPECT_FALSE(offer.came());
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_TRUE(offer.came());

  Make();
  const auto placement = GetPlacement(~uint64_t{0});
  Pass(kMaxPark - absl::Milliseconds(250), {});
  EXPECT_FALSE(placement.came());
  Pass(absl::Milliseconds(250), {});
  EXPECT_TRUE(placement.came());
}

}  // namespace
}  // namespace holdfast
