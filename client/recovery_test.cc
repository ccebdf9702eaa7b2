// SPDX-License-Identifier: Apache-2.0

// [G6] A client's behavior when the job rolls back to an earlier state, and
// when ps and coordinator come and go.

#include <functional>
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

using ::testing::HasSubstr;
using ::testing::SizeIs;

const absl::Status& BackTo3() {
  static const auto* const kStatus = new absl::Status(absl::AbortedError(
      "the job went back to an earlier state (generation 3 begins)"));
  return *kStatus;
}

class RecoveryTest : public ClientTest {
 protected:
  void TearDown() override {
    cluster_.reset();
    StopPs();
  }

  void ConnectAs(const TaskId& task) {
    cluster_ = ConnectReady(OptionsFor(task));
    ASSERT_NE(cluster_, nullptr);
  }

  // A push with all gradients.
  std::unique_ptr<Cluster::Push> StartPush() {
    auto push = cluster_->StartPush(GlobalStep(0));
    EXPECT_TRUE(push->Add(0, a_).ok());
    EXPECT_TRUE(push->Add(1, b_).ok());
    return push;
  }
  // An offered push without examples.
  std::unique_ptr<Cluster::Push> StartOffer() {
    auto push = cluster_->StartPush(GlobalStep(0));
    push->Contribute({1}).IgnoreError();  // Await returns it, too
    return push;
  }

