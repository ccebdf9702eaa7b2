// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/client_test_base.h"
#include "client/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::AnyOf;
using ::testing::SizeIs;

// Should not be reached.
constexpr absl::Duration kLong = absl::Seconds(30);

// Pushes of asynchronous jobs.
class ApplyTest : public ClientTest {
 protected:
  ApplyTest() {
    asynchronous = true;
    at_.version = GlobalStep(7);
    at_.versions = {GlobalStep(9), GlobalStep(7)};
  }
  void SetUp() override { ConnectWithParts(1 << 20); }
  void TearDown() override {
    cluster_.reset();
    StopPs();
  }

  void ConnectWithParts(int64_t part_bytes) {
    Cluster::Options options = OptionsFor(kWorker);
    options.part_bytes = part_bytes;
    Connect(options);
  }
  void Connect(const Cluster::Options& options) {
    cluster_ = ConnectReady(options);
    ASSERT_NE(cluster_, nullptr);
  }

  // The push of a new ticket.
  std::unique_ptr<Cluster::Push> Start() {
    return cluster_->StartPush(Take(cluster_.get()), at_);
  }
  std::unique_ptr<Cluster::Push> StartWithAll() {
    auto push = Start();
    EXPECT_TRUE(push->Add(1, b_).ok());
    EXPECT_TRUE(push->Add(0, a_).ok());
    return push;
  }

  // Returns the verdict; the outcome must be one.
  proto::Verdict Verdict(Cluster::Push* push) {
    const auto applied = push->Await(Late());
    EXPECT_TRUE(applied.ok()) << applied.status();
    return applied.ok() ? applied->verdict : proto::VERDICT_UNSPECIFIED;
  }

  // The number of spent tickets that the next request for a ticket reports.
  size_t NumSpent() {
    Take(cluster_.get());
    return ps(0).take_ticket.requests().back().spent_size();
  }

  const std::vector<float> a_ = {1, 2, 3, 4, 5, 6};
  const std::vector<float> b_ = {10, 11, 12, 13, 14, 15, 16, 17};
  // The values that pushes are computed on.
  Parameters at_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ApplyTest, IsStagedAndAppliedOnEveryShard) {
  for (const uint32_t i : {0, 1}) {
    ps(i).apply.Do([i](int, const auto&, auto* response) {
      response->set_verdict(proto::ACCEPTED);
      response->set_staleness(i == 0 ? 4 : 2);
      return absl::OkStatus();
    });
  }
  const Ticket ticket = Take(cluster_.get());
  auto push = cluster_->StartPush(ticket, at_);
  EXPECT_EQ(push->sequence(), ticket.sequence);
  ASSERT_TRUE(push->Add(0, a_).ok());
  ASSERT_TRUE(push->Add(1, b_).ok());
  ASSERT_TRUE(push->Contribute({0, 32, 0.5f, 1.25}).ok());
  for (int i = 0; i < 2; ++i) {
    const auto applied = push->Await(Late());
    ASSERT_TRUE(applied.ok()) << applied.status();
    EXPECT_EQ(applied->verdict, proto::ACCEPTED);
    EXPECT_EQ(applied->staleness, 4);
  }

  for (const uint32_t i : {0, 1}) {
    ASSERT_THAT(ps(i).push.requests(), SizeIs(1));
    EXPECT_EQ(ps(i).push.requests()[0].sequence(), 1);
    // The version of this shard.
    EXPECT_EQ(ps(i).push.requests()[0].step(), i == 0 ? 9 : 7);
    ASSERT_THAT(ps(i).apply.requests(), SizeIs(1));
    const proto::ApplyRequest request = ps(i).apply.requests()[0];
    EXPECT_EQ(request.sender().incarnation(), kIncarnation);
    EXPECT_EQ(request.sequence(), 1);
    ASSERT_THAT(request.scalars(), SizeIs(1));
    EXPECT_EQ(request.scalars(0).learning_rate(), 0.5f);
    EXPECT_EQ(request.clip_factor(), 0.5f);
    EXPECT_EQ(request.examples(), 32);
    EXPECT_EQ(request.acked_through(), 0);
    EXPECT_EQ(request.wait_ms(), 100);
  }
  EXPECT_EQ(NumSpent(), 1);
}

