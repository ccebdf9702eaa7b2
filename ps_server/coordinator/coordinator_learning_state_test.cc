// SPDX-License-Identifier: Apache-2.0

// The loss scale: that of each step and ticket, and what happens to a gradient
// that was not finite.
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::SizeIs;

proto::Declaration Scaled(proto::Declaration declaration, float initial = 1024,
                          uint64_t growth_interval = 3) {
  declaration.mutable_loss_scale()->set_initial(initial);
  declaration.mutable_loss_scale()->set_growth_interval(growth_interval);
  return declaration;
}

class CoordinatorLearningStateTest : public CoordinatorTest {
 protected:
  proto::ContributeRequest NotFiniteOf(const TaskId& task, uint64_t step,
                                       uint32_t seat) {
    proto::ContributeRequest request =
        OfferOf(task, step, seat, step + 1, /*examples=*/0);
    request.set_loss(0);
    request.set_not_finite(true);
    return request;
  }
  // Both workers fill the step; worker 1 with a gradient that is not finite.
  void Overflow(uint64_t step) {
    Offer(Worker(0), step, 0, step + 1);
    Contribute(NotFiniteOf(Worker(1), step, 1));
  }
  // The scale that both shards are told with the Commit that waits.
  float Told() const {
    EXPECT_THAT(links_->commits, SizeIs(2));
    EXPECT_EQ(Commit(0).loss_scale(), Commit(1).loss_scale());
    return Commit().loss_scale();
  }
  float Train(uint64_t step, bool overflows = false) {
    overflows ? Overflow(step) : OfferBoth(step);
    const float told = Told();
    AckCommits();
    return told;
  }
  void SaveNow() {
    Ask(proto::CheckpointRequest());
    PuppetLinks::AnswerAll(links_->holds);
    FinishSave();
  }
  // A new process takes the place of ps 1, and the job continues.
  void LosePs() {
    Leave(Ps(1));
    incarnations_[Ps(1)] = Register(Ps(1), /*nonce=*/2)->incarnation();
  }
  static float ScaleOf(const Answer<proto::TakeTicketResponse>& answer) {
    EXPECT_TRUE(answer->has_ticket());
    return answer->ticket().loss_scale();
  }
  static proto::SpentTicket NotFinite(uint64_t sequence) {
    proto::SpentTicket spent = Spent(sequence, /*examples=*/0, /*loss=*/0);
    spent.set_not_finite(true);
    return spent;
  }
};

TEST_F(CoordinatorLearningStateTest, AJobWithoutOneHasNone) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  Declare();
  EXPECT_EQ(links_->restores[0].request.loss_scale(), 0);
  PuppetLinks::AnswerAll(links_->restores);
  OfferBoth(0);
  EXPECT_EQ(Told(), 0);
  EXPECT_EQ(Status().loss_scale(), 0);
  EXPECT_FALSE(GetPlacement(0)->declaration().has_loss_scale());
}

TEST_F(CoordinatorLearningStateTest, ItsDefaultsAreDeclared) {
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_loss_scale();
  StartTraining(declaration);
  const auto placement = GetPlacement(0);
  EXPECT_EQ(placement->declaration().loss_scale().initial(), 65536);
  EXPECT_EQ(placement->declaration().loss_scale().growth_interval(), 2000u);
}

TEST_F(CoordinatorLearningStateTest, ItBelongsToTheVersion) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  Declare(Scaled(MakeDeclaration()));
  for (const auto& sent : links_->restores) {
    EXPECT_EQ(sent.request.loss_scale(), 1024) << "of version 0";
  }
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(Train(0), 1024);
  EXPECT_EQ(Train(1, /*overflows=*/true), 512);
  EXPECT_EQ(Status().loss_scale(), 512);
  EXPECT_EQ(Train(2), 512);
  EXPECT_EQ(Train(3), 512);
  EXPECT_EQ(Train(4), 1024) << "after three steps";
  EXPECT_EQ(Status().loss_scale(), 1024);
}

