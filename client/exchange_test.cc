// SPDX-License-Identifier: Apache-2.0

// Push::Contribute with values to pull: in one call, and in several.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/client_test_base.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<float> FloatsOf(const proto::TensorPart& part) {
  std::vector<float> values(part.data().size() / sizeof(float));
  std::memcpy(values.data(), part.data().data(), part.data().size());
  return values;
}

// A job with one ps.
class ExchangeTest : public ClientTest {
 protected:
  ExchangeTest() { num_ps = 1; }
  void TearDown() override {
    push_.reset();
    cluster_.reset();
    StopPs();
  }

  void ConnectWithParts(int64_t part_bytes) {
    Cluster::Options options = OptionsFor(kWorker);
    options.part_bytes = part_bytes;
    cluster_ = ConnectReady(options);
    ASSERT_NE(cluster_, nullptr);
  }

  // A push of step 7 with all gradients.
  void StartPush() {
    if (cluster_ == nullptr) ConnectWithParts(1 << 20);
    push_ = cluster_->StartPush(GlobalStep(7));
    AddAll();
  }
  // The same with a ticket, on version 9.
  void StartTicket() {
    asynchronous = true;
    if (cluster_ == nullptr) ConnectWithParts(1 << 20);
    Parameters at;
    at.version = GlobalStep(9);
    at.versions.assign(num_ps, GlobalStep(9));
    push_ = cluster_->StartPush(Take(cluster_.get()), at);
    AddAll();
  }
  void AddAll() {
    EXPECT_TRUE(push_->Add(1, b_).ok());
    EXPECT_TRUE(push_->Add(0, a_).ok());
  }

  static Contribution Of8Examples() {
    Contribution contribution;
    contribution.seat = 1;
    contribution.examples = 8;
    contribution.clip_factor = 0.5f;
    contribution.loss = 2.25;
    return contribution;
  }
  void Contribute(Parameters* next) {
    const absl::Status status = push_->Contribute(Of8Examples(), next);
    EXPECT_TRUE(status.ok()) << status;
  }
  void Apply(Parameters* next) {
    const absl::Status status = push_->Contribute({0, 8, 0.5f, 2.25}, next);
    EXPECT_TRUE(status.ok()) << status;
  }

  void ExpectOutcome(proto::Verdict verdict) {
    for (int i = 0; i < 2; ++i) {
      const auto outcome = push_->Await(Late());
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->verdict, verdict);
      EXPECT_EQ(outcome->global_step, GlobalStep(8));
    }
  }
  void ExpectApplied(proto::Verdict verdict, uint64_t staleness = 0) {
    for (int i = 0; i < 2; ++i) {
      const auto applied = push_->Await(Late());
      ASSERT_TRUE(applied.ok()) << applied.status();
      EXPECT_EQ(applied->verdict, verdict);
      EXPECT_EQ(applied->staleness, staleness);
    }
  }
  void ExpectNext(uint64_t version) {
    EXPECT_EQ(next_.version, GlobalStep(version));
    EXPECT_EQ(next_.versions,
              std::vector<GlobalStep>(num_ps, GlobalStep(version)));
    EXPECT_THAT(next_.All(), ElementsAreArray(ValuesAt(version)));
    EXPECT_EQ(next_.loss_scale, LossScaleAt(version));
  }
  // The number of spent tickets that the next request for a ticket reports.
  size_t NumSpent() {
    Take(cluster_.get());
    return ps(0).take_ticket.requests().back().spent_size();
  }

  const std::vector<float> a_ = {1, 2, 3, 4, 5, 6};
  const std::vector<float> b_ = {10, 11, 12, 13, 14, 15, 16, 17};
  Parameters next_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Cluster::Push> push_;
};

// ---- Synchronous ------------------------------------------------------------

