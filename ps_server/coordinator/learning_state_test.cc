// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/learning_state.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LearningStateTest : public ::testing::Test {
 protected:
  LearningStateTest() {
    // Adam, because its bias corrections reveal how many updates there were.
    proto::Optimizer& optimizer = *declaration_.add_optimizers();
    optimizer.set_learning_rate(0.1f);
    optimizer.mutable_adam()->set_beta1(0.5f);
    optimizer.mutable_adam()->set_beta2(0.5f);
    declaration_.mutable_loss_scale()->set_initial(8);
    declaration_.mutable_loss_scale()->set_growth_interval(2);
  }
  // A step of one offer.
  static proto::CommitRequest StepOf(LearningState* learning,
                                     const proto::Declaration& declaration,
                                     uint64_t examples,
                                     bool not_finite = false) {
    Step step(GlobalStep(0), 1, 1);
    SeatOffer offer;
    offer.examples = examples;
    offer.not_finite = not_finite;
    step.Fill(0, offer);
    proto::CommitRequest commit;
    step.FillIn(proto::Consistency::MEAN, &commit);
    learning->OnStep(declaration, step, /*rate_factor=*/1, &commit);
    return commit;
  }

  proto::Declaration declaration_;
};

TEST_F(LearningStateTest, CountsStepsThatChangeSomething) {
  LearningState learning(declaration_, proto::Position());
  const auto correction = [&](uint64_t examples) {
    return StepOf(&learning, declaration_, examples)
        .scalars(0)
        .bias_correction1();
  };
  // 1 / (1 - 0.5^u) for the u-th update.
  const float first = correction(10);
  const float second = correction(0);
  EXPECT_NE(first, second);
  EXPECT_EQ(correction(10), second) << "the one before changed nothing";
  proto::Position position;
  learning.AddTo(&position);
  EXPECT_EQ(position.updates(), 2u);
  LearningState again(declaration_, position);
  const float third =
      StepOf(&again, declaration_, 10).scalars(0).bias_correction1();
  EXPECT_EQ(correction(10), third);
}

// The second of two optimizers has slots from a warm start.
TEST_F(LearningStateTest, UpdatesBeforeTheJobCountToo) {
  *declaration_.add_optimizers() = declaration_.optimizers(0);
  proto::Position position;
  position.add_updates_before(0);
  position.add_updates_before(2);
  LearningState learning(declaration_, position);
  const proto::CommitRequest commit = StepOf(&learning, declaration_, 10);
  // 1 - 0.5^1, and 1 - 0.5^3.
  EXPECT_EQ(commit.scalars(0).bias_correction1(), 0.5f);
  EXPECT_EQ(commit.scalars(1).bias_correction1(), 0.875f);
  google::protobuf::RepeatedPtrField<proto::StepScalars> scalars;
  learning.AddScalarsOfTicket(declaration_, /*index=*/1, /*rate_factor=*/0.5f,
                              &scalars);
  ASSERT_EQ(scalars.size(), 2);
  EXPECT_EQ(scalars.Get(0).bias_correction1(), 0.75f);
  EXPECT_EQ(scalars.Get(1).bias_correction1(), 0.9375f);
  EXPECT_EQ(scalars.Get(1).learning_rate(), 0.05f);
  proto::Position saved;
  learning.AddTo(&saved);
  EXPECT_EQ(saved.updates(), 1u);
  EXPECT_THAT(saved.updates_before(), ElementsAre(0, 2));
}

TEST_F(LearningStateTest, TheNextScaleGoesOutWithTheCommit) {
  LearningState learning(declaration_, proto::Position());
  EXPECT_EQ(learning.loss_scale(), 8);
  EXPECT_EQ(StepOf(&learning, declaration_, 0, true).loss_scale(), 4);
  EXPECT_EQ(learning.loss_scale(), 4);
  learning.OnPush(10, /*not_finite=*/true, /*loss_scale=*/8);
  EXPECT_EQ(learning.loss_scale(), 4) << "of an older scale";
  learning.OnPush(10, false, 4);
  learning.OnPush(10, false, 4);
  EXPECT_EQ(learning.loss_scale(), 8);
}

TEST_F(LearningStateTest, ACopyDoesNotTellTheOriginal) {
  LearningState learning(declaration_, proto::Position());
  LearningState copy = learning;
  StepOf(&copy, declaration_, 0, true);
  EXPECT_EQ(learning.loss_scale(), 8);
}

TEST_F(LearningStateTest, SaysWhyAJobThatDivergesEnds) {
  declaration_.clear_loss_scale();
  declaration_.set_max_consecutive_not_finite(2);
  LearningState learning(declaration_, proto::Position());
  learning.OnPush(10, true, 0);
  EXPECT_FALSE(learning.diverged());
  learning.OnPush(10, true, 0);
  EXPECT_TRUE(learning.diverged());
  EXPECT_THAT(learning.DescribeDivergence(GlobalStep(7)),
              HasSubstr("the last 2 contributions up to step 7"));
  EXPECT_FALSE(LearningState().diverged());
}

}  // namespace
}  // namespace holdfast