TEST_F(CoordinatorLearningStateTest, ACommitIsSentAgainWithTheSame) {
  StartTraining(Scaled(MakeDeclaration()));
  Overflow(0);
  const float told = Told();
  PuppetLinks::Answer(links_->commits, 0);
  PuppetLinks::Answer(links_->commits, 1, absl::UnavailableError("lost"));
  Advance(absl::Seconds(1));
  Tick();
  EXPECT_EQ(Commit().loss_scale(), told);
}

TEST_F(CoordinatorLearningStateTest, OnlyWhatIsInTheStepLowersIt) {
  Make(2, 3);
  StartTraining(Scaled(WithMode(2, 3)));
  Offer(Worker(0), 0, 0, 1);
  Offer(Worker(1), 0, 1, 1);
  EXPECT_EQ(Told(), 1024);
  AckCommits();
  EXPECT_EQ(Contribute(NotFiniteOf(Worker(2), 0, 2))->verdict(), proto::STALE);
  Offer(Worker(0), 1, 0, 2);
  Offer(Worker(1), 1, 1, 2);
  EXPECT_EQ(Told(), 1024);
  EXPECT_EQ(Status().pushes().not_finite(), 0u);
  EXPECT_EQ(Status().pushes().stale(), 1u);
}

TEST_F(CoordinatorLearningStateTest, SeveralInAStepLowerItOnce) {
  StartTraining(Scaled(MakeDeclaration()));
  Contribute(NotFiniteOf(Worker(0), 0, 0));
  Contribute(NotFiniteOf(Worker(1), 0, 1));
  EXPECT_EQ(Told(), 512);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0 1:worker1#1*0");
  AckCommits();
  EXPECT_EQ(Status().pushes().accepted(), 2u);
  EXPECT_EQ(Status().pushes().not_finite(), 2u);
}

TEST_F(CoordinatorLearningStateTest, WhatIsNotFiniteIsCountedWithoutOneToo) {
  StartTraining();
  Train(0, /*overflows=*/true);
  // A seat without examples is a different matter.
  Offer(Worker(0), 1, 0, 2, /*examples=*/0);
  Offer(Worker(1), 1, 1, 2);
  AckCommits();
  EXPECT_EQ(Status().pushes().accepted(), 4u);
  EXPECT_EQ(Status().pushes().not_finite(), 1u);
  EXPECT_EQ(Status().examples(), 20u);
}

proto::Declaration WithLimit(proto::Declaration declaration, uint64_t limit) {
  declaration.set_max_consecutive_not_finite(limit);
  return declaration;
}

TEST_F(CoordinatorLearningStateTest, TooManyInSuccessionFailTheJob) {
  StartTraining(WithLimit(MakeDeclaration(/*total_steps=*/9), 3));
  Contribute(NotFiniteOf(Worker(0), 0, 0));
  Contribute(NotFiniteOf(Worker(1), 0, 1));
  AckCommits();
  // Counted by seat, whichever comes first: seat 0 is finite, and seat 1 the
  // first of the next run.
  Contribute(NotFiniteOf(Worker(1), 1, 1));
  Offer(Worker(0), 1, 0, 2);
  AckCommits();
  Contribute(NotFiniteOf(Worker(0), 2, 0));
  const auto last = Contribute(NotFiniteOf(Worker(1), 2, 1));
  EXPECT_EQ(last->verdict(), proto::ACCEPTED);
  EXPECT_EQ(state().phase(), proto::TRAINING) << "until the shards agree";
  AckCommits();
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_EQ(state().reason().find(
                "the job has diverged: the last 3 contributions up to step 3 "
                "were not finite (max_consecutive_not_finite"),
            0u)
      << state().reason();
}

TEST_F(CoordinatorLearningStateTest, TooManyInSuccessionFailTheLastStepToo) {
  StartTraining(WithLimit(MakeDeclaration(/*total_steps=*/1), 2));
  Contribute(NotFiniteOf(Worker(0), 0, 0));
  Contribute(NotFiniteOf(Worker(1), 0, 1));
  AckCommits();
  EXPECT_EQ(state().phase(), proto::FAILED);
}