TEST_F(ExchangeTest, PushOfferAndPullAreOneCall) {
  StartPush();
  Contribute(&next_);
  ExpectOutcome(proto::ACCEPTED);
  ExpectNext(8);
  EXPECT_EQ(ps(0).push.num_calls(), 0);
  EXPECT_EQ(ps(0).contribute.num_calls(), 0);
  EXPECT_EQ(ps(0).pull.num_calls(), 0);

  ASSERT_THAT(ps(0).push_pull.requests(), SizeIs(1));
  const proto::PushPullRequest request = ps(0).push_pull.requests()[0];
  EXPECT_EQ(request.sender().task().job(), "worker");
  EXPECT_EQ(request.sender().incarnation(), kIncarnation);
  EXPECT_EQ(request.sender().generation(), kGeneration);
  EXPECT_EQ(request.sequence(), 1);
  EXPECT_EQ(request.step(), 7);
  EXPECT_EQ(request.acked_through(), 0);
  EXPECT_EQ(request.wait_ms(), 100);
  EXPECT_EQ(request.contribution().seat(), 1);
  EXPECT_EQ(request.contribution().examples(), 8);
  EXPECT_EQ(request.contribution().clip_factor(), 0.5f);
  EXPECT_EQ(request.contribution().loss(), 2.25);
  EXPECT_THAT(request.ranges(), SizeIs(4));
  std::vector<float> a(a_.size());
  std::vector<float> b(b_.size());
  for (const proto::TensorPart& part : request.tensors()) {
    const std::vector<float> values = FloatsOf(part);
    std::copy(values.begin(), values.end(),
              (part.variable() == "a" ? a : b).begin() + part.begin());
  }
  EXPECT_EQ(a, a_);
  EXPECT_EQ(b, b_);

  // The verdict is known, so the cluster may forget it.
  StartPush();
  Contribute(nullptr);
  ExpectOutcome(proto::ACCEPTED);
  EXPECT_EQ(ps(0).push_pull.requests()[1].sequence(), 2);
  EXPECT_EQ(ps(0).push_pull.requests()[1].acked_through(), 1);
  EXPECT_THAT(ps(0).push_pull.requests()[1].ranges(), IsEmpty());
  EXPECT_EQ(ps(0).pull.num_calls(), 0);
}

TEST_F(ExchangeTest, NothingLeavesBeforeItIsKnownWhatFollows) {
  StartPush();
  ASSERT_TRUE(push_->AwaitHeld(Late()).ok());
  EXPECT_EQ(ps(0).push.num_calls(), 1);
  EXPECT_EQ(ps(0).push_pull.num_calls(), 0);
}

TEST_F(ExchangeTest, WithTwoPsAllIsAskedSeparately) {
  num_ps = 2;
  StartPush();
  Contribute(&next_);
  ExpectOutcome(proto::ACCEPTED);
  ExpectNext(8);
  EXPECT_EQ(ps(0).push_pull.num_calls(), 0);
  EXPECT_EQ(ps(0).push.num_calls(), 1);
  EXPECT_EQ(ps(1).push.num_calls(), 1);
  ASSERT_THAT(ps(0).contribute.requests(), SizeIs(1));
  const proto::ContributeRequest offer = ps(0).contribute.requests()[0];
  EXPECT_EQ(offer.step(), 7);
  EXPECT_EQ(offer.sequence(), 1);
  EXPECT_EQ(offer.seat(), 1);
  EXPECT_EQ(offer.examples(), 8);
  EXPECT_EQ(offer.clip_factor(), 0.5f);
  EXPECT_EQ(offer.loss(), 2.25);
  EXPECT_EQ(ps(1).pull.requests().back().min_version(), 8);
}

TEST_F(ExchangeTest, InSeveralPartsAllIsAskedSeparately) {
  ConnectWithParts(16);
  StartPush();
  Contribute(&next_);
  ExpectOutcome(proto::ACCEPTED);
  ExpectNext(8);
  EXPECT_EQ(ps(0).push_pull.num_calls(), 0);
  EXPECT_GT(ps(0).push.num_calls(), 1);
  EXPECT_EQ(ps(0).contribute.num_calls(), 1);
}

// [3] The push is offered when every shard has acknowledged every part, and not
// before.
TEST_F(ExchangeTest, SeparatelyTheOfferWaitsForAllAcknowledgments) {
  num_ps = 2;
  const std::string only_ps1 =
      absl::StrCat("the acknowledgment of push 1 by ", PsName(1));
  absl::Notification waits;
  Cluster::Options options = OptionsFor(kWorker);
  options.on_waiting = [&](const std::string& what) {
    if (what == only_ps1 && !waits.HasBeenNotified()) waits.Notify();
  };
  ps(1).push.Do([&](int, const auto&, auto*) {
    waits.WaitForNotification();
    EXPECT_EQ(ps(0).contribute.num_calls(), 0);
    return absl::OkStatus();
  });
  cluster_ = ConnectReady(options);
  StartPush();
  Contribute(&next_);
  ExpectOutcome(proto::ACCEPTED);
  EXPECT_EQ(ps(0).contribute.num_calls(), 1);
  TearDown();
}

