// SPDX-License-Identifier: Apache-2.0
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

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::SizeIs;

class PinTest : public ClientTest {
 protected:
  void SetUp() override {
    for (const uint32_t i : {0, 1}) {
      ps(i).pin.Do([this, i](int call, const auto&, auto* response) {
        response->set_version(version);
        response->set_pin(10 * (i + 1) + call);
        return absl::OkStatus();
      });
    }
    cluster_ = ConnectReady(OptionsFor(kReader));
    ASSERT_NE(cluster_, nullptr);
  }
  void TearDown() override { cluster_.reset(); }

  // The first pin that was released at a ps.
  uint64_t FirstUnpinned(uint32_t index) {
    ps(index).unpin.AwaitCalls(1);
    return ps(index).unpin.requests()[0].pin();
  }

  std::unique_ptr<Cluster> cluster_;
};

TEST_F(PinTest, HoldsAndReadsOneVersion) {
  version = 8;
  auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ((*pin)->version(), GlobalStep(8));
  for (const uint32_t i : {0, 1}) {
    ASSERT_THAT(ps(i).pin.requests(), SizeIs(1));
    EXPECT_FALSE(ps(i).pin.requests()[0].has_version());
    EXPECT_EQ(ps(i).pin.requests()[0].hold_ms(), 7000);
  }

  // Training continues; the pinned version is requested by number.
  version = 9;
  for (const uint32_t i : {0, 1}) {
    ps(i).pull.Do([](int, const auto& request, auto* response) {
      EXPECT_EQ(request.which_case(), proto::PullRequest::kExactVersion);
      return AnswerPull(request, request.exact_version(), response);
    });
  }
  Parameters values;
  ASSERT_TRUE((*pin)->StartRead(&values)->Await(Late()).ok());
  EXPECT_EQ(values.version, GlobalStep(8));
  EXPECT_THAT(values.All(), ElementsAreArray(ValuesAt(8)));

  EXPECT_EQ(ps(0).unpin.num_calls(), 0);
  pin->reset();
  EXPECT_EQ(FirstUnpinned(0), 10);
  EXPECT_EQ(FirstUnpinned(1), 20);
}

TEST_F(PinTest, AnotherVersionThanThePinnedOneIsAnError) {
  auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  ps(1).pull.Do([](int, const auto& request, auto* response) {
    return AnswerPull(request, 5, response);
  });
  Parameters values;
  EXPECT_EQ((*pin)->StartRead(&values)->Await(Late()),
            absl::InternalError(absl::StrCat(
                PsName(1), ": version 0 was requested, but 5 arrived")));
}

TEST_F(PinTest, TheLaggardPinsAgainWhenItHasCaughtUp) {
  version = 8;
  ps(1).pin.Do([](int call, const auto&, auto* response) {
    response->set_version(call == 0 ? 7 : 8);
    response->set_pin(20 + call);
    return absl::OkStatus();
  });
  ps(1).pull.Do([](int call, const auto& request, auto* response) {
    EXPECT_EQ(request.min_version(), 8);
    EXPECT_THAT(request.ranges(), SizeIs(0));
    response->set_version(call == 0 ? 7 : 8);
    return absl::OkStatus();
  });
  auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ((*pin)->version(), GlobalStep(8));
  EXPECT_EQ(ps(0).pin.num_calls(), 1);
  EXPECT_EQ(ps(0).pull.num_calls(), 0);
  EXPECT_EQ(ps(1).pin.num_calls(), 2);
  EXPECT_EQ(ps(1).pull.num_calls(), 2);
  EXPECT_EQ(FirstUnpinned(1), 20);
  pin->reset();
  ps(1).unpin.AwaitCalls(2);
  EXPECT_EQ(ps(1).unpin.requests()[1].pin(), 21);
}

TEST_F(PinTest, OfAnAsynchronousJobEachShardHoldsItsOwn) {
  asynchronous = true;
  cluster_ = ConnectReady(OptionsFor(kReader));
  version = 8;
  ps(1).pin.Do([](int, const auto&, auto* response) {
    response->set_version(7);
    response->set_pin(20);
    return absl::OkStatus();
  });
  auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ((*pin)->version(), GlobalStep(7));

  version = 9;
  for (const uint32_t i : {0, 1}) {
    ps(i).pull.Do([i](int, const auto& request, auto* response) {
      EXPECT_EQ(request.exact_version(), i == 0 ? 8 : 7);
      return AnswerPull(request, request.exact_version(), response);
    });
  }
  Parameters values;
  ASSERT_TRUE((*pin)->StartRead(&values)->Await(Late()).ok());
  EXPECT_EQ(values.version, GlobalStep(7));
  EXPECT_THAT(values.versions, ElementsAre(GlobalStep(8), GlobalStep(7)));
  EXPECT_EQ(values.Of(0)[5], Value(0, 5, 8));
  EXPECT_EQ(values.Of(1)[7], Value(1, 7, 7));

  EXPECT_EQ(ps(0).unpin.num_calls() + ps(1).unpin.num_calls(), 0);
  pin->reset();
  EXPECT_EQ(FirstUnpinned(0), 10);
  EXPECT_EQ(FirstUnpinned(1), 20);
}

