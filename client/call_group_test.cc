// SPDX-License-Identifier: Apache-2.0
#include "client/call_group.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/testing/fake_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CallGroupTest : public ::testing::Test {
 protected:
  CallGroupTest() {
    Context::Options options;
    options.task = {kWorkerJob, 1};
    options.ps_names = {"ps 0", "ps 1"};
    options.on_unexplained = [this] { ++unexplained_; };
    context_ = std::make_shared<Context>(std::move(options), &transport_);
    SessionNews news;
    news.sender.mutable_task()->set_job("worker");
    news.sender.mutable_task()->set_index(1);
    news.sender.set_incarnation(3);
    news.sender.set_generation(2);
    sender_ = std::make_shared<const proto::Sender>(news.sender);
    context_->Hear(news);
  }

  // Applies a push at ps 1; answers to it return `next_`.
  void Apply(CallGroup* calls) {
    proto::ApplyRequest request;
    request.set_sequence(7);
    request.set_wait_ms(5000);
    calls->Start(rpc::kApply, 1, std::move(request),
                 [this](absl::StatusOr<proto::ApplyResponse> response) {
                   answers_.push_back(response.status());
                   return next_;
                 });
  }

  void BeginGeneration(uint64_t generation) {
    SessionNews news;
    news.sender = *sender_;
    news.sender.set_generation(generation);
    context_->Hear(news);
  }

  FakeTransport transport_;
  int unexplained_ = 0;
  std::shared_ptr<Context> context_;
  std::shared_ptr<const proto::Sender> sender_;
  Next next_ = Next::kDone;
  std::vector<absl::Status> answers_;
};

TEST_F(CallGroupTest, ACallSaysWhoAsksAndEndsWithItsAnswer) {
  CallGroup calls(context_, sender_);
  Apply(&calls);
  auto call = transport_.Take(rpc::kApply, 1);
  EXPECT_EQ(call.request.sender().SerializeAsString(),
            sender_->SerializeAsString());
  EXPECT_EQ(call.request.sequence(), 7);
  // The time for the answer, in addition to the time that it is parked.
  EXPECT_EQ(call.timeout(), context_->timing.attempt + absl::Seconds(5));
  EXPECT_THAT(answers_, IsEmpty());
  call.Answer(proto::ApplyResponse());
  EXPECT_THAT(answers_, ElementsAre(absl::OkStatus()));
  transport_.Pass(absl::Hours(1));
  EXPECT_THAT(transport_.names(), IsEmpty());
}

TEST_F(CallGroupTest, WhatGoesWrongOnTheWireIsSentAgainAfterAPauseThatGrows) {
  CallGroup calls(context_, sender_);
  Apply(&calls);
  std::string first;
  for (const absl::Duration bound :
       {absl::Milliseconds(20), absl::Milliseconds(40),
        absl::Milliseconds(80)}) {
    auto call = transport_.Take(rpc::kApply, 1);
    if (first.empty()) first = call.request.SerializeAsString();
    EXPECT_EQ(call.request.SerializeAsString(), first);
    call.Answer(absl::UnavailableError("no connection"));
    transport_.Pass(bound / 2 - absl::Nanoseconds(1));
    EXPECT_FALSE(transport_.Has(rpc::kApply, 1)) << bound;
    transport_.Pass(bound / 2 + absl::Nanoseconds(1));
    EXPECT_TRUE(transport_.Has(rpc::kApply, 1)) << bound;
  }
  EXPECT_THAT(answers_, IsEmpty());
}

TEST_F(CallGroupTest, AnotherErrorIsToldWithTheNameOfThePs) {
  CallGroup calls(context_, sender_);
  Apply(&calls);
  transport_.Take(rpc::kApply, 1).Answer(absl::InternalError("broken"));
  EXPECT_THAT(answers_, ElementsAre(absl::InternalError("ps 1: broken")));
}

TEST_F(CallGroupTest, NewsOfTheJobExplainAbortedAndThePauseIsEndedByThem) {
  CallGroup calls(context_, sender_);
  Apply(&calls);
  proto::ApplyResponse aborted;
  aborted.set_verdict(proto::ABORTED);
  transport_.Take(rpc::kApply, 1).Answer(aborted);
  EXPECT_EQ(unexplained_, 1);
  transport_.Pass(absl::Seconds(1));
  transport_.Take(rpc::kApply, 1).Answer(absl::AbortedError("over"));
  EXPECT_EQ(unexplained_, 2);
  EXPECT_THAT(answers_, IsEmpty());

  const auto never = [] { return false; };
  const auto what = [] { return std::string("an application"); };
  BeginGeneration(3);
  EXPECT_TRUE(calls.IsOver());
  EXPECT_TRUE(absl::IsAborted(calls.Await(absl::InfinitePast(), never, what)));
}

