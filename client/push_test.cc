// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/client_test_base.h"
#include "client/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// The number of parts in flight to one ps at a time.
constexpr int kAtATime = 4;

// A tensor in a part: variable, begin, values.
using Tensor = std::tuple<std::string, uint64_t, std::vector<float>>;

std::vector<Tensor> TensorsOf(const proto::PushRequest& request) {
  std::vector<Tensor> tensors;
  for (const proto::TensorPart& part : request.tensors()) {
    EXPECT_EQ(part.dtype(), proto::FLOAT32);
    std::vector<float> values(part.data().size() / sizeof(float));
    std::memcpy(values.data(), part.data().data(), part.data().size());
    tensors.emplace_back(part.variable(), part.begin(), std::move(values));
  }
  return tensors;
}

class PushTest : public ClientTest {
 protected:
  void ConnectWithParts(int64_t part_bytes) {
    Cluster::Options options = OptionsFor(kWorker);
    options.part_bytes = part_bytes;
    cluster_ = ConnectReady(options);
    ASSERT_NE(cluster_, nullptr);
  }

  // Hands in a_ and b_.
  void AddAll(Cluster::Push* push) {
    absl::Status status = push->Add(1, b_);
    EXPECT_TRUE(status.ok()) << status;
    status = push->Add(0, a_);
    EXPECT_TRUE(status.ok()) << status;
  }

  const std::vector<float> a_ = {1, 2, 3, 4, 5, 6};
  // Contributes for seat 1, and returns the verdict.
  static proto::Verdict Contribute(Cluster::Push* push, uint64_t examples) {
    EXPECT_EQ(push->Contribute({1, examples}), absl::OkStatus());
    const auto outcome = push->Await(Late());
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? outcome->verdict : proto::VERDICT_UNSPECIFIED;
  }

  const std::vector<float> b_ = {10, 11, 12, 13, 14, 15, 16, 17};
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(PushTest, SendsEachShardItsParts) {
  ConnectWithParts(16);
  auto push = cluster_->StartPush(GlobalStep(7));
  EXPECT_EQ(push->sequence(), PushSequence(1));
  AddAll(push.get());
  EXPECT_EQ(push->AwaitHeld(Late()), absl::OkStatus());

  std::vector<proto::PushRequest> parts = ps(0).push.requests();
  ASSERT_THAT(parts, SizeIs(4));
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.part() < b.part(); });
  for (uint32_t part = 0; part < parts.size(); ++part) {
    EXPECT_EQ(parts[part].sender().task().job(), "worker");
    EXPECT_EQ(parts[part].sender().incarnation(), kIncarnation);
    EXPECT_EQ(parts[part].sender().generation(), kGeneration);
    EXPECT_EQ(parts[part].sequence(), 1);
    EXPECT_EQ(parts[part].step(), 7);
    EXPECT_EQ(parts[part].part(), part);
    EXPECT_EQ(parts[part].num_parts(), 4);
    EXPECT_EQ(parts[part].acked_through(), 0);
  }
  EXPECT_THAT(TensorsOf(parts[0]),
              ElementsAre(Tensor("b", 0, {10, 11, 12, 13})));
  EXPECT_THAT(TensorsOf(parts[1]), ElementsAre(Tensor("b", 4, {14})));
  EXPECT_THAT(TensorsOf(parts[2]), ElementsAre(Tensor("a", 0, {1, 2, 3, 4})));
  EXPECT_THAT(TensorsOf(parts[3]), ElementsAre(Tensor("a", 4, {5, 6})));
  // The shape is that of the whole variable.
  EXPECT_THAT(parts[3].tensors(0).shape(), ElementsAre(2, 3));

  ASSERT_THAT(ps(1).push.requests(), SizeIs(1));
  const proto::PushRequest only = ps(1).push.requests()[0];
  EXPECT_EQ(only.num_parts(), 1);
  EXPECT_THAT(TensorsOf(only), ElementsAre(Tensor("b", 5, {15, 16, 17})));

  EXPECT_EQ(cluster_->StartPush(GlobalStep(7))->sequence(), PushSequence(2));
  EXPECT_EQ(cluster_->StartPush(GlobalStep(7))->sequence(), PushSequence(3));
}

