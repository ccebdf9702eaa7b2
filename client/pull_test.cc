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
using ::testing::HasSubstr;
using ::testing::SizeIs;

class PullTest : public ClientTest {
 protected:
  void ConnectWithParts(int64_t part_bytes) {
    Cluster::Options options = OptionsFor(kWorker);
    options.part_bytes = part_bytes;
    cluster_ = ConnectReady(options);
    ASSERT_NE(cluster_, nullptr);
  }

  absl::Status Pull(uint64_t min_version, absl::Time deadline = Late()) {
    return cluster_->StartPull(GlobalStep(min_version), &values_)
        ->Await(deadline);
  }

  // Whether all values are those of `version`.
  void ExpectValuesAt(uint64_t version) {
    EXPECT_EQ(values_.version, GlobalStep(version));
    EXPECT_THAT(values_.versions,
                ElementsAre(GlobalStep(version), GlobalStep(version)));
    EXPECT_THAT(values_.All(), ElementsAreArray(ValuesAt(version)));
    EXPECT_EQ(values_.loss_scale, LossScaleAt(version));
  }

  std::unique_ptr<Cluster> cluster_;
  Parameters values_;
};

TEST_F(PullTest, PutsEveryValueInItsPlace) {
  for (const int64_t part_bytes : {4, 8, 16, 1 << 20}) {
    version += 3;
    ConnectWithParts(part_bytes);
    EXPECT_TRUE(Pull(version).ok());
    ExpectValuesAt(version);
  }
  const proto::PullRequest request = ps(1).pull.requests().back();
  EXPECT_EQ(request.min_version(), 12);
  EXPECT_EQ(request.wait_ms(), 100);
  EXPECT_EQ(request.sender().incarnation(), kIncarnation);
  ASSERT_THAT(request.ranges(), SizeIs(2));
  EXPECT_EQ(request.ranges(0).variable(), "b");
  EXPECT_EQ(request.ranges(0).begin(), 5);
  EXPECT_EQ(request.ranges(0).size(), 3);
  EXPECT_EQ(request.ranges(1).variable(), "c");
}

TEST_F(PullTest, ResizesWhatItIsGiven) {
  ConnectWithParts(1 << 20);
  values_ = Parameters(GlobalStep(9), {{}, std::vector<float>(100), {}, {1}});
  EXPECT_TRUE(Pull(0).ok());
  ExpectValuesAt(0);
}

TEST_F(PullTest, WhereTheJobHasNoLossScaleItIsOne) {
  for (const uint32_t i : {0, 1}) {
    ps(i).pull.Do([](int, const auto& request, auto* response) {
      const absl::Status status = AnswerPull(request, 3, response);
      response->clear_loss_scale();
      return status;
    });
  }
  ConnectWithParts(1 << 20);
  values_.loss_scale = 8;
  EXPECT_TRUE(Pull(3).ok());
  EXPECT_EQ(values_.loss_scale, 1);
}

TEST_F(PullTest, AsksAgainUntilTheVersionIsThere) {
  ps(1).pull.Do([&](int call, const auto& request, auto* response) {
    if (call == 0) return absl::UnavailableError("lost");
    if (call == 1) {
      response->set_version(11);  // parked until it timed out
      return absl::OkStatus();
    }
    return AnswerPull(request, 12, response);
  });
  ConnectWithParts(1 << 20);
  EXPECT_TRUE(Pull(12).ok());
  ExpectValuesAt(12);
  EXPECT_EQ(ps(1).pull.num_calls(), 3);
}

TEST_F(PullTest, PullsTheLaggardAgain_R7) {
  ps(0).pull.Do([&](int, const auto& request, auto* response) {
    ps(1).pull.AwaitCalls(1);
    return AnswerPull(request, 6, response);
  });
  ps(1).pull.Do([&](int call, const auto& request, auto* response) {
    EXPECT_EQ(request.min_version(), call == 0 ? 5 : 6);
    return AnswerPull(request, call == 0 ? 5 : 6, response);
  });
  ConnectWithParts(1 << 20);
  EXPECT_TRUE(Pull(5).ok());
  ExpectValuesAt(6);
  EXPECT_EQ(ps(0).pull.num_calls(), 1);
  EXPECT_EQ(ps(1).pull.num_calls(), 2);
}

// [R7], with a step committed between the answers of one shard, several times.
TEST_F(PullTest, PullsLaggingPartsAgain) {
  ps(0).pull.Do([&](int call, const auto& request, auto* response) {
    const uint64_t newest = std::min(call, 9) / 3;
    return AnswerPull(request, std::max(newest, request.min_version()),
                      response);
  });
  ConnectWithParts(4);
  EXPECT_TRUE(Pull(0).ok());
  ExpectValuesAt(3);
}

