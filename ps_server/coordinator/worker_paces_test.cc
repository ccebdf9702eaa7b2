// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/worker_paces.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WorkerPacesTest : public ::testing::Test {
 protected:
  explicit WorkerPacesTest(uint32_t num_workers = 2)
      : num_workers_(num_workers) {
    for (uint32_t w = 0; w < num_workers; ++w) paces_.OnJoined(w, now_);
  }

  void Pass(double seconds) { now_ += absl::Seconds(seconds); }
  // A step in which worker w offers `seconds[w]` after it was open.
  void Step(const std::vector<double>& seconds) {
    const absl::Time opened = now_;
    paces_.OnStepOpened(step_, opened);
    std::vector<uint32_t> order;
    for (uint32_t w = 0; w < seconds.size(); ++w) order.push_back(w);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return seconds[a] < seconds[b]; });
    for (const uint32_t w : order) {
      now_ = opened + absl::Seconds(seconds[w]);
      paces_.OnOffer(w, step_, true, now_);
    }
    paces_.OnStepClosed();
    step_ = step_.next();
  }
  proto::WorkerPace Pace(uint32_t worker) const {
    proto::WorkerPace pace;
    paces_.AddTo(worker, &pace);
    return pace;
  }
  double SecondsPerPush(uint32_t worker) const {
    return Pace(worker).seconds_per_push();
  }
  // Changes like "1 slow: ..." and "0 not slow".
  std::vector<std::string> Judge(std::vector<WorkerPaces::Sight> live = {}) {
    if (live.empty()) {
      for (uint32_t w = 0; w < num_workers_; ++w) live.push_back({w});
    }
    std::vector<std::string> changes;
    for (const auto& change : paces_.Judge(live, now_)) {
      changes.push_back(
          absl::StrCat(change.replica,
                       change.slow ? " slow: " : " not slow: ", change.text));
    }
    return changes;
  }

  // The changes that two judgments in a row bring.
  std::vector<std::string> JudgeTwice() {
    EXPECT_THAT(Judge(), IsEmpty());
    return Judge();
  }

  const uint32_t num_workers_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  GlobalStep step_;
  WorkerPaces paces_;
};

class ThreeWorkersTest : public WorkerPacesTest {
 protected:
  ThreeWorkersTest() : WorkerPacesTest(3) {}
};

TEST_F(WorkerPacesTest, NothingIsKnownAtFirst) {
  EXPECT_EQ(SecondsPerPush(0), 0);
  EXPECT_EQ(Pace(0).last_share(), 0);
  EXPECT_EQ(Pace(7).seconds_per_push(), 0) << "never seen";
  Step({50, 60});
  EXPECT_EQ(SecondsPerPush(0), 0) << "the first push does not count";
  EXPECT_THAT(Judge(), IsEmpty());
}

TEST_F(WorkerPacesTest, MeanOfTheLatestPushes) {
  Step({9, 9});
  Step({1, 2});
  Step({3, 4});
  // (1 + 3) / 2, whatever the others take.
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 2);
  EXPECT_FLOAT_EQ(SecondsPerPush(1), 3);
  for (size_t i = 0; i < WorkerPaces::kPushes; ++i) Step({0.5, 1});
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 0.5);
}

TEST_F(WorkerPacesTest, AWorkerWithSeveralSeats) {
  Step({1, 1});
  // Two pushes, 0.4 s and 1 s after the step was open: 0.5 s each.
  paces_.OnStepOpened(step_, now_);
  Pass(0.4);
  paces_.OnOffer(0, step_, true, now_);
  Pass(0.6);
  paces_.OnOffer(0, step_, true, now_);
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 0.5);
}

TEST_F(ThreeWorkersTest, WhoComesTooLateHasAPaceToo) {
  // Two of three make a step of 1 s; worker 2 takes 10 s for each push.
  for (int i = 0; i < 50; ++i) {
    Step({0.5, 1});
    if (i % 10 == 9) paces_.OnOffer(2, GlobalStep(i - 9), false, now_);
  }
  EXPECT_FLOAT_EQ(SecondsPerPush(2), 10);
  EXPECT_EQ(Pace(2).last_share(), 0);
  EXPECT_EQ(Pace(1).last_share(), 1);
  EXPECT_THAT(JudgeTwice(),
              ElementsAre("2 slow: 10s per push, where the median is 1s"));
}