  const std::vector<float> a_ = std::vector<float>(6);
  const std::vector<float> b_ = std::vector<float>(8);
  Parameters values_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(RecoveryTest, EndsWhatIsUnderWayAndGoesOnInTheNextGeneration) {
  for (const uint32_t i : {0, 1}) {
    const auto mute = [this, i](int, const auto& request, auto*) {
      return request.sender().generation() == 2 ? ps(i).Mute()
                                                : absl::OkStatus();
    };
    ps(i).push.Do(mute);
    ps(i).pull.Do([=](int call, const auto& request, auto* response) {
      if (absl::Status status = mute(call, request, response); !status.ok()) {
        return status;
      }
      return AnswerPull(request, 0, response);
    });
    ps(i).contribute.Do(mute);
    ps(i).take_ticket.Do(mute);
    ps(i).evaluation.Do(mute);
  }
  ConnectAs(kWorker);
  EXPECT_FALSE(cluster_->rolled_back());
  const proto::Declaration& declaration = cluster_->declaration();
  auto push = StartPush();
  auto offer = StartOffer();
  auto ticket = cluster_->StartTakeTicket();
  auto pull = cluster_->StartPull(GlobalStep(0), &values_);
  ps(0).pull.AwaitCalls(1);
  Tell(3, proto::STARTING);
  EXPECT_EQ(pull->Await(Late()), BackTo3());
  EXPECT_TRUE(cluster_->rolled_back());
  EXPECT_EQ(push->AwaitHeld(Late()), BackTo3());
  EXPECT_EQ(offer->Await(Late()).status(), BackTo3());
  EXPECT_EQ(ticket->Await(Late()).status(), BackTo3());

  // Nor can anything be started.
  EXPECT_EQ(cluster_->StartPush(GlobalStep(0))->Add(0, a_), BackTo3());
  EXPECT_EQ(StartOffer()->Await(Late()).status(), BackTo3());
  EXPECT_EQ(cluster_->StartTakeTicket()->Await(Late()).status(), BackTo3());
  EXPECT_EQ(cluster_->StartPull(GlobalStep(0), &values_)->Await(Late()),
            BackTo3());
  EXPECT_EQ(cluster_->PinVersion(absl::Seconds(1), Late()).status(), BackTo3());
  EXPECT_EQ(cluster_->ReportEvaluation({}, Late()), BackTo3());
  EXPECT_EQ(cluster_->AwaitDone(Late()), BackTo3());
  EXPECT_EQ(cluster_->state().phase(), proto::STARTING);
  EXPECT_TRUE(cluster_->GetStatus(Late()).ok());

  // Two handles are destroyed only later.
  push.reset();
  pull.reset();
  ASSERT_TRUE(cluster_->AwaitVariables(Late()).ok());
  EXPECT_FALSE(cluster_->rolled_back());
  EXPECT_EQ(&cluster_->declaration(), &declaration);
  ticket.reset();
  offer.reset();
  EXPECT_TRUE(cluster_->StartPull(GlobalStep(0), &values_)->Await(Late()).ok());
  push = StartPush();
  EXPECT_EQ(push->sequence(), PushSequence(1));
  ASSERT_TRUE(push->AwaitHeld(Late()).ok());
  const proto::PushRequest request = ps(1).push.requests().back();
  EXPECT_EQ(request.sender().generation(), 3);
  EXPECT_EQ(request.sender().incarnation(), kIncarnation);
  EXPECT_EQ(request.sequence(), 1);
}

// A push of generation 2 that counted in 3 would be another worker's gradient,
// or the same one twice.
TEST_F(RecoveryTest, WhatIsSentAgainStaysInItsGeneration) {
  ps(1).push.Do([](int, const auto&, auto*) {
    return absl::UnavailableError("restarting");
  });
  ps(1).pull.Do([](int, const auto&, auto*) {
    return absl::AbortedError("the generation is over");
  });
  ps(0).contribute.Do([](int, const auto&, auto* response) {
    response->set_verdict(proto::ABORTED);
    return absl::OkStatus();
  });
  ConnectAs(kWorker);
  auto push = StartPush();
  auto offer = StartOffer();
  auto pull = cluster_->StartPull(GlobalStep(0), &values_);
  EXPECT_FALSE(push->WaitUntilHeld(absl::InfinitePast()));
  ps(1).push.AwaitCalls(1);
  ps(1).pull.AwaitCalls(1);
  ps(0).contribute.AwaitCalls(1);
  Tell(3, proto::TRAINING);
  EXPECT_EQ(push->AwaitHeld(Late()), BackTo3());
  ASSERT_TRUE(cluster_->AwaitVariables(Late()).ok());

  // A push whose Await has not been called is still in progress.
  auto second = StartPush();
  EXPECT_EQ(second->sequence(), PushSequence(1));
  EXPECT_FALSE(second->WaitUntilHeld(absl::InfinitePast()));
  const int before = ps(1).push.num_calls();
  Tell(4, proto::TRAINING);
  ps(1).push.AwaitCalls(before + 3);
  for (const proto::PushRequest& request : ps(1).push.requests()) {
    EXPECT_LE(request.sender().generation(), 3);
  }
  for (const proto::PullRequest& request : ps(1).pull.requests()) {
    EXPECT_EQ(request.sender().generation(), 2);
  }
  for (const auto& request : ps(0).contribute.requests()) {
    EXPECT_EQ(request.sender().generation(), 2);
  }
}

// The shard knows of the generation before the session does.
TEST_F(RecoveryTest, AnAbortedCallWaitsForTheReason) {
  const auto tell = [this](uint64_t generation) {
    if (generation == 2) Tell(3, proto::STARTING);
  };
  const auto verdict = [tell](int call, const auto& request, auto* response) {
    response->set_verdict(proto::ABORTED);
    if (call == 1) tell(request.sender().generation());
    return absl::OkStatus();
  };
  const auto status = [tell](int call, const auto& request, auto*) {
    if (call == 1) tell(request.sender().generation());
    return absl::AbortedError("speaks in generation 2");
  };
  using Try = std::function<absl::Status()>;
  const std::vector<Try> tries = {
      [&] {
        ps(1).push.Do(verdict);
        return StartPush()->AwaitHeld(Late());
      },
      [&] {
        ps(0).contribute.Do(verdict);
        return StartOffer()->Await(Late()).status();
      },
      [&] {
        ps(0).take_ticket.Do(verdict);
        return cluster_->StartTakeTicket()->Await(Late()).status();
      },
      [&] {
        ps(1).pull.Do(status);
        return cluster_->StartPull(GlobalStep(0), &values_)->Await(Late());
      },
      [&] {
        ps(1).pin.Do(status);
        return cluster_->PinVersion(absl::Seconds(1), Late()).status();
      },
      [&] {
        ps(0).evaluation.Do(status);
        return cluster_->ReportEvaluation({}, Late());
      },
  };
  for (const Try& attempt : tries) {
    Tell(2, proto::TRAINING);
    ConnectAs(kWorker);
    EXPECT_EQ(attempt(), BackTo3());
    EXPECT_TRUE(cluster_->rolled_back());
    cluster_.reset();
  }
}

TEST_F(RecoveryTest, AnAbortedApplicationWaitsForTheReason) {
  asynchronous = true;
  ps(1).apply.Do([this](int call, const auto&, auto* response) {
    response->set_verdict(proto::ABORTED);
    if (call == 1) Tell(3, proto::STARTING);
    return absl::OkStatus();
  });
  ConnectAs(kWorker);
  Parameters at;
  at.versions.resize(2);
  auto push = cluster_->StartPush(Take(cluster_.get()), at);
  ASSERT_TRUE(push->Contribute({}).ok());
  EXPECT_EQ(push->Await(Late()).status(), BackTo3());
}

TEST_F(RecoveryTest, AnAbortedCallOfAJobThatHasFailedTellsTheReason) {
  ps(1).pull.Do([this](int call, const auto&, auto*) {
    if (call == 1) Tell(2, proto::FAILED, "/job:ps/task:1 was lost");
    return absl::AbortedError("the job has failed");
  });
  ConnectAs(kWorker);
  EXPECT_EQ(cluster_->StartPull(GlobalStep(0), &values_)->Await(Late()),
            absl::AbortedError("/job:ps/task:1 was lost"));
  EXPECT_FALSE(cluster_->rolled_back());
}

TEST_F(RecoveryTest, AnAbortedCallThatNobodyExplainsSaysWhatItHeard) {
  ps(1).pull.Do([](int, const auto&, auto*) {
    return absl::AbortedError("speaks in generation 2");
  });
  ConnectAs(kWorker);
  const absl::Status status =
      cluster_->StartPull(GlobalStep(0), &values_)->Await(After(200));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat(PsName(1), ": speaks in generation 2")));
}