TEST_F(PinTest, WhoHoldsNothingOfAPushIsAtEveryVersion_P4) {
  asynchronous = true;
  trains_on_ps_0 = true;
  cluster_ = ConnectReady(OptionsFor(kReader));
  version = 8;
  ps(1).pin.Do([](int, const auto&, auto* response) {
    response->set_version(0);
    response->set_pin(20);
    return absl::OkStatus();
  });
  auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ((*pin)->version(), GlobalStep(8));

  ps(1).pull.Do([](int, const auto& request, auto* response) {
    EXPECT_EQ(request.exact_version(), 0);
    return AnswerPull(request, 0, response);
  });
  Parameters values;
  ASSERT_TRUE((*pin)->StartRead(&values)->Await(Late()).ok());
  EXPECT_TRUE(values.AllAt(GlobalStep(8)));
}

TEST_F(PinTest, ADeadlineNamesTheShardThatIsRead) {
  auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  ps(1).pull.Do([this](int, const auto&, auto*) { return ps(1).Mute(); });
  Parameters values;
  EXPECT_EQ((*pin)->StartRead(&values)->Await(After(300)),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for the pinned version at ", PsName(1))));
}

// While the shard with the lower version caught up, it went past the other
// shard.
TEST_F(PinTest, TheOtherPinsAgainWhenItWasOvertaken) {
  ps(0).pin.Do([](int call, const auto&, auto* response) {
    response->set_version(call == 0 ? 8 : 9);
    response->set_pin(10 + call);
    return absl::OkStatus();
  });
  ps(1).pin.Do([](int call, const auto&, auto* response) {
    response->set_version(call == 0 ? 7 : 9);
    response->set_pin(20 + call);
    return absl::OkStatus();
  });
  auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ((*pin)->version(), GlobalStep(9));
  EXPECT_EQ(FirstUnpinned(0), 10);
  EXPECT_EQ(FirstUnpinned(1), 20);
}

TEST_F(PinTest, WaitsForRoomToHoldAVersion) {
  ps(1).pin.Do([this](int call, const auto&, auto* response) {
    if (call <= 2) return absl::ResourceExhaustedError("no room");
    response->set_version(version);
    response->set_pin(20);
    return absl::OkStatus();
  });
  version = 4;
  const auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ((*pin)->version(), GlobalStep(4));
  EXPECT_GE(ps(1).pin.num_calls(), 3);

  ps(1).pin.Do([](int, const auto&, auto*) {
    return absl::ResourceExhaustedError("no room");
  });
  EXPECT_EQ(cluster_->PinVersion(absl::Seconds(7), After(300)).status(),
            absl::DeadlineExceededError(
                absl::StrCat("timed out waiting for a pinned version at ",
                             PsName(1), ": no room")));
}

TEST_F(PinTest, LetsGoOfWhatItHasWhenItFails) {
  // ps 1 fails when ps 0 is no longer waited for.
  absl::Notification only_ps1;
  const std::string what = absl::StrCat("a pinned version at ", PsName(1));
  Cluster::Options options = OptionsFor(kReader);
  options.on_waiting = [&](const std::string& text) {
    if (text == what && !only_ps1.HasBeenNotified()) only_ps1.Notify();
  };
  cluster_ = ConnectReady(options);
  ps(1).pin.Do([&](int, const auto&, auto*) {
    only_ps1.WaitForNotification();
    return absl::InternalError("it is broken");
  });
  EXPECT_EQ(cluster_->PinVersion(absl::Seconds(7), Late()).status(),
            absl::InternalError(absl::StrCat(PsName(1), ": it is broken")));
  EXPECT_EQ(FirstUnpinned(0), 10);
}

TEST_F(PinTest, ADeadlineNamesTheShard) {
  ps(1).pin.Do([this](int, const auto&, auto*) { return ps(1).Mute(); });
  EXPECT_EQ(cluster_->PinVersion(absl::Seconds(7), After(300)).status(),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for a pinned version at ", PsName(1))));
  // Pins on other shards are released.
  EXPECT_EQ(FirstUnpinned(0), 10);
}

TEST_F(PinTest, ADeadlineNamesTheLaggard) {
  version = 8;
  ps(1).pin.Do([](int, const auto&, auto* response) {
    response->set_version(7);
    return absl::OkStatus();
  });
  ps(1).pull.Do([this](int, const auto&, auto*) { return ps(1).Mute(); });
  EXPECT_EQ(cluster_->PinVersion(absl::Seconds(7), After(300)).status(),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for version 8 at ", PsName(1))));
}

TEST_F(PinTest, RefusesATimeThatCannotBe) {
  for (const absl::Duration hold : {absl::ZeroDuration(), -absl::Seconds(1),
                                    absl::Hours(2), absl::InfiniteDuration()}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(cluster_->PinVersion(hold, Late()).status()));
  }
  EXPECT_EQ(ps(0).pin.num_calls(), 0);
}

}  // namespace
}  // namespace holdfast::client