TEST_F(WorkerPacesTest, AStepWhoseOpeningIsForgotten) {
  paces_.OnOffer(0, GlobalStep(0), false, now_);
  for (int i = 0; i < 3000; ++i) {
    paces_.OnStepOpened(GlobalStep(i), now_);
    Pass(0.25);
  }
  // 3000 x 0.25 s since the push before.
  paces_.OnOffer(0, GlobalStep(100), false, now_);
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 750);
  // The opening time of this step is known, but the push began later.
  paces_.OnOffer(0, GlobalStep(2990), false, now_);
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 375);
}

TEST_F(WorkerPacesTest, ShareOfStepsThatWaitedForAWorker) {
  for (int i = 0; i < 4; ++i) Step({1, i == 0 ? 0.5 : 2});
  EXPECT_EQ(Pace(0).last_share(), 0.25);
  EXPECT_EQ(Pace(1).last_share(), 0.75);
  for (int i = 0; i < 100; ++i) Step({3, 2});
  EXPECT_EQ(Pace(0).last_share(), 1);
  EXPECT_EQ(Pace(1).last_share(), 0);
  // The state that a new life takes over.
  paces_.OnJoined(0, now_);
  EXPECT_EQ(Pace(0).last_share(), 1);
}

TEST_F(WorkerPacesTest, AsynchronousFromTicketToTicket) {
  absl::Time granted = now_;
  for (int i = 0; i < 5; ++i) {
    Pass(2);
    paces_.OnSpent(0, granted, now_);
    granted = now_;
  }
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 2);
  // Time spent waiting for a ticket does not count.
  for (size_t i = 0; i < WorkerPaces::kPushes; ++i) {
    Pass(10);
    granted = now_;
    Pass(2);
    paces_.OnSpent(0, granted, now_);
  }
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 2);
  // Two tickets at a time: each takes as long as the other lets it.
  for (size_t i = 0; i < WorkerPaces::kPushes; ++i) {
    Pass(2);
    paces_.OnSpent(0, now_ - absl::Seconds(4), now_);
  }
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 2);
}

TEST_F(WorkerPacesTest, OneOfTwoIsSlow) {
  for (int i = 0; i < 3; ++i) Step({0.1, 0.1});
  for (int i = 0; i < 2; ++i) Step({0.1, 0.29});
  EXPECT_THAT(Judge(), IsEmpty());
  EXPECT_THAT(Judge(), IsEmpty());
  // (0.1 + 0.1 + 2 x 0.29 + 2 x 0.3) / 6
  for (int i = 0; i < 2; ++i) Step({0.1, 0.3});
  EXPECT_THAT(JudgeTwice(),
              ElementsAre("1 slow: 230ms per push, where the median is 100ms"));
  EXPECT_TRUE(Pace(1).slow());
  EXPECT_FALSE(Pace(0).slow());
  EXPECT_THAT(Judge(), IsEmpty()) << "told once";
}

TEST_F(WorkerPacesTest, NotSlowWhenItHasBeenFastForAWhile) {
  for (int i = 0; i < 25; ++i) Step({0.1, 0.3});
  EXPECT_EQ(JudgeTwice().size(), 1u);
  // 0.18 is between the factors.
  for (int i = 0; i < 20; ++i) Step({0.1, 0.18});
  for (int i = 0; i < 20; ++i) EXPECT_THAT(Judge(), IsEmpty());
  for (int i = 0; i < 20; ++i) Step({0.1, 0.12});
  for (int i = 1; i < WorkerPaces::kCalm; ++i) EXPECT_THAT(Judge(), IsEmpty());
  EXPECT_TRUE(Pace(1).slow());
  EXPECT_THAT(
      Judge(),
      ElementsAre("1 not slow: 120ms per push, where the median is 100ms"));
  EXPECT_FALSE(Pace(1).slow());
}

TEST_F(WorkerPacesTest, TinyDifferencesAreNoise) {
  for (int i = 0; i < 25; ++i) Step({0.0002, 0.001});
  EXPECT_THAT(JudgeTwice(), IsEmpty());
  for (int i = 0; i < 25; ++i) Step({0.0002, 0.002});
  EXPECT_EQ(JudgeTwice().size(), 1u);
}