// NOT_FOUND is "no such session" only from the coordinator.
TEST_F(CallGroupTest, OnlyTheCoordinatorKnowsSessions) {
  CallGroup calls(context_, sender_);
  Apply(&calls);
  transport_.Take(rpc::kApply, 1).Answer(absl::NotFoundError("no such push"));
  EXPECT_EQ(unexplained_, 0);
  EXPECT_THAT(answers_, ElementsAre(absl::NotFoundError("ps 1: no such push")));
  calls.Start(rpc::kContribute, 0, proto::ContributeRequest(),
              [](const auto&) { return Next::kDone; });
  transport_.Take(rpc::kContribute)
      .Answer(absl::NotFoundError("no such session"));
  EXPECT_EQ(unexplained_, 1);
}

TEST_F(CallGroupTest, AParkedCallIsAskedAgainAtOnceAndAnotherAfterAPause) {
  next_ = Next::kAgain;
  CallGroup calls(context_, sender_);
  Apply(&calls);
  auto parked = transport_.Take(rpc::kApply, 1);
  transport_.Pass(context_->timing.park);
  parked.Answer(proto::ApplyResponse());
  auto answered_at_once = transport_.Take(rpc::kApply, 1);
  answered_at_once.Answer(proto::ApplyResponse());
  EXPECT_FALSE(transport_.Has(rpc::kApply, 1));
  transport_.Pass(absl::Milliseconds(20));
  EXPECT_TRUE(transport_.Has(rpc::kApply, 1));
}

TEST_F(CallGroupTest, ACallOfAGenerationThatIsOverIsNotSentAgain) {
  next_ = Next::kAgain;
  CallGroup calls(context_, sender_);
  CallGroup of_the_newest(context_);
  Apply(&calls);
  Apply(&of_the_newest);
  auto call = transport_.Take(rpc::kApply, 1);
  auto newest = transport_.Take(rpc::kApply, 1);
  BeginGeneration(3);
  call.Answer(proto::ApplyResponse());
  newest.Answer(proto::ApplyResponse());
  transport_.Pass(absl::Seconds(1));
  EXPECT_EQ(transport_.Take(rpc::kApply, 1).request.sender().generation(), 3);
  EXPECT_FALSE(transport_.Has(rpc::kApply, 1));
}

TEST_F(CallGroupTest, AfterCancelNothingIsToldOrSent) {
  CallGroup calls(context_, sender_);
  Apply(&calls);
  Apply(&calls);
  calls.After(absl::Seconds(1), [] { ADD_FAILURE(); });
  transport_.Take(rpc::kApply, 1).Answer(absl::UnavailableError("lost"));
  EXPECT_THAT(transport_.names(), ElementsAre("Apply"));
  calls.Cancel();
  EXPECT_THAT(transport_.names(), IsEmpty());
  transport_.Pass(absl::Hours(1));
  EXPECT_THAT(transport_.names(), IsEmpty());
  Apply(&calls);
  EXPECT_THAT(transport_.names(), IsEmpty());
  EXPECT_THAT(answers_, IsEmpty());
}

TEST_F(CallGroupTest, WhatIsHereIsNotWaitedFor) {
  CallGroup calls(context_, sender_);
  const auto what = [] { return std::string(); };
  // FakeTransport::Wait fails the test.
  EXPECT_TRUE(calls
                  .Await(
                      absl::InfinitePast(), [] { return true; }, what)
                  .ok());
}

// A client without a session hears of the job from the answers.
TEST_F(CallGroupTest, AnAnswerTellsOfTheJob) {
  Context::Options options;
  options.ps_names = {"ps 0"};
  auto context = std::make_shared<Context>(std::move(options), &transport_);
  CallGroup calls(context);
  calls.Start(rpc::kPull, 0, proto::PullRequest(),
              [](const auto&) { return Next::kDone; });
  WithTensors<proto::PullResponse> response;
  response.message.set_generation(4);
  response.message.mutable_state()->set_phase(proto::FAILED);
  response.message.mutable_state()->set_reason("ps 0 is gone");
  transport_.Take(rpc::kPull).Answer(response);
  absl::MutexLock lock(&context->mutex);
  EXPECT_EQ(context->sender().generation(), 4);
  EXPECT_EQ(context->WhyOver(nullptr), absl::AbortedError("ps 0 is gone"));
}

}  // namespace
}  // namespace holdfast::client