TEST_F(PushTest, SmallVariablesTravelTogether) {
  ConnectWithParts(1 << 20);
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  ASSERT_TRUE(push->AwaitHeld(Late()).ok());
  ASSERT_THAT(ps(0).push.requests(), SizeIs(1));
  EXPECT_THAT(TensorsOf(ps(0).push.requests()[0]),
              ElementsAre(Tensor("b", 0, {10, 11, 12, 13, 14}),
                          Tensor("a", 0, {1, 2, 3, 4, 5, 6})));
}

TEST_F(PushTest, APartLeavesWhenItsVariablesAreThere) {
  ConnectWithParts(16);
  auto push = cluster_->StartPush(GlobalStep(0));
  ASSERT_TRUE(push->Add(1, b_).ok());
  ps(0).push.AwaitCalls(2);
  for (const proto::PushRequest& request : ps(0).push.requests()) {
    EXPECT_EQ(request.tensors(0).variable(), "b");
  }
  ASSERT_TRUE(push->Add(0, a_).ok());
  EXPECT_TRUE(push->AwaitHeld(Late()).ok());
}

TEST_F(PushTest, SendsAgainWhatWasNotAnswered) {
  // ps 0 does not answer the first time, so the attempt times out. ps 1 cannot
  // be reached the first two times.
  ps(0).push.Do([&](int call, const auto&, auto*) {
    return call == 0 ? ps(0).Mute() : absl::OkStatus();
  });
  ps(1).push.Do([](int call, const auto&, auto*) {
    return call < 2 ? absl::UnavailableError("lost") : absl::OkStatus();
  });
  timing.tensors_attempt = absl::Milliseconds(100);
  ConnectWithParts(1 << 20);
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  EXPECT_EQ(push->AwaitHeld(Late()), absl::OkStatus());
  EXPECT_GE(ps(0).push.num_calls(), 2);
  for (const uint32_t i : {0, 1}) {
    const std::vector<proto::PushRequest> requests = ps(i).push.requests();
    for (const proto::PushRequest& request : requests) {
      EXPECT_EQ(request.SerializeAsString(), requests[0].SerializeAsString());
    }
  }
}

// The push is offered all the same: the coordinator gives the verdict.
TEST_F(PushTest, AVerdictOfAShardEndsTheWait) {
  ps(1).push.Do([](int call, const auto&, auto* response) {
    if (call == 0) response->set_verdict(proto::STALE);
    return absl::OkStatus();
  });
  ConnectWithParts(1 << 20);
  auto first = cluster_->StartPush(GlobalStep(0));
  AddAll(first.get());
  EXPECT_EQ(first->AwaitHeld(Late()), absl::OkStatus());
  EXPECT_EQ(ps(0).contribute.num_calls(), 0);

  // The verdict is known, so the cluster may forget it.
  auto push = cluster_->StartPush(GlobalStep(1));
  AddAll(push.get());
  ASSERT_TRUE(push->AwaitHeld(Late()).ok());
  EXPECT_EQ(ps(1).push.requests()[1].sequence(), 2);
  EXPECT_EQ(ps(1).push.requests()[1].acked_through(), 1);

  ps(0).contribute.Do([](int, const auto&, auto* response) {
    response->set_verdict(proto::DUPLICATE);
    return absl::OkStatus();
  });
  EXPECT_EQ(Contribute(first.get(), 8), proto::DUPLICATE);
}

TEST_F(PushTest, AVerdictBeforeAllWasHandedInEndsItToo) {
  ps(1).push.Do([](int, const auto&, auto* response) {
    response->set_verdict(proto::STALE);
    return absl::OkStatus();
  });
  ConnectWithParts(8);
  auto push = cluster_->StartPush(GlobalStep(0));
  ASSERT_TRUE(push->Add(1, b_).ok());
  // Contributes pushes until the verdict on `push` is known, which
  // acked_through shows.
  do {
    EXPECT_EQ(Contribute(cluster_->StartPush(GlobalStep(0)).get(), 0),
              proto::ACCEPTED);
  } while (ps(0).contribute.requests().back().acked_through() == 0);

  EXPECT_TRUE(push->Add(0, a_).ok());
  EXPECT_EQ(push->AwaitHeld(Late()), absl::OkStatus());
  for (const proto::PushRequest& request : ps(0).push.requests()) {
    EXPECT_EQ(request.tensors(0).variable(), "b");
  }
}