TEST_F(ExchangeTest, WithoutExamplesNothingIsPushed) {
  for (const int ps_of_job : {1, 2}) {
    cluster_.reset();
    num_ps = ps_of_job;
    ConnectWithParts(1 << 20);
    push_ = cluster_->StartPush(GlobalStep(7));
    Contribution contribution = Of8Examples();
    contribution.examples = 0;
    ASSERT_TRUE(push_->Contribute(contribution, &next_).ok());
    ExpectOutcome(proto::ACCEPTED);
    ExpectNext(8);
    push_.reset();
  }
  EXPECT_EQ(ps(0).push.num_calls(), 0);
  ASSERT_THAT(ps(0).push_pull.requests(), SizeIs(1));
  EXPECT_THAT(ps(0).push_pull.requests()[0].tensors(), IsEmpty());
  ASSERT_THAT(ps(0).contribute.requests(), SizeIs(1));
  EXPECT_EQ(ps(0).contribute.requests()[0].examples(), 0);
}

TEST_F(ExchangeTest, NoRoomIsNoError) {
  ps(0).push_pull.Do([](int call, const auto& request, auto* response) {
    if (call < 3) return absl::ResourceExhaustedError("2 pushes are here");
    return AnswerPushPull(request, 8, response);
  });
  StartPush();
  Contribute(&next_);
  ExpectOutcome(proto::ACCEPTED);
  ExpectNext(8);
  const auto requests = ps(0).push_pull.requests();
  ASSERT_THAT(requests, SizeIs(4));
  for (const proto::PushPullRequest& request : requests) {
    EXPECT_EQ(request.SerializeAsString(), requests[0].SerializeAsString());
  }
}