// [A3] A push that one shard applies is staged on all shards.
TEST_F(ApplyTest, NoShardAppliesBeforeAllHaveAllParts) {
  const std::string only_ps1 =
      absl::StrCat("the acknowledgment of push 1 by ", PsName(1));
  absl::Notification others_have_all;
  Cluster::Options options = OptionsFor(kWorker);
  options.on_waiting = [&](const std::string& what) {
    if (what == only_ps1 && !others_have_all.HasBeenNotified()) {
      others_have_all.Notify();
    }
  };
  Connect(options);
  ps(1).push.Do([&](int, const auto&, auto*) {
    EXPECT_TRUE(others_have_all.WaitForNotificationWithTimeout(kLong));
    EXPECT_EQ(ps(0).apply.num_calls(), 0);
    EXPECT_EQ(ps(1).apply.num_calls(), 0);
    return absl::OkStatus();
  });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  EXPECT_EQ(Verdict(push.get()), proto::ACCEPTED);
  push.reset();
  TearDown();
}

TEST_F(ApplyTest, NobodyNeedsToWait) {
  timing.tell_spent = absl::Milliseconds(1);
  ConnectWithParts(16);
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  // The request for the ticket, and the report that it is spent.
  ps(0).take_ticket.AwaitCalls(2);
  EXPECT_EQ(ps(0).take_ticket.requests()[1].spent(0).sequence(), 1);
}

TEST_F(ApplyTest, SeveralMayBeUnderWay) {
  auto first = StartWithAll();
  auto second = StartWithAll();
  // Shards wait for the first before they apply the second.
  for (const uint32_t i : {0, 1}) {
    ps(i).apply.Do([this, i](int, const auto& request, auto* response) {
      if (request.sequence() == 2) ps(i).apply.AwaitCalls(2);
      response->set_verdict(proto::ACCEPTED);
      return absl::OkStatus();
    });
  }
  ASSERT_TRUE(second->Contribute({0, 8}).ok());
  ps(0).apply.AwaitCalls(1);
  ASSERT_TRUE(first->Contribute({0, 8}).ok());
  EXPECT_EQ(Verdict(first.get()), proto::ACCEPTED);
  EXPECT_EQ(Verdict(second.get()), proto::ACCEPTED);
  EXPECT_EQ(NumSpent(), 2);
}

TEST_F(ApplyTest, IsAskedAgainUntilThereIsAVerdict) {
  timing.attempt = absl::Milliseconds(100);
  ConnectWithParts(1 << 20);
  ps(1).apply.Do([&](int call, const auto&, auto* response) {
    if (call == 0) return ps(1).Mute();
    if (call == 1) return absl::UnavailableError("lost");
    if (call == 3) response->set_verdict(proto::ACCEPTED);
    return absl::OkStatus();
  });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  EXPECT_EQ(Verdict(push.get()), proto::ACCEPTED);
  EXPECT_EQ(ps(0).apply.num_calls(), 1);
  ASSERT_THAT(ps(1).apply.requests(), SizeIs(4));
  for (const proto::ApplyRequest& request : ps(1).apply.requests()) {
    EXPECT_EQ(request.SerializeAsString(),
              ps(1).apply.requests()[0].SerializeAsString());
  }
}

// The push has no examples, as when a loss is not finite, so the shards need no
// part of it.
TEST_F(ApplyTest, WithoutExamplesItIsAppliedAtOnceWhateverBecomesOfItsParts) {
  ConnectWithParts(4);  // all but the last leave before Contribute
  ps(0).push.Do([&](int, const auto&, auto*) {
    ps(0).apply.AwaitCalls(1);
    return absl::InvalidArgumentError("not so");
  });
  // Time for the answer to the part.
  ps(0).apply.Do([&](int call, const auto&, auto* response) {
    if (call == 3) response->set_verdict(proto::ACCEPTED);
    return absl::OkStatus();
  });
  auto push = StartWithAll();
  ps(0).push.AwaitCalls(1);
  Contribution nothing;
  nothing.loss = std::numeric_limits<double>::quiet_NaN();
  nothing.not_finite = true;
  ASSERT_TRUE(push->Contribute(nothing).ok());
  EXPECT_EQ(Verdict(push.get()), proto::ACCEPTED);
  EXPECT_EQ(ps(1).apply.requests()[0].clip_factor(), 0);
  EXPECT_TRUE(ps(1).apply.requests()[0].has_clip_factor());
  EXPECT_EQ(ps(1).apply.requests()[0].examples(), 0);
  EXPECT_TRUE(ps(1).apply.requests()[0].not_finite());

  ASSERT_EQ(NumSpent(), 1);
  const auto spent = ps(0).take_ticket.requests().back().spent(0);
  EXPECT_EQ(spent.examples(), 0);
  EXPECT_EQ(spent.loss(), 0);
  EXPECT_TRUE(spent.not_finite());
}