TEST_F(CoordinatorLearningStateTest, ARecoveryGoesOnWithTheirCount) {
  MakeWithArchive();
  StartTraining(WithLimit(MakeDeclaration(/*total_steps=*/9), 3));
  Train(0, /*overflows=*/true);
  SaveNow();
  EXPECT_EQ(archive_->complete.at("1/1").position().consecutive_not_finite(),
            1u);
  Train(1);
  LosePs();
  PuppetLinks::AnswerAll(links_->restores);
  for (const uint32_t worker : {0, 1}) {
    proto::ContributeRequest request = NotFiniteOf(Worker(worker), 1, worker);
    request.set_sequence(1);
    Contribute(request);
  }
  AckCommits();
  EXPECT_EQ(state().phase(), proto::FAILED);
}

TEST_F(CoordinatorLearningStateTest, AScaleThatCanFallIsNoDivergence) {
  StartTraining(
      WithLimit(Scaled(MakeDeclaration(/*total_steps=*/99), /*initial=*/4), 2));
  Train(0, /*overflows=*/true);
  Train(1, /*overflows=*/true);
  EXPECT_EQ(Status().loss_scale(), 1);
  Contribute(NotFiniteOf(Worker(0), 2, 0));
  Contribute(NotFiniteOf(Worker(1), 2, 1));
  AckCommits();
  EXPECT_EQ(state().phase(), proto::FAILED);
}

TEST_F(CoordinatorLearningStateTest, AnOfferIsRepeatedAsItWas) {
  StartTraining(Scaled(MakeDeclaration()));
  const auto first = Contribute(NotFiniteOf(Worker(1), 0, 1));
  Contribute(NotFiniteOf(Worker(1), 0, 1));
  EXPECT_EQ(first->verdict(), proto::VERDICT_UNSPECIFIED) << "asked again";
  const auto other = Offer(Worker(1), 0, 1, 1, /*examples=*/0);
  EXPECT_EQ(other.status().code(), kInvalid);
}

TEST_F(CoordinatorLearningStateTest, ARecoveryRestoresIt_G5) {
  MakeWithArchive();
  StartTraining(Scaled(MakeDeclaration()));
  Train(0, /*overflows=*/true);
  Train(1);
  SaveNow();
  EXPECT_EQ(archive_->complete.at("1/2").position().loss_scale(), 512);
  EXPECT_EQ(archive_->complete.at("1/2").position().steps_at_loss_scale(), 1u);
  Train(2, /*overflows=*/true);
  EXPECT_EQ(Status().loss_scale(), 256);
  EXPECT_EQ(Status().pushes().not_finite(), 2u);
  LosePs();
  ASSERT_THAT(links_->restores, SizeIs(2));
  for (const auto& sent : links_->restores) {
    EXPECT_EQ(sent.request.loss_scale(), 512) << "that of version 2";
  }
  EXPECT_EQ(Status().loss_scale(), 0) << "there is no open step";
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(Status().loss_scale(), 512);
  EXPECT_EQ(Status().pushes().not_finite(), 1u);
  for (const uint32_t worker : {0, 1}) Offer(Worker(worker), 2, worker, 1);
  EXPECT_EQ(Told(), 512);
  AckCommits();
  for (const uint32_t worker : {0, 1}) Offer(Worker(worker), 3, worker, 2);
  EXPECT_EQ(Told(), 1024) << "one step before the loss, two after it";
}

TEST_F(CoordinatorLearningStateTest, WithoutACheckpointItBeginsAgain_G2) {
  MakeWithArchive();
  StartTraining(Scaled(MakeDeclaration()));
  Train(0, /*overflows=*/true);
  LosePs();
  ASSERT_THAT(links_->restores, SizeIs(2));
  EXPECT_EQ(links_->restores[0].request.loss_scale(), 1024);
}

// ---- Asynchronous ----

