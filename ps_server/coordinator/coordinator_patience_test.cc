// SPDX-License-Identifier: Apache-2.0

// Jobs that wait for too long end, and name what they waited for.
#include <cstdint>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CoordinatorTest, AJobThatDoesNotStartEnds) {
  Make();
  Join(Worker(0));
  const auto parked = GetPlacement(30000);
  Pass(absl::Seconds(60), {Worker(0)});
  EXPECT_EQ(state().phase(), proto::STARTING);
  const auto late = GetPlacement(30000);
  Pass(absl::Seconds(1), {Worker(0)});
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_EQ(state().reason(),
            "the job did not start within 1m: waited for /job:ps/task:1 (not "
            "joined), the declaration by /job:worker/task:0 "
            "(host-of-worker0:77)");
  EXPECT_EQ(late->state().reason(), state().reason());
  EXPECT_FALSE(late->ready());
}

TEST_F(CoordinatorTest, TheDeclarationBringsItsTimeouts) {
  Make();
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_timeouts()->set_start_seconds(20);
  declaration.mutable_timeouts()->set_step_seconds(30);
  Join(Ps(1));
  Join(Worker(0));
  ASSERT_TRUE(Declare(declaration).status().ok());
  PuppetLinks::AnswerAll(links_->restores);
  // The variables exist, but N workers must have joined, too.
  Pass(absl::Seconds(20), {Ps(1), Worker(0)});
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(absl::Milliseconds(250), {Ps(1), Worker(0)});
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(),
              AllOf(HasSubstr("did not start within 20s"),
                    HasSubstr("/job:worker/task:1 (not joined)")));

  Make();
  StartTraining(declaration);
  Offer(Worker(0), 0, 0, 1);
  Pass(absl::Seconds(30), AllTasks());
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_EQ(state().reason(),
            "step 0 was open for 30s: waited for /job:worker/task:1 "
            "(host-of-worker1:77)");
}

TEST_F(CoordinatorTest, TheFirstStepsTimeCountsFromWhenItCouldBegin) {
  Make();
  Join(Ps(1));
  Join(Worker(0));
  Declare();
  PuppetLinks::AnswerAll(links_->restores);
  Pass(absl::Seconds(50), AllBut(Worker(1)));
  Join(Worker(1));
  Pass(absl::Seconds(100), AllTasks());
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(absl::Seconds(1), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("step 0 was open for 1m40s"));
}

TEST_F(CoordinatorTest, EachStepHasTimeFromItsOpening) {
  StartTraining();
  for (uint64_t step = 0; step < 3; ++step) {
    Pass(absl::Seconds(90), AllTasks());
    OfferBoth(step);
    AckCommits();
  }
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(absl::Seconds(101), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(),
              AllOf(HasSubstr("step 3"), HasSubstr("/job:worker/task:0"),
                    HasSubstr("/job:worker/task:1")));
}

TEST_F(CoordinatorTest, AShardThatDoesNotCommitIsNamed) {
  StartTraining();
  OfferBoth(0);
  PuppetLinks::Answer(links_->commits, 0);
  Pass(absl::Seconds(101), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(),
              AllOf(HasSubstr("the commit of step 0 at /job:ps/task:1"),
                    Not(HasSubstr("/job:ps/task:0"))));
}

TEST_F(CoordinatorTest, ABackupReplicaIsNotNeededToBegin) {
  Make(1, 3);
  Join(Worker(0));
  Declare(WithMode(2, 3));
  PuppetLinks::AnswerAll(links_->restores);
  Join(Worker(2));
  Offer(Worker(0), 0, 0, 1);
  EXPECT_EQ(Offer(Worker(2), 0, 2, 1)->verdict(), proto::ACCEPTED);
  AckCommits();
  Pass(absl::Seconds(99), {Worker(0), Worker(2)});
  EXPECT_EQ(state().phase(), proto::TRAINING) << state().reason();
}

}  // namespace
}  // namespace holdfast