TEST_F(ThreeWorkersTest, APushThatIsOwedForTooLong) {
  for (int i = 0; i < 10; ++i) Step({1, 1, 1});
  paces_.OnStepOpened(step_, now_);
  Pass(1);
  paces_.OnOffer(0, step_, true, now_);
  paces_.OnOffer(1, step_, true, now_);
  const std::vector<WorkerPaces::Sight> live = {{0}, {1}, {2, /*owes=*/true}};
  Pass(8.5);
  EXPECT_THAT(Judge(live), IsEmpty());
  Pass(1);
  EXPECT_THAT(Judge(live),
              ElementsAre("2 slow: no push for 10.5s, where the median is 1s"));
  // It comes.
  paces_.OnOffer(2, step_, true, now_);
  paces_.OnStepClosed();
  step_ = step_.next();
  paces_.OnStepOpened(step_, now_);
  Pass(5);
  EXPECT_THAT(Judge({{0, true}, {1, true}, {2, true}}), IsEmpty())
      << "the others owe since the step is open";
}

TEST_F(WorkerPacesTest, AFastJobGivesAPushTwoSeconds) {
  for (int i = 0; i < 10; ++i) Step({0.01, 0.01});
  paces_.OnStepOpened(step_, now_);
  Pass(0.01);
  paces_.OnOffer(0, step_, true, now_);
  Pass(1.89);
  EXPECT_THAT(Judge({{0}, {1, true}}), IsEmpty());
  Pass(0.2);
  EXPECT_THAT(
      Judge({{0}, {1, true}}),
      ElementsAre("1 slow: no push for 2.1s, where the median is 10ms"));
}

TEST_F(WorkerPacesTest, NobodyIsToBlameWhenNobodyPushes) {
  for (int i = 0; i < 10; ++i) Step({0.1, 0.1});
  paces_.OnStepOpened(step_, now_);
  // A shard stands still.
  for (int i = 0; i < 29; ++i) {
    Pass(1);
    EXPECT_THAT(Judge({{0, true}, {1, true}}), IsEmpty());
  }
  // The shard continues, and one worker is faster than the other.
  Pass(0.1);
  paces_.OnOffer(0, step_, true, now_);
  // Time spent waiting for the shard does not count as the worker's own.
  EXPECT_LT(SecondsPerPush(0), 0.5);
  EXPECT_THAT(Judge({{0}, {1, true}}), IsEmpty());
  Pass(3);
  EXPECT_THAT(Judge({{0}, {1, true}}),
              ElementsAre("1 slow: no push for 3.1s, where the median is "
                          "100ms"));
}

TEST_F(WorkerPacesTest, OneThatIsSilent) {
  EXPECT_THAT(
      Judge({{0}, {1, false, absl::InfinitePast(), absl::Seconds(6.7)}}),
      ElementsAre("1 slow: silent for 6.7s"));
  for (int i = 1; i < WorkerPaces::kCalm; ++i) EXPECT_THAT(Judge(), IsEmpty());
  EXPECT_THAT(Judge(), ElementsAre("1 not slow: "));
}

TEST_F(ThreeWorkersTest, ALostOneIsNotSlow) {
  for (int i = 0; i < 25; ++i) Step({0.1, 0.1, 0.5});
  EXPECT_EQ(JudgeTwice().size(), 1u);
  EXPECT_THAT(Judge({{0}, {1}}), IsEmpty());
  EXPECT_FALSE(Pace(2).slow());
  // In its next life it is judged by that alone.
  paces_.OnJoined(2, now_);
  EXPECT_EQ(SecondsPerPush(2), 0);
  EXPECT_THAT(Judge(), IsEmpty());
}

TEST_F(WorkerPacesTest, AGenerationBeginsAnew) {
  for (int i = 0; i < 25; ++i) Step({0.1, 0.5});
  EXPECT_EQ(JudgeTwice().size(), 1u);
  Pass(60);
  paces_.Reset(now_);
  EXPECT_FALSE(Pace(1).slow());
  EXPECT_FLOAT_EQ(SecondsPerPush(1), 0.5) << "it is the same process";
  // Step numbers begin again; the first push does not count.
  step_ = GlobalStep(7);
  Step({20, 20});
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 0.1);
  Step({0.1, 0.5});
  EXPECT_FLOAT_EQ(SecondsPerPush(0), 0.1);
  EXPECT_THAT(JudgeTwice(),
              ElementsAre("1 slow: 500ms per push, where the median is 100ms"));
}

}  // namespace
}  // namespace holdfast