TEST_F(ApplyTest, WithoutExamplesNoMorePartsLeave) {
  ConnectWithParts(4);  // 11 parts for ps 0, 5 of them of "b"
  // Time for parts to come.
  ps(0).apply.Do([&](int call, const auto&, auto* response) {
    if (call == 3) response->set_verdict(proto::ACCEPTED);
    return absl::OkStatus();
  });
  auto push = Start();
  ASSERT_TRUE(push->Add(1, b_).ok());
  ps(0).push.AwaitCalls(5);
  ASSERT_TRUE(push->Contribute({}).ok());
  EXPECT_TRUE(push->Add(0, a_).ok());
  EXPECT_EQ(Verdict(push.get()), proto::ACCEPTED);
  EXPECT_EQ(ps(0).push.num_calls(), 5);
}

TEST_F(ApplyTest, WithoutExamplesNothingNeedsToBeHandedIn) {
  auto push = Start();
  ASSERT_TRUE(push->Contribute({}).ok());
  EXPECT_EQ(Verdict(push.get()), proto::ACCEPTED);
  EXPECT_EQ(ps(0).push.num_calls(), 0);
}

// A shard that has already applied the push says so in its answer to a late
// part.
TEST_F(ApplyTest, APartOfWhatIsAppliedAlreadyIsNoVerdictOfAllShards) {
  ps(0).push.Do([](int, const auto&, auto* response) {
    response->set_verdict(proto::ACCEPTED);
    return absl::OkStatus();
  });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  EXPECT_EQ(Verdict(push.get()), proto::ACCEPTED);
  EXPECT_EQ(ps(1).apply.num_calls(), 1);
}

TEST_F(ApplyTest, AnyOtherVerdictIsTheOutcome) {
  ps(1).apply.Do([&](int, const auto&, auto* response) {
    ps(0).apply.AwaitCalls(1);
    response->set_verdict(proto::FENCED);
    return absl::OkStatus();
  });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  EXPECT_EQ(Verdict(push.get()), proto::FENCED);
  EXPECT_EQ(Verdict(push.get()), proto::FENCED);
  EXPECT_EQ(NumSpent(), 0);
}

TEST_F(ApplyTest, AVerdictOnAPartIsTheOutcome) {
  ps(1).push.Do([](int, const auto&, auto* response) {
    response->set_verdict(proto::FENCED);
    return absl::OkStatus();
  });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  EXPECT_EQ(Verdict(push.get()), proto::FENCED);
  EXPECT_EQ(ps(0).apply.num_calls(), 0);
  EXPECT_EQ(NumSpent(), 0);
}

TEST_F(ApplyTest, APermanentErrorComesAtOnce) {
  ps(1).apply.Do([](int, const auto&, auto*) {
    return absl::FailedPreconditionError("push 1 is not here whole");
  });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  const absl::Status error = absl::FailedPreconditionError(
      absl::StrCat(PsName(1), ": push 1 is not here whole"));
  EXPECT_EQ(push->Await(Late()).status(), error);
  EXPECT_EQ(push->Await(Late()).status(), error);
  EXPECT_EQ(ps(1).apply.num_calls(), 1);
  EXPECT_EQ(NumSpent(), 0);
}

TEST_F(ApplyTest, AnErrorOfAPartIsTheOutcome) {
  absl::Notification added;
  ps(1).push.Do([&](int, const auto&, auto*) {
    added.WaitForNotification();
    return absl::InvalidArgumentError("not so");
  });
  const absl::Status error =
      absl::InvalidArgumentError(absl::StrCat(PsName(1), ": not so"));
  auto push = StartWithAll();
  added.Notify();
  // Contribute may know it already.
  EXPECT_THAT(push->Contribute({0, 8}), AnyOf(absl::OkStatus(), error));
  EXPECT_EQ(push->Await(Late()).status(), error);
  EXPECT_EQ(ps(0).apply.num_calls(), 0);
}