// A reader has no session that could tell it.
TEST_F(RecoveryTest, AReaderAsksForTheGeneration) {
  for (const uint32_t i : {0, 1}) {
    ps(i).pull.Do([this](int, const auto& request, auto* response) {
      if (request.sender().generation() != generation) {
        return absl::AbortedError("speaks in another generation");
      }
      return AnswerPull(request, 0, response);
    });
  }
  ConnectAs(kReader);
  EXPECT_TRUE(cluster_->StartPull(GlobalStep(0), &values_)->Await(Late()).ok());
  generation = 3;
  EXPECT_EQ(cluster_->StartPull(GlobalStep(0), &values_)->Await(Late()),
            BackTo3());
  EXPECT_TRUE(cluster_->rolled_back());
  ASSERT_TRUE(cluster_->AwaitVariables(Late()).ok());
  EXPECT_FALSE(cluster_->rolled_back());
  EXPECT_TRUE(cluster_->StartPull(GlobalStep(0), &values_)->Await(Late()).ok());
}

TEST_F(RecoveryTest, AReaderHearsThatTheJobHasFailed) {
  ConnectAs(kReader);
  ps(1).pull.Do([](int, const auto&, auto*) {
    return absl::AbortedError("the job has failed");
  });
  ps(0).place.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::FAILED);
    response->mutable_state()->set_reason("/job:ps/task:1 was lost");
    return absl::OkStatus();
  });
  EXPECT_EQ(cluster_->StartPull(GlobalStep(0), &values_)->Await(Late()),
            absl::AbortedError("/job:ps/task:1 was lost"));
}

TEST_F(RecoveryTest, APinIsOfItsGeneration) {
  ConnectAs(kWorker);
  auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  Tell(3, proto::TRAINING);
  EXPECT_EQ(cluster_->AwaitDone(Late()), BackTo3());
  EXPECT_EQ((*pin)->StartRead(&values_)->Await(Late()), BackTo3());
  ASSERT_TRUE(cluster_->AwaitVariables(Late()).ok());
  EXPECT_EQ((*pin)->StartRead(&values_)->Await(Late()), BackTo3());
}