TEST_F(ExchangeTest, ADeadlineNamesThePsWithoutRoom) {
  ps(0).push_pull.Do([](int, const auto&, auto*) {
    return absl::ResourceExhaustedError("2 pushes are here");
  });
  StartPush();
  Contribute(&next_);
  ps(0).push_pull.AwaitCalls(2);
  EXPECT_EQ(push_->Await(After(50)).status(),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for ", PsName(0), ": 2 pushes are here")));
  const int calls = ps(0).push_pull.num_calls();
  // It is no longer sent.
  EXPECT_TRUE(cluster_->GetStatus(Late()).ok());
  EXPECT_EQ(ps(0).push_pull.num_calls(), calls);
}

// What is lost on the way is sent again unchanged.
TEST_F(ExchangeTest, IsSentAgainUntilItIsAnswered) {
  timing.tensors_attempt = absl::Milliseconds(100);
  ps(0).push_pull.Do([&](int call, const auto& request, auto* response) {
    if (call == 0) return ps(0).Mute();
    if (call == 1) return absl::UnavailableError("lost");
    return AnswerPushPull(request, 8, response);
  });
  StartPush();
  Contribute(&next_);
  ExpectOutcome(proto::ACCEPTED);
  ExpectNext(8);
  const auto requests = ps(0).push_pull.requests();
  ASSERT_THAT(requests, SizeIs(3));
  for (const proto::PushPullRequest& request : requests) {
    EXPECT_EQ(request.SerializeAsString(), requests[0].SerializeAsString());
  }
}

TEST_F(ExchangeTest, GoesOnWhileItsCallerIsToldOfTheWait) {
  absl::Notification told;
  ps(0).push_pull.Do([&](int call, const auto& request, auto* response) {
    told.WaitForNotification();
    if (call == 0) return absl::ResourceExhaustedError("2 pushes are here");
    return AnswerPushPull(request, 8, response);
  });
  Cluster::Options options = OptionsFor(kWorker);
  options.on_waiting = [&](const std::string& what) {
    if (!absl::StrContains(what, "the verdict on push 1")) return;
    if (!told.HasBeenNotified()) told.Notify();
    ps(0).push_pull.AwaitCalls(2);
  };
  cluster_ = ConnectReady(options);
  StartPush();
  Contribute(&next_);
  ExpectOutcome(proto::ACCEPTED);
  TearDown();
}

TEST_F(ExchangeTest, WithoutAVerdictTheRestIsAskedSeparately) {
  ps(0).push_pull.Do([](int, const auto&, auto* response) {
    response->set_generation(kGeneration);
    response->set_waiting_for("/job:worker/task:0");
    return absl::OkStatus();
  });
  StartPush();
  Contribute(&next_);
  ExpectOutcome(proto::ACCEPTED);
  ExpectNext(8);
  EXPECT_EQ(ps(0).push_pull.num_calls(), 1);
  EXPECT_EQ(ps(0).push.num_calls(), 0);
  ASSERT_THAT(ps(0).contribute.requests(), SizeIs(1));
  const proto::ContributeRequest offer = ps(0).contribute.requests()[0];
  EXPECT_EQ(offer.step(), 7);
  EXPECT_EQ(offer.sequence(), 1);
  EXPECT_EQ(offer.seat(), 1);
  EXPECT_EQ(offer.examples(), 8);
  ASSERT_THAT(ps(0).pull.requests(), SizeIs(1));
  EXPECT_EQ(ps(0).pull.requests()[0].min_version(), 8);
}

TEST_F(ExchangeTest, WithoutValuesTheyArePulled) {
  ps(0).push_pull.Do([](int, const auto&, auto* response) {
    response->set_generation(kGeneration);
    response->set_verdict(proto::STALE);
    response->set_global_step(8);
    response->set_version(7);
    return absl::OkStatus();
  });
  version = 12;
  StartPush();
  Contribute(&next_);
  ExpectOutcome(proto::STALE);
  ExpectNext(12);
  EXPECT_EQ(ps(0).contribute.num_calls(), 0);
  ASSERT_THAT(ps(0).pull.requests(), SizeIs(1));
  EXPECT_EQ(ps(0).pull.requests()[0].min_version(), 8);
}

TEST_F(ExchangeTest, WhoIsShutOutDoesNotWaitForValues) {
  for (const bool separately : {false, true}) {
    ps(0).push_pull.Do([=](int, const auto&, auto* response) {
      if (!separately) response->set_verdict(proto::FENCED);
      response->set_global_step(8);
      return absl::OkStatus();
    });
    ps(0).contribute.Do([](int, const auto&, auto* response) {
      response->set_verdict(proto::FENCED);
      response->set_global_step(8);
      return absl::OkStatus();
    });
    ps(0).pull.Do([&](int, const auto&, auto*) { return ps(0).Mute(); });
    StartPush();
    Contribute(&next_);
    ExpectOutcome(proto::FENCED);
  }
}

TEST_F(ExchangeTest, ADoneJobGivesNoVerdict) {
  const auto done = [](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::DONE);
    return absl::OkStatus();
  };
  ps(0).push_pull.Do(done);
  ps(0).contribute.Do(done);
  StartPush();
  Contribute(&next_);
  EXPECT_EQ(
      push_->Await(Late()).status(),
      absl::FailedPreconditionError(absl::StrCat(
          PsName(0), ": the job is done, there is no verdict on push 1")));
}

TEST_F(ExchangeTest, AFailedJobTellsItsReason) {
  ps(0).push_pull.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::FAILED);
    response->mutable_state()->set_reason("/job:worker/task:0 was lost");
    return absl::OkStatus();
  });
  StartPush();
  Contribute(&next_);
  EXPECT_EQ(push_->Await(Late()).status(),
            absl::AbortedError("/job:worker/task:0 was lost"));
}

// [G6] From the shard, by verdict, and from the coordinator, which may not know
// the sender any more: the news of the job explain it.
TEST_F(ExchangeTest, OneOfAGenerationThatIsOverSaysSo) {
  for (const int way : {0, 1, 2}) {
    ps(0).push_pull.Do([=](int, const auto&, auto* response) {
      if (way == 0) return absl::AbortedError("not any more");
      if (way == 1) return absl::NotFoundError("no such session");
      response->set_verdict(proto::ABORTED);
      return absl::OkStatus();
    });
    Tell(kGeneration, proto::TRAINING);
    push_.reset();
    cluster_.reset();
    StartPush();
    const int before = ps(0).push_pull.num_calls();
    Contribute(&next_);
    ps(0).push_pull.AwaitCalls(before + 1);
    Tell(kGeneration + 1, proto::STARTING);
    EXPECT_EQ(push_->Await(Late()).status(),
              absl::AbortedError("the job went back to an earlier state "
                                 "(generation 3 begins)"))
        << way;
    EXPECT_TRUE(cluster_->rolled_back());
  }
}