TEST_F(PushTest, NoRoomIsNoError) {
  ps(1).push.Do([](int call, const auto&, auto*) {
    return call < 3 ? absl::ResourceExhaustedError("2 pushes are here")
                    : absl::OkStatus();
  });
  ConnectWithParts(1 << 20);
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  EXPECT_EQ(push->AwaitHeld(Late()), absl::OkStatus());
  EXPECT_EQ(ps(1).push.num_calls(), 4);
  EXPECT_THAT(TensorsOf(ps(1).push.requests().back()),
              ElementsAre(Tensor("b", 5, {15, 16, 17})));
}

TEST_F(PushTest, OnePartAsksWhetherThereIsRoom) {
  // The first ones are refused together, then one twice. When it is kept, the
  // others follow concurrently.
  constexpr int kRefused = kAtATime + 2;
  ps(0).push.Do([&](int call, const auto&, auto*) {
    if (call < kAtATime) ps(0).push.AwaitCalls(kAtATime);
    if (call < kRefused) {
      return absl::ResourceExhaustedError("2 pushes are here");
    }
    if (call == kRefused + 1) ps(0).push.AwaitCalls(kRefused + 3);
    return absl::OkStatus();
  });
  ConnectWithParts(4);  // 11 parts for ps 0
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  ASSERT_TRUE(push->AwaitHeld(Late()).ok());
  const std::vector<proto::PushRequest> requests = ps(0).push.requests();
  ASSERT_THAT(requests, SizeIs(kRefused + 11));
  EXPECT_EQ(requests[kRefused - 2].part(), requests[kRefused].part());
  EXPECT_EQ(requests[kRefused - 1].part(), requests[kRefused].part());
  std::vector<uint32_t> kept;
  for (size_t i = kRefused; i < requests.size(); ++i) {
    kept.push_back(requests[i].part());
  }
  EXPECT_THAT(kept, UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST_F(PushTest, ADeadlineNamesThePsWithoutRoom) {
  ps(1).push.Do([](int, const auto&, auto*) {
    return absl::ResourceExhaustedError("2 pushes are here");
  });
  ConnectWithParts(1 << 20);
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  EXPECT_FALSE(push->WaitUntilHeld(absl::InfinitePast()));
  ps(0).push.AwaitCalls(1);
  ps(1).push.AwaitCalls(2);
  EXPECT_EQ(push->AwaitHeld(After(300)),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for the acknowledgment of push 1 by ",
                PsName(1), "; ", PsName(1), ": 2 pushes are here")));
}

// The coordinator has to hear of the push before it is forgotten, so that the
// ticket returns.
TEST_F(PushTest, WithATicketOnlyAContributionSettlesIt) {
  ps(1).push.Do([&](int call, const auto&, auto* response) {
    ps(0).push.AwaitCalls(1);
    if (call == 0) response->set_verdict(proto::STALE);
    return absl::OkStatus();
  });
  ConnectWithParts(1 << 20);
  const Ticket ticket = Take(cluster_.get());
  Parameters at;
  at.version = GlobalStep(4);
  auto push = cluster_->StartPush(ticket, at);
  EXPECT_EQ(push->sequence(), ticket.sequence);
  AddAll(push.get());
  EXPECT_EQ(push->AwaitHeld(Late()), absl::OkStatus());
  EXPECT_EQ(ps(0).push.requests()[0].sequence(), 1);
  EXPECT_EQ(ps(0).push.requests()[0].step(), 4);
  EXPECT_EQ(ps(1).push.requests()[0].step(), 4);

  Take(cluster_.get());
  EXPECT_EQ(ps(0).take_ticket.requests().back().acked_through(), 0);
  EXPECT_EQ(Contribute(push.get(), 0), proto::ACCEPTED);
  Take(cluster_.get());
  EXPECT_EQ(ps(0).take_ticket.requests().back().acked_through(), 1);
  // Spent tickets of a synchronous job are not reported.
  EXPECT_THAT(ps(0).take_ticket.requests().back().spent(), SizeIs(0));
}

