// SPDX-License-Identifier: Apache-2.0

// The commits that offers lead to.
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(CoordinatorTest, CommitCarriesTheScalarsOfEveryOptimizer) {
  proto::Declaration declaration = MakeDeclaration();
  proto::Optimizer& second = *declaration.add_optimizers();
  second.set_learning_rate(0.25f);
  second.mutable_momentum()->set_momentum(0.9f);
  StartTraining(declaration);
  OfferBoth(0);
  ASSERT_THAT(Commit().scalars(), SizeIs(2));
  EXPECT_EQ(Commit().scalars(0).learning_rate(), 0.1f);
  EXPECT_EQ(Commit().scalars(1).learning_rate(), 0.25f);
}

TEST_F(CoordinatorTest, WeightsGoByExamplesAndClipFactor) {
  StartTraining();
  const auto s = [&](uint64_t step, uint64_t examples0, uint64_t examples1,
                     float clip1) {
    Offer(Worker(0), step, 0, step + 1, examples0);
    proto::ContributeRequest request =
        OfferOf(Worker(1), step, 1, step + 1, examples1);
    request.set_clip_factor(clip1);
    Contribute(request);
    const std::string result = S(Commit());
    AckCommits();
    return result;
  };
  // 10 / 40 and 30 / 40.
  EXPECT_EQ(s(0, 10, 30, 1), "0:worker0#1*0.25 1:worker1#1*0.75");
  // Worker 0 has no examples: the mean is worker 1's gradient.
  EXPECT_EQ(s(1, 0, 30, 1), "0:worker0#2*0 1:worker1#2*1");
  EXPECT_EQ(s(2, 0, 0, 1), "0:worker0#3*0 1:worker1#3*0");
  // 0.25 x 30 / 40 = 0.1875.
  EXPECT_EQ(s(3, 10, 30, 0.25f), "0:worker0#4*0.25 1:worker1#4*0.1875");
  EXPECT_EQ(s(4, 10, 30, 0), "0:worker0#5*0.25 1:worker1#5*0");
  EXPECT_EQ(Status().global_step(), 5u);
}

TEST_F(CoordinatorTest, CommitWaitsUntilEveryShardHoldsTheOneBefore) {
  StartTraining();
  OfferBoth(0);
  ASSERT_THAT(PuppetLinks::To(links_->commits), ElementsAre(0, 1));
  PuppetLinks::Answer(links_->commits, 0);
  // A worker that saw version 1 on both shards may offer, although one
  // acknowledgement is still in flight.
  const auto one = Offer(Worker(0), 1, 0, 2);
  const auto two = Offer(Worker(1), 1, 1, 2);
  EXPECT_THAT(PuppetLinks::To(links_->commits), ElementsAre(1)) << "of step 0";
  EXPECT_FALSE(one.came()) << "S of step 1 is not fixed";
  EXPECT_FALSE(two.came());
  EXPECT_EQ(Status().global_step(), 1u) << "as workers were told";
  PuppetLinks::Answer(links_->commits, 1);
  EXPECT_EQ(Status().global_step(), 2u);
  ASSERT_THAT(PuppetLinks::To(links_->commits), ElementsAre(0, 1));
  EXPECT_EQ(Commit().step(), 1u);
  EXPECT_EQ(one->verdict(), proto::ACCEPTED);
  EXPECT_EQ(two->verdict(), proto::ACCEPTED);
}

TEST_F(CoordinatorTest, ACommitThatIsNotAnsweredIsSentAgainTheSame) {
  StartTraining();
  OfferBoth(0);
  const std::string sent = Commit(1).SerializeAsString();
  PuppetLinks::Answer(links_->commits, 0);
  Pass(kResendAfter - absl::Milliseconds(250), AllTasks());
  EXPECT_THAT(links_->commits, SizeIs(1));
  Pass(absl::Milliseconds(250), AllTasks());
  ASSERT_THAT(PuppetLinks::To(links_->commits), ElementsAre(1, 1))
      << "to whom has not answered";
  EXPECT_EQ(Commit(1).SerializeAsString(), sent);
  Pass(kResendAfter, AllTasks());
  EXPECT_THAT(PuppetLinks::To(links_->commits), ElementsAre(1, 1, 1));
  // The first answer counts, later ones do nothing.
  PuppetLinks::Answer(links_->commits, 1);
  EXPECT_EQ(Status().global_step(), 1u);
  OfferBoth(1);
  ASSERT_THAT(PuppetLinks::To(links_->commits), ElementsAre(1, 1, 0, 1));
  PuppetLinks::Answer(links_->commits, 1);
  PuppetLinks::Answer(links_->commits, 1, absl::InternalError("late"));
  PuppetLinks::Answer(links_->commits, 0);
  OfferBoth(2);
  ASSERT_THAT(PuppetLinks::To(links_->commits), ElementsAre(1))
      << "shard 1 has not committed step 1";
  EXPECT_EQ(state().phase(), proto::TRAINING);
  PuppetLinks::Answer(links_->commits, 1);
  EXPECT_EQ(Commit().step(), 2u);
}

TEST_F(CoordinatorTest, ACommitThatWasLostIsSentAgainSoon) {
  for (const absl::Status& lost : {absl::UnavailableError("no connection"),
                                   absl::DeadlineExceededError("no answer"),
                                   absl::CancelledError("connection closed")}) {
    SCOPED_TRACE(lost.ToString());
    Make();
    StartTraining();
    OfferBoth(0);
    PuppetLinks::Answer(links_->commits, 0);
    for (int i = 0; i < 3; ++i) {
      PuppetLinks::Answer(links_->commits, 1, lost);
      Advance(absl::Milliseconds(199));
      Tick();
      EXPECT_THAT(links_->commits, IsEmpty()) << "not at once";
      Advance(absl::Milliseconds(1));
      Tick();
      ASSERT_THAT(PuppetLinks::To(links_->commits), ElementsAre(1));
    }
    EXPECT_EQ(state().phase(), proto::TRAINING);
    PuppetLinks::Answer(links_->commits, 1);
    OfferBoth(1);
    EXPECT_EQ(Commit().step(), 1u);
  }
}

TEST_F(CoordinatorTest, AnErrorAfterTheAcknowledgementIsNoError) {
  StartTraining();
  OfferBoth(0);
  Pass(kResendAfter, AllTasks());
  ASSERT_THAT(PuppetLinks::To(links_->commits), ElementsAre(0, 1, 0, 1));
  PuppetLinks::Answer(links_->commits, 1);
  PuppetLinks::Answer(links_->commits, 1, absl::InternalError("what?"));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  PuppetLinks::Answer(links_->commits, 0);
  EXPECT_EQ(Status().global_step(), 1u);
}

TEST_F(CoordinatorTest, AShardThatRefusesACommitEndsTheJobByName) {
  StartTraining();
  OfferBoth(0);
  const auto parked = Offer(Worker(0), 1, 0, 2);
  PuppetLinks::Answer(links_->commits, 1,
                      absl::InternalError("push 1 is not on this ps"));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), AllOf(HasSubstr("/job:ps/task:1"),
                                      HasSubstr("push 1 is not on this ps")));
  EXPECT_EQ(parked->verdict(), proto::ABORTED);
  EXPECT_EQ(parked->state().reason(), state().reason());
  EXPECT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
}

}  // namespace
}  // namespace holdfast