// Shards of an asynchronous job apply pushes in different orders.
TEST_F(PullTest, AnAsynchronousJobHasTheNewestOfEachShard) {
  asynchronous = true;
  // 14 parts, answered in any order.
  ps(0).pull.Do([&](int call, const auto& request, auto* response) {
    EXPECT_EQ(request.min_version(), 0);
    return AnswerPull(request, call == 3 ? 5 : 6, response);
  });
  ps(1).pull.Do([&](int, const auto& request, auto* response) {
    return AnswerPull(request, 9, response);
  });
  ConnectWithParts(4);
  EXPECT_TRUE(Pull(0).ok());
  EXPECT_EQ(values_.version, GlobalStep(5));
  EXPECT_THAT(values_.versions, ElementsAre(GlobalStep(5), GlobalStep(9)));
  // "a" and the first of "b", and the rest, once each.
  EXPECT_EQ(ps(0).pull.num_calls(), 11);
  EXPECT_EQ(ps(1).pull.num_calls(), 4);
  EXPECT_EQ(values_.Of(1)[7], Value(1, 7, 9));
  int of_5 = 0;
  for (size_t v = 0; v < 2; ++v) {
    for (uint64_t e = 0; e < values_.Of(v).size(); ++e) {
      if (values_.Of(v)[e] == Value(v, e, 5)) ++of_5;
    }
  }
  EXPECT_EQ(of_5, 1);

  // Values pulled before are not left over.
  ps(0).pull.Do([&](int, const auto& request, auto* response) {
    return AnswerPull(request, 10, response);
  });
  EXPECT_TRUE(Pull(0).ok());
  EXPECT_EQ(values_.version, GlobalStep(9));
  EXPECT_THAT(values_.versions, ElementsAre(GlobalStep(10), GlobalStep(9)));
}

// ps 1 has nothing to train, and stays at its first version.
TEST_F(PullTest, WhoHoldsNothingOfAPushIsAtEveryVersion_P4) {
  asynchronous = true;
  trains_on_ps_0 = true;
  ps(0).pull.Do([&](int, const auto& request, auto* response) {
    return AnswerPull(request, 6, response);
  });
  ps(1).pull.Do([&](int, const auto& request, auto* response) {
    return AnswerPull(request, 0, response);
  });
  ConnectWithParts(1 << 20);
  EXPECT_TRUE(Pull(0).ok());
  EXPECT_EQ(values_.version, GlobalStep(6));
  EXPECT_THAT(values_.versions, ElementsAre(GlobalStep(6), GlobalStep(0)));
  EXPECT_TRUE(values_.AllAt(GlobalStep(6)));
  EXPECT_FALSE(values_.AllAt(GlobalStep(5)));
}

TEST_F(PullTest, ADeadlineNamesTheShardOfAnAsynchronousJob) {
  asynchronous = true;
  ps(1).pull.Do([&](int, const auto&, auto*) { return ps(1).Mute(); });
  ConnectWithParts(1 << 20);
  EXPECT_EQ(Pull(0, After(300)),
            absl::DeadlineExceededError(absl::StrCat(
                "timed out waiting for the newest version at ", PsName(1))));
}

TEST_F(PullTest, AMalformedAnswerIsAnErrorThatNamesThePs) {
  using Response = proto::PullResponse;
  const std::vector<std::pair<void (*)(Response*), std::string>> cases = {
      {[](Response* r) { r->mutable_tensors()->RemoveLast(); },
       "2 ranges were requested, but 1 tensors arrived"},
      {[](Response* r) { r->add_tensors(); },
       "2 ranges were requested, but 3 tensors arrived"},
      {[](Response* r) { r->mutable_tensors(0)->set_variable("a"); },
       "elements 5 to 8 of variable \"b\" were requested, but arrived as "
       "elements of \"a\""},
      {[](Response* r) { r->mutable_tensors(0)->set_begin(4); },
       "beginning at 4"},
      {[](Response* r) { r->mutable_tensors(0)->set_shape(0, 9); },
       "with shape [9], declared [8]"},
      {[](Response* r) { r->mutable_tensors(0)->clear_dtype(); }, "as dtype 0"},
      {[](Response* r) { r->mutable_tensors(0)->mutable_data()->pop_back(); },
       "in 11 bytes"},
      {[](Response* r) {
         r->mutable_tensors(0)->mutable_data()->append(1 << 20, 'x');
       },
       "in 1048588 bytes"},
      {[](Response* r) { r->mutable_tensors(0)->clear_data(); }, "in 0 bytes"},
  };
  ps(1).pull.Do([&](int call, const auto& request, auto* response) {
    const absl::Status status = AnswerPull(request, 0, response);
    const auto spoil = cases[call].first;
    spoil(response);
    return status;
  });
  ConnectWithParts(1 << 20);
  for (const auto& [spoil, what] : cases) {
    const absl::Status status = Pull(0);
    EXPECT_TRUE(absl::IsInternal(status)) << what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(PsName(1)));
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
}