TEST_F(PushTest, WithATicketItIsSettledToWhenItsStepIsClosed) {
  ConnectWithParts(1 << 20);
  const Ticket ticket = Take(cluster_.get());
  Parameters at;
  at.version = GlobalStep(4);
  cluster_->StartPush(ticket, at).reset();
  ASSERT_TRUE(cluster_->StartPull(GlobalStep(4), &at)->Await(Late()).ok());
  Take(cluster_.get());
  EXPECT_EQ(ps(0).take_ticket.requests().back().acked_through(), 0);
  ASSERT_TRUE(cluster_->StartPull(GlobalStep(5), &at)->Await(Late()).ok());
  Take(cluster_.get());
  EXPECT_EQ(ps(0).take_ticket.requests().back().acked_through(), 1);
}

TEST_F(PushTest, APermanentErrorComesFromAwaitAndAdd) {
  ps(1).push.Do([](int, const auto&, auto*) {
    return absl::InvalidArgumentError("variable \"b\": declared otherwise");
  });
  ConnectWithParts(1 << 20);
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat(PsName(1), ": variable \"b\": declared otherwise"));
  auto push = cluster_->StartPush(GlobalStep(0));
  ASSERT_TRUE(push->Add(0, a_).ok());
  ASSERT_TRUE(push->Add(1, b_).ok());
  EXPECT_EQ(push->AwaitHeld(Late()), error);
  EXPECT_EQ(push->AwaitHeld(Late()), error);
  EXPECT_EQ(ps(1).push.num_calls(), 1);
}

TEST_F(PushTest, WhatCannotBeHandedInIsRefused) {
  ConnectWithParts(1 << 20);
  auto push = cluster_->StartPush(GlobalStep(0));
  EXPECT_EQ(push->Add(3, a_),
            absl::InvalidArgumentError("there is no variable 3, only 3"));
  EXPECT_EQ(push->Add(0, b_), absl::InvalidArgumentError(
                                  "variable \"a\": gradient has 8 elements, "
                                  "the variable 6"));
  EXPECT_EQ(push->Add(2, {}),
            absl::InvalidArgumentError("variable \"c\" is not trainable"));
  EXPECT_TRUE(push->Add(0, a_).ok());
  EXPECT_EQ(push->Add(0, a_),
            absl::InvalidArgumentError(
                "the gradient of variable \"a\" was handed in before"));
  EXPECT_EQ(push->AwaitHeld(Late()),
            absl::FailedPreconditionError("the gradients of 1 of 2 trainable "
                                          "variables were not handed in"));
  EXPECT_EQ(push->Add(1, b_), push->AwaitHeld(Late()));
}

TEST_F(PushTest, ADeadlineNamesThePsThatIsMute) {
  ps(1).push.Do([&](int, const auto&, auto*) { return ps(1).Mute(); });
  ConnectWithParts(1 << 20);
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  EXPECT_EQ(push->AwaitHeld(After(300)),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for the acknowledgment of push 1 by ",
                PsName(1))));
}

TEST_F(PushTest, ADeadlineNamesThePsThatIsNotThere) {
  ConnectWithParts(1 << 20);
  ps(1).Stop();
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  const absl::Status status = push->AwaitHeld(After(300));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("push 1 by ", PsName(1), ": ")));
}

TEST_F(PushTest, ReachesAPsThatIsBack) {
  const int port = ps(1).port();
  std::unique_ptr<FakePs> back;
  Cluster::Options options = OptionsFor(kWorker);
  options.on_waiting = [&](const std::string& what) {
    EXPECT_THAT(what, HasSubstr(PsName(1)));
    if (back == nullptr) back = std::make_unique<FakePs>(port);
  };
  cluster_ = ConnectReady(options);
  ps(1).Stop();
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  EXPECT_EQ(push->AwaitHeld(Late()), absl::OkStatus());
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->push.num_calls(), 1);
  push.reset();
  cluster_.reset();
}