TEST_F(ApplyTest, AFailedJobTellsItsReason) {
  ps(1).apply.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::FAILED);
    response->mutable_state()->set_reason("/job:ps/task:0 was lost");
    return absl::OkStatus();
  });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  EXPECT_EQ(push->Await(Late()).status(),
            absl::AbortedError("/job:ps/task:0 was lost"));
}

TEST_F(ApplyTest, ADoneJobAppliesNothing) {
  ps(1).apply.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::DONE);
    return absl::OkStatus();
  });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  EXPECT_EQ(push->Await(Late()).status(),
            absl::FailedPreconditionError(absl::StrCat(
                PsName(1), ": the job is done, push 1 will not be applied")));
}

TEST_F(ApplyTest, ADeadlineNamesTheShardAndWhatItWaitsFor) {
  ps(1).apply.Do([](int, const auto&, auto* response) {
    response->set_waiting_for("push 4");
    return absl::OkStatus();
  });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  ps(1).apply.AwaitCalls(2);
  ps(0).apply.AwaitCalls(1);
  EXPECT_EQ(push->Await(After(300)).status(),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for the application of push 1 by ",
                PsName(1), ", which waits for push 4")));
}

TEST_F(ApplyTest, WhatCannotBeIsRefused) {
  auto push = Start();
  EXPECT_EQ(push->Contribute({0, 8, 1, HUGE_VAL}),
            absl::InvalidArgumentError("the loss of push 1 is inf: "
                                       "contribute it with 0 examples"));
  ASSERT_TRUE(push->Add(0, a_).ok());
  EXPECT_EQ(push->Contribute({0, 8}),
            absl::FailedPreconditionError("the gradients of 1 of 2 trainable "
                                          "variables were not handed in"));
  // That changed nothing.
  ASSERT_TRUE(push->Add(1, b_).ok());
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  EXPECT_EQ(push->Contribute({0, 8}),
            absl::FailedPreconditionError("Contribute was called before"));
  EXPECT_EQ(Verdict(push.get()), proto::ACCEPTED);

  push = Start();
  EXPECT_EQ(push->Await(Late()).status(),
            absl::FailedPreconditionError("Contribute was not called"));
  EXPECT_EQ(push->Contribute({}), push->Await(Late()).status());

  push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  const auto late = absl::FailedPreconditionError(
      "AwaitHeld must be called before Contribute");
  EXPECT_EQ(push->AwaitHeld(Late()), late);
  EXPECT_EQ(push->Await(Late()).status(), late);
  EXPECT_EQ(cluster_->StartPush(GlobalStep(7))->Contribute({0, 8}),
            absl::FailedPreconditionError(
                "the job is asynchronous: a push needs a ticket"));
  at_.versions.pop_back();
  EXPECT_EQ(Start()->Contribute({}),
            absl::InvalidArgumentError("the parameters are from 1 ps, not 2: "
                                       "pull them first"));
}

// A push that was destroyed is applied again, in the same way.
TEST_F(ApplyTest, IsDestroyedWithCallsInFlight) {
  absl::Notification destroyed;
  ps(1).apply.Do([&](int, const auto&, auto* response) {
    destroyed.WaitForNotification();
    response->set_verdict(proto::ACCEPTED);
    return absl::OkStatus();
  });
  const Ticket ticket = Take(cluster_.get());
  auto push = cluster_->StartPush(ticket, at_);
  ASSERT_TRUE(push->Contribute({}).ok());
  ps(1).apply.AwaitCalls(1);
  push.reset();
  destroyed.Notify();
  push = cluster_->StartPush(ticket, at_);
  ASSERT_TRUE(push->Contribute({}).ok());
  EXPECT_EQ(Verdict(push.get()), proto::ACCEPTED);
  EXPECT_EQ(NumSpent(), 1);
  push.reset();
  TearDown();
}

TEST_F(ApplyTest, IsDestroyedBeforeAllIsAcknowledged) {
  ps(1).push.Do([&](int, const auto&, auto*) { return ps(1).Mute(); });
  auto push = StartWithAll();
  ASSERT_TRUE(push->Contribute({0, 8}).ok());
  ps(1).push.AwaitCalls(1);
  push.reset();
  cluster_.reset();
  EXPECT_EQ(ps(0).apply.num_calls(), 0);
}

}  // namespace
}  // namespace holdfast::client