// The coordinator was restarted: it does not know the session.
TEST_F(RecoveryTest, GoesOnAsAnotherLife) {
  ps(0).do_register.Do([](int call, const auto&, auto* response) {
    response->set_incarnation(call == 0 ? kIncarnation : 1000000001);
    response->set_generation(call == 0 ? 2 : 3);
    response->set_lease_ms(60000);
    return absl::OkStatus();
  });
  absl::Notification restarted;
  ps(0).renew.Do([&](int, const auto& request, auto* response) {
    if (request.sender().incarnation() != kIncarnation) {
      return ps(0).TellNews(request, response);
    }
    restarted.WaitForNotification();
    return absl::NotFoundError("no session");
  });
  ps(0).contribute.Do([&](int call, const auto&, auto*) {
    if (call == 1) {
      Tell(3, proto::TRAINING);
      restarted.Notify();
    }
    return absl::NotFoundError("no session");
  });
  ConnectAs(kWorker);
  EXPECT_EQ(StartOffer()->Await(Late()).status(), BackTo3());
  ASSERT_TRUE(cluster_->AwaitVariables(Late()).ok());
  ASSERT_TRUE(StartPush()->AwaitHeld(Late()).ok());
  const proto::Sender sender = ps(0).push.requests().back().sender();
  EXPECT_EQ(sender.generation(), 3);
  EXPECT_EQ(sender.incarnation(), 1000000001);
  EXPECT_EQ(ps(0).do_register.requests()[1].sender().generation(), 2);
}

// Pushes of the previous life are refused.
TEST_F(RecoveryTest, AnotherLifeInTheSameGenerationBeginsAnewToo) {
  ps(0).do_register.Do([](int call, const auto&, auto* response) {
    response->set_incarnation(kIncarnation + call);
    response->set_generation(2);
    response->set_lease_ms(60000);
    return absl::OkStatus();
  });
  absl::Notification forget;
  ps(0).renew.Do([&](int, const auto& request, auto* response) {
    if (request.sender().incarnation() != kIncarnation) {
      return ps(0).TellNews(request, response);
    }
    forget.WaitForNotification();
    return absl::NotFoundError("no session");
  });
  ConnectAs(kWorker);
  forget.Notify();
  EXPECT_TRUE(absl::IsAborted(cluster_->AwaitDone(Late())));
  EXPECT_TRUE(cluster_->rolled_back());
  ASSERT_TRUE(cluster_->AwaitVariables(Late()).ok());
  ASSERT_TRUE(StartPush()->AwaitHeld(Late()).ok());
  EXPECT_EQ(ps(0).push.requests().back().sender().incarnation(),
            kIncarnation + 1);
}

TEST_F(RecoveryTest, TheVariablesAreThoseOfTheNewestGeneration) {
  ConnectAs(kWorker);
  Tell(3, proto::TRAINING);
  EXPECT_EQ(cluster_->AwaitDone(Late()), BackTo3());
  const int before = ps(0).place.num_calls();
  ps(0).place.Do([=](int call, const auto&, auto* response) {
    AnswerPlacement(response);
    response->set_generation(call < before + 2 ? 2 : 3);
    return absl::OkStatus();
  });
  ASSERT_TRUE(cluster_->AwaitVariables(Late()).ok());
  EXPECT_FALSE(cluster_->rolled_back());
  EXPECT_EQ(ps(0).place.num_calls(), before + 3);
}

// A declaration belongs to no generation.
TEST_F(RecoveryTest, ADeclarationIsMadeInWhicheverGeneration) {
  ps(0).declare.Do([this](int, const auto& request, auto*) {
    if (request.sender().generation() == 3) return absl::OkStatus();
    Tell(3, proto::STARTING);
    return absl::AbortedError("speaks in generation 2");
  });
  auto cluster = Connect(OptionsFor(kWorker), timing);
  ASSERT_TRUE(cluster.ok());
  EXPECT_TRUE((*cluster)->Declare({}, Late()).ok());
  EXPECT_FALSE((*cluster)->rolled_back());
}