TEST_F(ExchangeTest, APermanentErrorComesAtOnce) {
  ps(0).push_pull.Do([](int, const auto&, auto*) {
    return absl::InvalidArgumentError("seat 1 belongs to another worker");
  });
  StartPush();
  Contribute(&next_);
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat(PsName(0), ": seat 1 belongs to another worker"));
  EXPECT_EQ(push_->Await(Late()).status(), error);
  EXPECT_EQ(push_->Await(Late()).status(), error);
  EXPECT_EQ(ps(0).push_pull.num_calls(), 1);
}

TEST_F(ExchangeTest, ValuesThatWereNotAskedForAreAnError) {
  ps(0).push_pull.Do([](int, const auto& request, auto* response) {
    absl::Status status = AnswerPushPull(request, 8, response);
    response->mutable_tensors()->RemoveLast();
    return status;
  });
  StartPush();
  Contribute(&next_);
  EXPECT_EQ(
      push_->Await(Late()).status(),
      absl::InternalError(absl::StrCat(
          PsName(0), ": 4 ranges were requested, but 3 tensors arrived")));
}

TEST_F(ExchangeTest, ADeadlineNamesWhoseVerdictIsMissing) {
  ps(0).push_pull.Do([&](int, const auto&, auto*) { return ps(0).Mute(); });
  StartPush();
  Contribute(&next_);
  EXPECT_EQ(push_->Await(After(100)).status(),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for the verdict on push 1 by ", PsName(0))));
}

// An error gives the memory of the values back: later answers are not written
// there.
TEST_F(ExchangeTest, AfterAnErrorTheValuesAreTheCallers) {
  num_ps = 2;
  absl::Notification given_back;
  ps(0).contribute.Do([&](int, const auto&, auto*) {
    ps(0).pull.AwaitCalls(1);
    return absl::InvalidArgumentError("seat 1 belongs to another worker");
  });
  for (const uint32_t i : {0, 1}) {
    ps(i).pull.Do([&](int, const auto& request, auto* response) {
      given_back.WaitForNotification();
      return AnswerPull(request, 8, response);
    });
  }
  ConnectWithParts(4);
  StartPush();
  Contribute(&next_);
  EXPECT_TRUE(absl::IsInvalidArgument(push_->Await(Late()).status()));
  for (size_t v = 0; v < next_.size(); ++v) {
    for (float& value : next_.Write(v, next_.Of(v).size())) value = -1;
  }
  given_back.Notify();
  // By the end of this pull, the answers to the other one would have arrived.
  Parameters others;
  ASSERT_TRUE(cluster_->StartPull(GlobalStep(8), &others)->Await(Late()).ok());
  for (const absl::Span<const float> values : next_.All()) {
    EXPECT_THAT(values, Each(-1));
  }
  TearDown();
}

TEST_F(ExchangeTest, WhatCannotBeIsRefused) {
  ConnectWithParts(1 << 20);
  push_ = cluster_->StartPush(GlobalStep(7));
  ASSERT_TRUE(push_->Add(0, a_).ok());
  EXPECT_EQ(push_->Contribute(Of8Examples(), &next_),
            absl::FailedPreconditionError("the gradients of 1 of 2 trainable "
                                          "variables were not handed in"));
  // That changed nothing.
  ASSERT_TRUE(push_->Add(1, b_).ok());
  Contribute(&next_);
  EXPECT_EQ(push_->Contribute(Of8Examples(), &next_),
            absl::FailedPreconditionError("Contribute was called before"));
  ExpectOutcome(proto::ACCEPTED);

  push_ = cluster_->StartPush(GlobalStep(8));
  EXPECT_EQ(push_->Await(Late()).status(),
            absl::FailedPreconditionError("Contribute was not called"));
  EXPECT_EQ(push_->Contribute(Of8Examples(), &next_),
            push_->Await(Late()).status());
}

TEST_F(ExchangeTest, IsDestroyedWhileItIsUnderWay) {
  absl::Notification destroyed;
  ps(0).push_pull.Do([&](int, const auto& request, auto* response) {
    destroyed.WaitForNotification();
    return AnswerPushPull(request, 8, response);
  });
  ConnectWithParts(1 << 20);
  {
    // Once the push is destroyed, nothing may read these gradients.
    const auto a = std::make_unique<std::vector<float>>(a_);
    const auto b = std::make_unique<std::vector<float>>(b_);
    const auto next = std::make_unique<Parameters>();
    auto push = cluster_->StartPush(GlobalStep(7));
    ASSERT_TRUE(push->Add(1, *b).ok());
    ASSERT_TRUE(push->Add(0, *a).ok());
    ASSERT_TRUE(push->Contribute(Of8Examples(), next.get()).ok());
    ps(0).push_pull.AwaitCalls(1);
  }
  destroyed.Notify();
  TearDown();
}

// For example, during the pause after a refusal.
TEST_F(ExchangeTest, IsDestroyedAtAnyMoment) {
  ps(0).push_pull.Do([](int call, const auto& request, auto* response) {
    if (call % 3 == 0) return absl::ResourceExhaustedError("no room");
    if (call % 3 == 1) return absl::OkStatus();  // no verdict
    return AnswerPushPull(request, 8, response);
  });
  ConnectWithParts(1 << 20);
  for (int i = 0; i < 100; ++i) {
    StartPush();
    Contribute(&next_);
    // The deadline may have passed already.
    (void)push_->Await(SteadyNow() + absl::Microseconds(50 * i));
    push_.reset();
  }
}

// ---- Asynchronous -----------------------------------------------------------

TEST_F(ExchangeTest, PushApplicationAndPullAreOneCall) {
  ps(0).push_pull.Do([](int, const auto& request, auto* response) {
    absl::Status status = AnswerPushPull(request, 13, response);
    response->set_staleness(3);
    return status;
  });
  StartTicket();
  Apply(&next_);
  ExpectApplied(proto::ACCEPTED, 3);
  ExpectNext(13);
  EXPECT_EQ(ps(0).push.num_calls(), 0);
  EXPECT_EQ(ps(0).apply.num_calls(), 0);
  EXPECT_EQ(ps(0).pull.num_calls(), 0);

  ASSERT_THAT(ps(0).push_pull.requests(), SizeIs(1));
  const proto::PushPullRequest request = ps(0).push_pull.requests()[0];
  EXPECT_EQ(request.sequence(), 1);
  EXPECT_EQ(request.step(), 9);
  EXPECT_EQ(request.wait_ms(), 100);
  ASSERT_TRUE(request.has_application());
  ASSERT_THAT(request.application().scalars(), SizeIs(1));
  EXPECT_EQ(request.application().scalars(0).learning_rate(), 0.5f);
  EXPECT_EQ(request.application().clip_factor(), 0.5f);
  EXPECT_EQ(request.application().examples(), 8);
  EXPECT_THAT(request.tensors(), Not(IsEmpty()));
  EXPECT_THAT(request.ranges(), SizeIs(4));

  // The spent ticket is reported to the coordinator, once.
  EXPECT_EQ(NumSpent(), 1);
  const auto spent = ps(0).take_ticket.requests().back().spent(0);
  EXPECT_EQ(spent.sequence(), 1);
  EXPECT_EQ(spent.examples(), 8);
  EXPECT_EQ(spent.loss(), 2.25);
  EXPECT_EQ(spent.staleness(), 3);
  EXPECT_EQ(NumSpent(), 0);
}

TEST_F(ExchangeTest, AppliedWithTwoPsAllIsAskedSeparately) {
  num_ps = 2;
  version = 13;
  StartTicket();
  Apply(&next_);
  ExpectApplied(proto::ACCEPTED);
  ExpectNext(13);
  EXPECT_EQ(ps(0).push_pull.num_calls(), 0);
  EXPECT_EQ(ps(1).apply.num_calls(), 1);
  EXPECT_EQ(ps(1).pull.num_calls(), 1);
  EXPECT_EQ(NumSpent(), 1);
}

// The pull must find the push: it begins when all shards have applied it.
TEST_F(ExchangeTest, SeparatelyThePullFollowsTheApplications) {
  num_ps = 2;
  ps(1).apply.Do([&](int call, const auto&, auto* response) {
    EXPECT_EQ(ps(0).pull.num_calls(), 0);
    EXPECT_EQ(ps(1).pull.num_calls(), 0);
    if (call == 2) response->set_verdict(proto::ACCEPTED);
    return absl::OkStatus();
  });
  StartTicket();
  Apply(&next_);
  ExpectApplied(proto::ACCEPTED);
  EXPECT_EQ(ps(1).apply.num_calls(), 3);
  EXPECT_EQ(ps(1).pull.num_calls(), 1);
}

TEST_F(ExchangeTest, ParkedBehindAnotherItIsAskedSeparately) {
  ps(0).push_pull.Do([](int, const auto&, auto* response) {
    response->set_generation(kGeneration);
    response->set_waiting_for("push 0");
    return absl::OkStatus();
  });
  version = 13;
  StartTicket();
  Apply(&next_);
  ExpectApplied(proto::ACCEPTED);
  ExpectNext(13);
  EXPECT_EQ(ps(0).push_pull.num_calls(), 1);
  EXPECT_EQ(ps(0).push.num_calls(), 0);
  ASSERT_THAT(ps(0).apply.requests(), SizeIs(1));
  EXPECT_EQ(ps(0).apply.requests()[0].sequence(), 1);
  EXPECT_EQ(ps(0).apply.requests()[0].clip_factor(), 0.5f);
  EXPECT_EQ(ps(0).apply.requests()[0].scalars(0).learning_rate(), 0.5f);
  EXPECT_EQ(NumSpent(), 1);
}

TEST_F(ExchangeTest, AppliedWithoutValuesTheyArePulled) {
  ps(0).push_pull.Do([](int, const auto&, auto* response) {
    response->set_generation(kGeneration);
    response->set_verdict(proto::ACCEPTED);
    return absl::OkStatus();
  });
  version = 13;
  StartTicket();
  Apply(&next_);
  ExpectApplied(proto::ACCEPTED);
  ExpectNext(13);
  EXPECT_EQ(ps(0).pull.num_calls(), 1);
  EXPECT_EQ(NumSpent(), 1);
}

TEST_F(ExchangeTest, WhoIsShutOutHasNothingApplied) {
  ps(0).push_pull.Do([](int, const auto&, auto* response) {
    response->set_verdict(proto::FENCED);
    return absl::OkStatus();
  });
  ps(0).pull.Do([&](int, const auto&, auto*) { return ps(0).Mute(); });
  StartTicket();
  Apply(&next_);
  ExpectApplied(proto::FENCED);
  EXPECT_EQ(NumSpent(), 0);
}

TEST_F(ExchangeTest, AppliedWithoutExamplesItHasNoTensors) {
  asynchronous = true;
  version = 13;
  ConnectWithParts(1 << 20);
  Parameters at;
  at.versions = {GlobalStep(9)};
  push_ = cluster_->StartPush(Take(cluster_.get()), at);
  ASSERT_TRUE(push_->Add(0, a_).ok());
  Contribution nothing;
  nothing.not_finite = true;
  ASSERT_TRUE(push_->Contribute(nothing, &next_).ok());
  ExpectApplied(proto::ACCEPTED);
  ExpectNext(13);
  const proto::PushPullRequest request = ps(0).push_pull.requests()[0];
  EXPECT_THAT(request.tensors(), IsEmpty());
  EXPECT_TRUE(request.application().has_clip_factor());
  EXPECT_EQ(request.application().clip_factor(), 0);
  EXPECT_EQ(request.application().examples(), 0);
  EXPECT_TRUE(request.application().not_finite());
  EXPECT_EQ(NumSpent(), 1);
  EXPECT_TRUE(ps(0).take_ticket.requests().back().spent(0).not_finite());
}

TEST_F(ExchangeTest, AppliedWithNoRoomItIsSentAgain) {
  ps(0).push_pull.Do([](int call, const auto& request, auto* response) {
    if (call < 2) return absl::ResourceExhaustedError("2 pushes are here");
    return AnswerPushPull(request, 13, response);
  });
  StartTicket();
  Apply(&next_);
  ExpectApplied(proto::ACCEPTED);
  ExpectNext(13);
  EXPECT_EQ(ps(0).push_pull.num_calls(), 3);
  EXPECT_EQ(NumSpent(), 1);
}

TEST_F(ExchangeTest, AnErrorOfTheApplicationIsTheOutcome) {
  ps(0).push_pull.Do([](int, const auto&, auto*) {
    return absl::InvalidArgumentError("scalars of 1 optimizers, declared 2");
  });
  StartTicket();
  Apply(&next_);
  EXPECT_EQ(push_->Await(Late()).status(),
            absl::InvalidArgumentError(absl::StrCat(
                PsName(0), ": scalars of 1 optimizers, declared 2")));
  EXPECT_EQ(NumSpent(), 0);
}

}  // namespace
}  // namespace holdfast::client