TEST_F(PullTest, APermanentErrorComesAtOnce) {
  ps(1).pull.Do([](int, const auto&, auto*) {
    return absl::NotFoundError("no variable \"b\"");
  });
  ConnectWithParts(1 << 20);
  EXPECT_EQ(Pull(0), absl::NotFoundError(
                         absl::StrCat(PsName(1), ": no variable \"b\"")));
  EXPECT_EQ(ps(1).pull.num_calls(), 1);
}

TEST_F(PullTest, AVersionBeyondTheEndWillNotCome) {
  ps(1).pull.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::DONE);
    response->set_version(10);
    return absl::OkStatus();
  });
  ConnectWithParts(1 << 20);
  EXPECT_EQ(Pull(11),
            absl::FailedPreconditionError(absl::StrCat(
                PsName(1),
                ": the job is done at version 10, version 11 will not come")));
}

TEST_F(PullTest, WhatIsThereAtTheEndCanStillBeRead) {
  ps(1).pull.Do([](int, const auto& request, auto* response) {
    response->mutable_state()->set_phase(proto::DONE);
    return AnswerPull(request, 10, response);
  });
  ConnectWithParts(1 << 20);
  EXPECT_TRUE(Pull(10).ok());
  ExpectValuesAt(10);
}

// A shard of a failed job answers without tensors, whatever its version.
TEST_F(PullTest, AFailedJobHasNoValues) {
  ps(1).pull.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::FAILED);
    response->mutable_state()->set_reason("/job:worker/task:0 was lost");
    response->set_version(100);
    return absl::OkStatus();
  });
  ConnectWithParts(1 << 20);
  EXPECT_EQ(Pull(10), absl::AbortedError("/job:worker/task:0 was lost"));
}

TEST_F(PullTest, ADeadlineNamesTheShardAndTheTaskThatTheStepWaitsFor) {
  ps(1).pull.Do([&](int, const auto&, auto*) { return ps(1).Mute(); });
  absl::Notification asked_twice;
  ps(0).contribute.Do([&](int call, const auto&, auto* response) {
    response->set_global_step(11);
    response->set_waiting_for("/job:worker/task:0");
    if (call == 1) asked_twice.Notify();
    return absl::OkStatus();
  });
  ConnectWithParts(1 << 20);
  auto push = cluster_->StartPush(GlobalStep(11));
  ASSERT_TRUE(push->Contribute({1}).ok());
  asked_twice.WaitForNotification();
  EXPECT_EQ(Pull(12, After(300)),
            absl::DeadlineExceededError(
                absl::StrCat("timed out waiting for version 12 at ", PsName(1),
                             "; step 11 waits for /job:worker/task:0")));
  push.reset();
  cluster_.reset();
  StopPs();
}

TEST_F(PullTest, TellsWhatItWaitsFor) {
  ps(1).pull.Do([&](int, const auto&, auto*) { return ps(1).Mute(); });
  Cluster::Options options = OptionsFor(kReader);
  absl::Notification told;
  std::string first;
  options.on_waiting = [&](const std::string& what) {
    if (told.HasBeenNotified()) return;
    first = what;
    told.Notify();
  };
  cluster_ = ConnectReady(options);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Pull(12, After(300))));
  ASSERT_TRUE(told.HasBeenNotified());
  EXPECT_EQ(first, absl::StrCat("version 12 at ", PsName(1)));
}

TEST_F(PullTest, IsDestroyedWithCallsInFlight) {
  absl::Notification destroyed;
  ps(1).pull.Do([&](int, const auto& request, auto* response) {
    destroyed.WaitForNotification();
    return AnswerPull(request, 0, response);
  });
  ConnectWithParts(1 << 20);
  {
    auto values = std::make_unique<Parameters>();
    auto pull = cluster_->StartPull(GlobalStep(0), values.get());
    ps(1).pull.AwaitCalls(1);
    pull.reset();
  }
  {
    auto values = std::make_unique<Parameters>();
    auto pull = cluster_->StartPull(GlobalStep(0), values.get());
    EXPECT_FALSE(pull->Await(After(50)).ok());
    values.reset();
    destroyed.Notify();
    EXPECT_FALSE(pull->Await(Late()).ok());
  }
  cluster_.reset();
  StopPs();
}

}  // namespace
}  // namespace holdfast::client