TEST_F(CoordinatorLearningStateTest, ATicketHasItsOwn) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  Declare(Scaled(Asynchronous(20)));
  EXPECT_EQ(links_->restores[0].request.loss_scale(), 0) << "tickets carry it";
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(ScaleOf(Take(Worker(0), 1)), 1024);
  EXPECT_EQ(ScaleOf(Take(Worker(1), 1)), 1024);
  EXPECT_EQ(ScaleOf(Take(Worker(0), 2, {NotFinite(1)})), 512);
  EXPECT_EQ(ScaleOf(Take(Worker(0), 2)), 512) << "asked again";
  // The push was computed with the scale that has already been halved.
  EXPECT_EQ(ScaleOf(Take(Worker(1), 2, {NotFinite(1)})), 512);
  EXPECT_EQ(ScaleOf(Take(Worker(1), 3, {NotFinite(2)})), 256);
  EXPECT_EQ(Status().pushes().not_finite(), 3u);
  EXPECT_EQ(Status().pushes().accepted(), 3u);
  // Told again.
  EXPECT_EQ(ScaleOf(Take(Worker(1), 3, {NotFinite(2)})), 256);
  EXPECT_EQ(Status().pushes().not_finite(), 3u);
}

TEST_F(CoordinatorLearningStateTest, TooManyPushesInSuccessionFailTheJob) {
  StartTraining(WithLimit(Asynchronous(20), 3));
  for (uint64_t i = 1; i <= 3; ++i) {
    EXPECT_TRUE(Take(Worker(0), i)->has_ticket());
    EXPECT_EQ(state().phase(), proto::TRAINING);
    Take(Worker(0), 0, {NotFinite(i)});
  }
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_TRUE(Empty(Take(Worker(1), 1)));
}

TEST_F(CoordinatorLearningStateTest, ItGrowsByPushes) {
  StartTraining(Scaled(Asynchronous(20)));
  for (uint64_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(ScaleOf(Take(Worker(0), i)), 1024);
    Book(Worker(0), i);
  }
  EXPECT_EQ(ScaleOf(Take(Worker(0), 4)), 2048);
}

TEST_F(CoordinatorLearningStateTest, WhatALostWorkerDidNotTellCounts_T5) {
  StartTraining(Scaled(Asynchronous(20)));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  Leave(Worker(1));
  proto::FenceResponse applied;
  proto::AppliedPush& push = *applied.add_applied();
  push.mutable_from()->mutable_worker()->set_job(kWorkerJob);
  push.mutable_from()->mutable_worker()->set_index(1);
  push.mutable_from()->set_incarnation(1);
  push.set_sequence(1);
  push.set_not_finite(true);
  PuppetLinks::Answer(links_->fences, 0, absl::OkStatus(), applied);
  PuppetLinks::Answer(links_->fences, 1);
  ASSERT_THAT(links_->resolves, SizeIs(2));
  EXPECT_TRUE(links_->resolves[0].request.applied(0).not_finite());
  PuppetLinks::AnswerAll(links_->resolves);
  EXPECT_EQ(Status().pushes().not_finite(), 1u);
  EXPECT_EQ(ScaleOf(Take(Worker(0), 2)), 512);
}

TEST_F(CoordinatorLearningStateTest, ACheckpointHoldsWhatTheUnionMakesOfIt_C3) {
  MakeWithArchive();
  StartTraining(Scaled(Asynchronous(20, /*depth=*/2)));
  Take(Worker(0), 1);
  Take(Worker(0), 2);
  Book(Worker(0), 1);
  Ask(proto::CheckpointRequest());
  proto::HoldResponse held;
  proto::AppliedPush& push = *held.add_applied();
  push.mutable_from()->mutable_worker()->set_job(kWorkerJob);
  push.mutable_from()->mutable_worker()->set_index(0);
  push.mutable_from()->set_incarnation(1);
  push.set_sequence(2);
  push.set_not_finite(true);
  PuppetLinks::Answer(links_->holds, 0, absl::OkStatus(), held);
  PuppetLinks::Answer(links_->holds, 1);
  FinishSave();
  const proto::Position& position = archive_->complete.at("1/2").position();
  EXPECT_EQ(position.loss_scale(), 512);
  EXPECT_EQ(position.pushes().not_finite(), 1u);
  EXPECT_EQ(Status().loss_scale(), 1024) << "not booked yet";
}

}  // namespace
}  // namespace holdfast
