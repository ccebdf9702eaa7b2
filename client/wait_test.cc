// SPDX-License-Identifier: Apache-2.0

// Waits in portions, and waits that the caller ends.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/client_test_base.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::HasSubstr;

class WaitTest : public ClientTest {
 protected:
  // The coordinator gives no verdict until the test says so.
  void HoldVerdicts() {
    ps(0).contribute.Do([this](int, const auto&, auto* response) {
      if (told_) response->set_verdict(proto::ACCEPTED);
      return absl::OkStatus();
    });
  }
  void TellVerdicts() { told_ = true; }

  std::atomic<bool> told_{false};
};

TEST_F(WaitTest, AVerdictIsWaitedForInPortions) {
  auto cluster = ConnectReady();
  HoldVerdicts();
  auto push = cluster->StartPush(GlobalStep(4));
  ASSERT_EQ(push->Contribute({1}), absl::OkStatus());
  EXPECT_FALSE(push->WaitUntilDone(absl::InfinitePast()));
  EXPECT_FALSE(push->WaitUntilDone(After(1)));
  TellVerdicts();
  EXPECT_TRUE(push->WaitUntilDone(Late()));
  EXPECT_TRUE(push->done());
  EXPECT_EQ(push->Await(absl::InfinitePast())->verdict, proto::ACCEPTED);
  push.reset();
  cluster.reset();
  StopPs();
}

TEST_F(WaitTest, ValuesAreWaitedForInPortions) {
  auto cluster = ConnectReady();
  std::atomic<bool> here{false};
  ps(1).pull.Do([&](int, const proto::PullRequest& request, auto* response) {
    return here ? AnswerPull(request, 3, response)
                : absl::UnavailableError("not yet");
  });
  Parameters values;
  auto pull = cluster->StartPull(GlobalStep(3), &values);
  EXPECT_FALSE(pull->WaitUntilDone(After(1)));
  here = true;
  EXPECT_TRUE(pull->WaitUntilDone(Late()));
  EXPECT_EQ(pull->Await(absl::InfinitePast()), absl::OkStatus());
  EXPECT_EQ(values.version, GlobalStep(3));
  pull.reset();
  cluster.reset();
  StopPs();
}

TEST_F(WaitTest, AGradientIsWaitedForInPortions) {
  auto cluster = ConnectReady();
  std::atomic<bool> here{false};
  ps(1).push.Do([&](int, const auto&, auto*) {
    return here ? absl::OkStatus() : absl::UnavailableError("not yet");
  });
  auto push = cluster->StartPush(GlobalStep(4));
  const std::vector<float> a(6), b(8);
  ASSERT_TRUE(push->Add(0, a).ok());
  EXPECT_TRUE(push->WaitUntilHeld(absl::InfinitePast()))
      << "one that AwaitHeld would refuse is not waited for";
  ASSERT_TRUE(push->Add(1, b).ok());
  EXPECT_FALSE(push->WaitUntilHeld(After(1)));
  here = true;
  EXPECT_TRUE(push->WaitUntilHeld(Late()));
  EXPECT_EQ(push->AwaitHeld(absl::InfinitePast()), absl::OkStatus());
  push.reset();
  cluster.reset();
  StopPs();
}

TEST_F(WaitTest, ATicketIsWaitedForInPortions) {
  asynchronous = true;
  auto cluster = ConnectReady();
  std::atomic<bool> here{false};
  ps(0).take_ticket.Do(
      [&](int, const proto::TakeTicketRequest& request, auto* response) {
        if (here) *response->mutable_ticket() = TicketOf(request.sequence());
        return absl::OkStatus();
      });
  auto request = cluster->StartTakeTicket();
  EXPECT_FALSE(request->WaitUntilDone(After(1)));
  here = true;
  EXPECT_TRUE(request->WaitUntilDone(Late()));
  EXPECT_TRUE(request->Await(absl::InfinitePast())->has_value());
  request.reset();
  cluster.reset();
  StopPs();
}

// The wait succeeds however short its portions are.
TEST_F(WaitTest, OnWaitingIsToldOfTheWholeWait) {
  timing.first_report = absl::Milliseconds(50);
  Cluster::Options options = OptionsFor(kWorker);
  std::atomic<int> reports{0};
  options.on_waiting = [&](const std::string& what) {
    EXPECT_THAT(what, HasSubstr(PsName(0)));
    ++reports;
  };
  auto cluster = ConnectReady(options);
  HoldVerdicts();
  auto push = cluster->StartPush(GlobalStep(4));
  const absl::Time begun = SteadyNow();
  ASSERT_EQ(push->Contribute({1}), absl::OkStatus());
  const absl::Time late = Late();
  while (reports == 0 && SteadyNow() < late) {
    EXPECT_FALSE(push->WaitUntilDone(After(5)));
  }
  // On a busy machine one wait may last for several reports.
  EXPECT_GE(reports, 1);
  EXPECT_LE(reports, (SteadyNow() - begun) / timing.first_report);
  TellVerdicts();
  EXPECT_TRUE(push->WaitUntilDone(Late()));
  push.reset();
  cluster.reset();
  StopPs();
}

TEST_F(WaitTest, CancelEndsWaitsButNotTheLeave) {
  auto cluster = ConnectReady();
  HoldVerdicts();
  auto push = cluster->StartPush(GlobalStep(4));
  ASSERT_EQ(push->Contribute({1}), absl::OkStatus());
  std::thread waiter([&] {
    EXPECT_TRUE(
        absl::IsCancelled(push->Await(absl::InfiniteFuture()).status()));
    EXPECT_TRUE(absl::IsCancelled(cluster->AwaitDone(absl::InfiniteFuture())));
  });
  cluster->Cancel();
  waiter.join();
  Parameters values;
  EXPECT_TRUE(absl::IsCancelled(
      cluster->StartPull(GlobalStep(0), &values)->Await(Late())));
  EXPECT_EQ(cluster->Leave("", Late()), absl::OkStatus());
  push.reset();
  cluster.reset();
  StopPs();
}

// Whatever is waited for: the coordinator, a connection, a name.
TEST_F(WaitTest, ConnectingCanBeGivenUp) {
  Cluster::Options options = OptionsFor(kReader);
  options.cluster = *ClusterSpec::FromHosts("127.0.0.1:1", "127.0.0.1:2", "");
  options.give_up = [] { return true; };
  EXPECT_TRUE(absl::IsCancelled(Connect(options, timing).status()));
  options.task = {kWorkerJob, 0};
  EXPECT_TRUE(absl::IsCancelled(Connect(options, timing).status()));
}

}  // namespace
}  // namespace holdfast::client
