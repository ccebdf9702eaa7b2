// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client_test_base.h"
#include "client/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::SizeIs;

class OfferTest : public ClientTest {
 protected:
  void SetUp() override {
    cluster_ = ConnectReady();
    ASSERT_NE(cluster_, nullptr);
  }
  void TearDown() override { cluster_.reset(); }

  // Offers a push of step 4 without examples for seat 1.
  std::unique_ptr<Cluster::Push> Contribute() {
    auto push = cluster_->StartPush(GlobalStep(4));
    EXPECT_EQ(push->Contribute({1}), absl::OkStatus());
    return push;
  }

  std::unique_ptr<Cluster> cluster_;
};

TEST_F(OfferTest, BringsTheVerdict) {
  auto push = cluster_->StartPush(GlobalStep(4));
  const std::vector<float> a(6), b(8);
  ASSERT_TRUE(push->Add(0, a).ok());
  ASSERT_TRUE(push->Add(1, b).ok());
  ASSERT_TRUE(push->Contribute({3, 100, 0.5f, 2.25}).ok());
  const auto outcome = push->Await(Late());
  EXPECT_TRUE(push->done());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->verdict, proto::ACCEPTED);
  EXPECT_EQ(outcome->global_step, GlobalStep(5));

  ASSERT_THAT(ps(0).contribute.requests(), SizeIs(1));
  const proto::ContributeRequest request = ps(0).contribute.requests()[0];
  EXPECT_EQ(request.sender().incarnation(), kIncarnation);
  EXPECT_EQ(request.step(), 4);
  EXPECT_EQ(request.seat(), 3);
  EXPECT_EQ(request.sequence(), 1);
  EXPECT_EQ(request.examples(), 100);
  EXPECT_EQ(request.clip_factor(), 0.5f);
  EXPECT_EQ(request.loss(), 2.25);
  EXPECT_FALSE(request.loss_unknown());
  EXPECT_FALSE(request.not_finite());
  EXPECT_EQ(request.acked_through(), 0);
  EXPECT_EQ(request.wait_ms(), 100);
}

TEST_F(OfferTest, TellsThatItDoesNotKnowTheLoss) {
  auto push = cluster_->StartPush(GlobalStep(4));
  const std::vector<float> a(6), b(8);
  ASSERT_TRUE(push->Add(0, a).ok());
  ASSERT_TRUE(push->Add(1, b).ok());
  Contribution contribution;
  contribution.examples = 100;
  ASSERT_TRUE(push->Contribute(contribution).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_TRUE(ps(0).contribute.requests()[0].loss_unknown());
}

TEST_F(OfferTest, TellsOfWhatIsNotFinite) {
  Contribution nothing;
  nothing.not_finite = true;
  auto push = cluster_->StartPush(GlobalStep(4));
  ASSERT_TRUE(push->Contribute(nothing).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_TRUE(ps(0).contribute.requests()[0].not_finite());
}

TEST_F(OfferTest, IsAskedAgainUntilThereIsAVerdict) {
  ps(0).contribute.Do([](int call, const auto& request, auto* response) {
    if (call == 1) return absl::UnavailableError("lost");
    if (call == 3) response->set_verdict(proto::STALE);
    return absl::OkStatus();
  });
  const auto outcome = Contribute()->Await(Late());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->verdict, proto::STALE);
  const auto requests = ps(0).contribute.requests();
  ASSERT_THAT(requests, SizeIs(4));
  for (const proto::ContributeRequest& request : requests) {
    EXPECT_EQ(request.SerializeAsString(), requests[0].SerializeAsString());
  }
}

TEST_F(OfferTest, AcknowledgesTheVerdictsThatAreKnown) {
  std::vector<std::unique_ptr<Cluster::Push>> pushes;
  for (int i = 0; i < 4; ++i) {
    pushes.push_back(cluster_->StartPush(GlobalStep(4)));
  }
  // The verdicts arrive in another order. acked_through stays below the first
  // push without a verdict.
  for (const int i : {1, 0, 2, 3}) {
    ASSERT_TRUE(pushes[i]->Contribute({1}).ok());
    ASSERT_TRUE(pushes[i]->Await(Late()).ok());
  }
  std::vector<uint64_t> marks;
  for (const auto& request : ps(0).contribute.requests()) {
    marks.push_back(request.acked_through());
  }
  EXPECT_THAT(marks, ::testing::ElementsAre(0, 0, 2, 3));
}

// An abandoned offer may still be in its step, until the step is known to be
// closed.
TEST_F(OfferTest, AcknowledgesAnAbandonedOneWhenItsStepIsClosed) {
  ps(0).contribute.Do([](int call, const auto&, auto* response) {
    if (call > 0) response->set_verdict(proto::ACCEPTED);
    return absl::OkStatus();
  });
  auto abandoned = Contribute();
  ps(0).contribute.AwaitCalls(1);
  abandoned.reset();
  ASSERT_TRUE(Contribute()->Await(Late()).ok());
  EXPECT_EQ(ps(0).contribute.requests().back().acked_through(), 0);

  Parameters values;
  ASSERT_TRUE(cluster_->StartPull(GlobalStep(5), &values)->Await(Late()).ok());
  ASSERT_TRUE(Contribute()->Await(Late()).ok());
  EXPECT_EQ(ps(0).contribute.requests().back().acked_through(), 2);
}

TEST_F(OfferTest, APermanentErrorComesAtOnce) {
  ps(0).contribute.Do([](int, const auto&, auto*) {
    return absl::InvalidArgumentError("seat 1 belongs to another worker");
  });
  EXPECT_EQ(Contribute()->Await(Late()).status(),
            absl::InvalidArgumentError(
                absl::StrCat(PsName(0), ": seat 1 belongs to another worker")));
  EXPECT_EQ(ps(0).contribute.num_calls(), 1);
}

TEST_F(OfferTest, ADoneJobGivesNoVerdict) {
  ps(0).contribute.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::DONE);
    return absl::OkStatus();
  });
  EXPECT_EQ(
      Contribute()->Await(Late()).status(),
      absl::FailedPreconditionError(absl::StrCat(
          PsName(0), ": the job is done, there is no verdict on push 1")));
}

TEST_F(OfferTest, ADeadlineNamesTheTaskThatTheStepWaitsFor) {
  ps(0).contribute.Do([](int, const auto&, auto* response) {
    response->set_global_step(4);
    response->set_waiting_for("/job:worker/task:0");
    return absl::OkStatus();
  });
  auto push = Contribute();
  ps(0).contribute.AwaitCalls(2);
  EXPECT_EQ(push->Await(After(50)).status(),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for the verdict on push 1 by ", PsName(0),
                "; step 4 waits for /job:worker/task:0")));
}

}  // namespace
}  // namespace holdfast::client