TEST_F(PushTest, KeepsABoundedNumberOfPartsInFlight) {
  absl::Mutex mutex;
  int here = 0;
  int most = 0;
  absl::Notification all_here;
  ps(0).push.Do([&](int, const auto&, auto*) {
    {
      absl::MutexLock lock(&mutex);
      most = std::max(most, ++here);
      if (here == kAtATime && !all_here.HasBeenNotified()) all_here.Notify();
    }
    all_here.WaitForNotification();
    absl::MutexLock lock(&mutex);
    --here;
    return absl::OkStatus();
  });
  ConnectWithParts(4);  // 11 parts for ps 0
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  ASSERT_TRUE(push->AwaitHeld(Late()).ok());
  EXPECT_EQ(ps(0).push.num_calls(), 11);
  {
    absl::MutexLock lock(&mutex);
    EXPECT_EQ(most, kAtATime);
  }
  push.reset();
  cluster_.reset();
  StopPs();
}

TEST_F(PushTest, StartedAgainItSendsOtherGradientsInMoreParts) {
  ConnectWithParts(16);
  auto push = cluster_->StartPush(GlobalStep(0));
  {
    std::vector<float> b = b_;
    ASSERT_TRUE(push->Add(1, b).ok());
    ps(0).push.AwaitCalls(2);
    push = push->StartAgain();
    std::fill(b.begin(), b.end(), -1.0f);
  }
  EXPECT_EQ(push->sequence(), PushSequence(1));
  const std::vector<float> a(6, 7.0f);
  const std::vector<float> b(8, 8.0f);
  ASSERT_TRUE(push->Add(0, a).ok());
  ASSERT_TRUE(push->Add(1, b).ok());
  EXPECT_EQ(Contribute(push.get(), 8), proto::ACCEPTED);
  EXPECT_EQ(ps(0).contribute.requests()[0].sequence(), 1);
  std::map<uint32_t, std::vector<Tensor>> parts;
  for (const proto::PushRequest& request : ps(0).push.requests()) {
    EXPECT_EQ(request.sequence(), 1);
    if (request.num_parts() == 5) parts[request.part()] = TensorsOf(request);
  }
  ASSERT_THAT(parts, SizeIs(5));
  EXPECT_THAT(parts[0], ElementsAre(Tensor("b", 0, {8, 8, 8, 8})));
  EXPECT_THAT(parts[3], ElementsAre(Tensor("a", 4, {7, 7})));
  EXPECT_THAT(parts[4], SizeIs(0));
  // Nothing was sent to ps 1 before.
  ASSERT_THAT(ps(1).push.requests(), SizeIs(1));
  EXPECT_EQ(ps(1).push.requests()[0].num_parts(), 1);
  EXPECT_EQ(push->Await(Late()).status(), absl::OkStatus());
}

TEST_F(PushTest, MayNotStartAgainOnceItMayBeComplete) {
  ConnectWithParts(16);
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  ASSERT_TRUE(push->AwaitHeld(Late()).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(push->StartAgain()->Add(0, a_)));
  EXPECT_EQ(Contribute(push.get(), 8), proto::ACCEPTED);
}

TEST_F(PushTest, IsDestroyedWithCallsInFlight) {
  absl::Notification destroyed;
  ps(0).push.Do([&](int, const auto&, auto*) {
    destroyed.WaitForNotification();
    return absl::OkStatus();
  });
  ConnectWithParts(4);
  {
    std::vector<float> a = a_;
    std::vector<float> b = b_;
    auto push = cluster_->StartPush(GlobalStep(0));
    ASSERT_TRUE(push->Add(1, b).ok());
    ASSERT_TRUE(push->Add(0, a).ok());
    ps(0).push.AwaitCalls(kAtATime);
  }
  // From here on nothing may read the gradients: some parts were not made.
  destroyed.Notify();
  cluster_.reset();
  StopPs();
  EXPECT_EQ(ps(0).push.num_calls(), kAtATime);
}

}  // namespace
}  // namespace holdfast::client