TEST_F(RecoveryTest, TellsTheEnd) {
  ConnectAs(kWorker);
  const absl::Status status = cluster_->AwaitDone(After(50));
  EXPECT_EQ(status,
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for the end of the job by ", PsName(0))));
  Tell(2, proto::DONE);
  EXPECT_TRUE(cluster_->AwaitDone(Late()).ok());
}

TEST_F(RecoveryTest, TellsWhatIsDurable) {
  Tell(2, proto::TRAINING, "", 500);
  ps(0).contribute.Do([](int call, const auto&, auto* response) {
    response->set_verdict(proto::ACCEPTED);
    // The second is of an older generation.
    response->set_generation(call == 1 ? 1 : 2);
    response->set_durable_step(call == 1 ? 900 : 600);
    return absl::OkStatus();
  });
  ConnectAs(kWorker);
  ASSERT_TRUE(StartOffer()->Await(Late()).ok());
  EXPECT_EQ(cluster_->durable_step(), GlobalStep(600));
  ASSERT_TRUE(StartOffer()->Await(Late()).ok());
  EXPECT_EQ(cluster_->durable_step(), GlobalStep(600));
  Tell(3, proto::TRAINING, "", 400);
  EXPECT_EQ(cluster_->AwaitDone(Late()), BackTo3());
  EXPECT_EQ(cluster_->durable_step(), GlobalStep(400));
}

using CheckpointTest = RecoveryTest;

TEST_F(CheckpointTest, IsWaitedFor) {
  ps(0).checkpoint.Do([](int call, const auto&, auto* response) {
    // Why an attempt before this one failed.
    if (call == 0) response->set_error("disk full");
    if (call == 1) return absl::UnavailableError("lost");
    response->set_generation(2);
    response->set_step(70);
    response->set_durable_step(call < 3 ? 60 : 75);
    return absl::OkStatus();
  });
  ConnectAs(kReader);
  const auto step = cluster_->SaveCheckpoint(Late());
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(*step, GlobalStep(70));
  EXPECT_EQ(cluster_->durable_step(), GlobalStep(75));
  const auto requests = ps(0).checkpoint.requests();
  ASSERT_THAT(requests, SizeIs(4));
  EXPECT_FALSE(requests[0].has_step());
  EXPECT_EQ(requests[0].wait_ms(), 100);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(requests[i].step(), 70);
}

TEST_F(CheckpointTest, IsHereAtOnceWhenNothingHasHappened) {
  ps(0).checkpoint.Do([](int, const auto&, auto* response) {
    response->set_step(70);
    response->set_durable_step(70);
    return absl::OkStatus();
  });
  ConnectAs(kWorker);
  EXPECT_EQ(*cluster_->SaveCheckpoint(Late()), GlobalStep(70));
  EXPECT_EQ(ps(0).checkpoint.num_calls(), 1);
}

TEST_F(CheckpointTest, WhyItCouldNotBeWritten) {
  ps(0).checkpoint.Do([](int call, const auto&, auto* response) {
    response->set_step(70);
    if (call == 2) response->set_error("/job:ps/task:1: disk full");
    return absl::OkStatus();
  });
  ConnectAs(kReader);
  EXPECT_EQ(cluster_->SaveCheckpoint(Late()).status(),
            absl::UnavailableError("the checkpoint of step 70 could not be "
                                   "written: /job:ps/task:1: disk full"));
}

// The requested step may be far away.
TEST_F(CheckpointTest, IsAskedForAnewWhenTheJobHasGoneBack) {
  ps(0).checkpoint.Do([](int call, const auto&, auto* response) {
    response->set_generation(call == 0 ? 2 : 3);
    response->set_step(call == 0 ? 70 : 40);
    response->set_durable_step(call == 0 ? 30 : 40);
    return absl::OkStatus();
  });
  ConnectAs(kReader);
  EXPECT_EQ(*cluster_->SaveCheckpoint(Late()), GlobalStep(40));
  const auto requests = ps(0).checkpoint.requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_TRUE(requests[1].has_step());
  EXPECT_FALSE(requests[2].has_step());
}

TEST_F(CheckpointTest, ErrorsComeAtOnce) {
  ConnectAs(kReader);
  for (const absl::Status& error :
       {absl::FailedPreconditionError("no directory"),
        absl::AbortedError("the job has failed")}) {
    ps(0).checkpoint.Do([&](int, const auto&, auto*) { return error; });
    EXPECT_EQ(cluster_->SaveCheckpoint(Late()).status(),
              absl::Status(error.code(),
                           absl::StrCat(PsName(0), ": ", error.message())));
  }
}

}  // namespace
}  // namespace holdfast::client
