// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/asynchronous_loop.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/process/testing/host_memory_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/testing/trainer_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class AsynchronousLoopTest : public TrainerTestBase {
 protected:
  // The maximum number of pushes that were begun and not yet seen to be
  // applied.
  int MostInFlight() const {
    int in_flight = 0, most = 0;
    for (const std::string& call : cluster_->calls()) {
      if (absl::StartsWith(call, "push")) most = std::max(most, ++in_flight);
      if (absl::StartsWith(call, "await applied")) --in_flight;
    }
    return most;
  }
};

TEST_F(AsynchronousLoopTest, WorkerTrainsTicketByTicket) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/1, /*tickets=*/5);
  cluster_->tickets = {1, 4};
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("await variables", "take ticket #1", "await ticket #1",
                  // The next ticket has arrived when it is needed.
                  "take ticket #2", "pull 0", "await pull 0",
                  // The last layer's gradient is sent first.
                  "push #1 of ticket 1 at 0", "add 1", "add 0",
                  // The pull is sent with the push, and sees it applied.
                  "apply #1: 8 examples", "await applied #1", "pull 0",
                  "await pull 0", "await ticket #2", "take ticket #3",
                  "push #2 of ticket 4 at 1", "add 1", "add 0",
                  "apply #2: 8 examples", "await applied #2", "pull 0",
                  "await pull 0",
                  // DONE.
                  "await ticket #3", "await done", "leave"));
  EXPECT_EQ(counts_.accepted, 2);
  EXPECT_THAT(model_.first_inputs, ElementsAreArray(FirstInputs({1, 4})));
  EXPECT_THAT(cluster_->pushed(2),
              ElementsAre(Pair(0, std::vector<float>{-1, -1}),
                          Pair(1, std::vector<float>{1, 1, 1})));
  EXPECT_EQ(cluster_->applications()[2].loss, 1);
  EXPECT_THAT(cluster_->overwritten(), IsEmpty());
}

// The values must include all that was booked before the ticket was given.
// As in synchronous_loop_test.cc: here the phases are three tickets, the last
// of which says that there are no more, the first version, and of each of two
// pushes input, computation, push and verdict.
TEST_F(AsynchronousLoopTest, PullsIntoPinnedMemory) {
  FakeHostMemory memory;
  host_memory_ = &memory;
  SetUpAsynchronous(/*replica=*/1, /*depth=*/2, /*tickets=*/5);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(memory.allocations(), 2);
  EXPECT_EQ(memory.buffers(), 0);
}

TEST_F(AsynchronousLoopTest, MeasuresItsPhases) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/1, /*tickets=*/5);
  cluster_->tickets = {1, 4};
  EXPECT_EQ(Run(), absl::OkStatus());
  const TaskReport report = meter_.Report();
  EXPECT_EQ(report.input_wait->overall(), 2.0 / 25);
  const proto::PhaseSeconds& phases = report.worker->phases();
  EXPECT_EQ(phases.input(), 2);
  EXPECT_EQ(phases.version(), 1);
  EXPECT_EQ(phases.compute(), 2);
  EXPECT_EQ(phases.push(), 2);
  EXPECT_EQ(phases.verdict(), 2);
  EXPECT_EQ(phases.ticket(), 3);
  EXPECT_EQ(report.worker->steps(), 2);
}

TEST_F(AsynchronousLoopTest, BehindABoundThePullFollowsTheTicket) {
  options_.declaration.mutable_consistency()
      ->mutable_asynchronous()
      ->set_staleness_bound(3);
  SetUpAsynchronous(/*replica=*/1, /*depth=*/1, /*tickets=*/5);
  cluster_->tickets = {1, 4};
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls(),
              ElementsAre("await variables", "take ticket #1",
                          "await ticket #1", "take ticket #2", "pull 0",
                          "await pull 0", "push #1 of ticket 1 at 0", "add 1",
                          "add 0", "apply #1: 8 examples", "await applied #1",
                          "await ticket #2", "take ticket #3", "pull 0",
                          "await pull 0", "push #2 of ticket 4 at 1", "add 1",
                          "add 0", "apply #2: 8 examples", "await applied #2",
                          "await ticket #3", "await done", "leave"));
}

TEST_F(AsynchronousLoopTest, ChiefConcludesWhenAllTicketsAreSpent) {
  SetUpAsynchronous(/*replica=*/0, /*depth=*/1, /*tickets=*/5);
  cluster_->tickets = {0, 3};
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(cluster_->calls().front(), "declare");
  const std::vector<std::string> calls = cluster_->calls();
  EXPECT_THAT(std::vector<std::string>(calls.end() - 4, calls.end()),
              ElementsAre("pin 5", "read 5", "status", "leave"));
}

TEST_F(AsynchronousLoopTest, WorkerWithoutATicketIsDone) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/2, /*tickets=*/5);
  cluster_->tickets.clear();
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls(),
              ElementsAre("await variables", "take ticket #1",
                          "await ticket #1", "await done", "leave"));
}

TEST_F(AsynchronousLoopTest, NextGradientIsComputedWhileAPushTravels) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/2, /*tickets=*/4);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre(
          "await variables", "take ticket #1", "await ticket #1",
          "take ticket #2", "pull 0", "await pull 0",
          "push #1 of ticket 0 at 0", "add 1", "add 0", "apply #1: 8 examples",
          "await ticket #2", "take ticket #3", "pull 0", "await pull 0",
          "push #2 of ticket 1 at 0", "add 1", "add 0", "apply #2: 8 examples",
          // Two are pending: the oldest is waited for.
          "await applied #1", "await ticket #3", "take ticket #4", "pull 0",
          "await pull 0", "push #3 of ticket 2 at 1", "add 1", "add 0",
          "apply #3: 8 examples", "await applied #2", "await ticket #4",
          "take ticket #5", "pull 0", "await pull 0",
          "push #4 of ticket 3 at 2", "add 1", "add 0", "apply #4: 8 examples",
          "await applied #3",
          // DONE, as all pushes are applied.
          "await ticket #5", "await applied #4", "await done", "leave"));
  EXPECT_EQ(counts_.accepted, 4);
}

TEST_F(AsynchronousLoopTest, WaitsForAllPushesInOrderWhenItIsDone) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/4, /*tickets=*/5);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls("await applied"),
      ElementsAre("await applied #1", "await applied #2", "await applied #3",
                  "await applied #4", "await applied #5"));
}

// FakeModel computes each gradient in the same memory, with different values
// for each version.
TEST_F(AsynchronousLoopTest, GradientsStayUntilTheyAreApplied) {
  for (const uint32_t depth : {1, 2, 3, 7}) {
    for (const uint32_t micro_batches : {1, 2}) {
      SCOPED_TRACE(absl::StrCat("depth ", depth, ", parts ", micro_batches));
      options_.micro_batches = micro_batches;
      SetUpAsynchronous(/*replica=*/1, depth, /*tickets=*/20);
      EXPECT_EQ(Run(), absl::OkStatus());
      EXPECT_EQ(counts_.accepted, 20);
      EXPECT_EQ(MostInFlight(), depth);
      EXPECT_THAT(cluster_->overwritten(), IsEmpty());
      // With a depth of d, push n is computed when n - d are applied.
      const float at = 20 - depth;
      EXPECT_EQ(cluster_->pushed(20)[1], std::vector<float>({at, at, at}));
    }
  }
}

TEST_F(AsynchronousLoopTest, AppliesNothingOfWhatIsNotFinite) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/1, /*tickets=*/4);
  model_.at.nan_loss = 1;
  model_.at.infinite_gradient = 2;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("apply"),
              ElementsAre("apply #1: 8 examples", "apply #2: 0 examples",
                          "apply #3: 0 examples", "apply #4: 8 examples"));
  EXPECT_EQ(cluster_->calls("await applied").size(), 4);
  EXPECT_EQ(counts_.not_finite, 2);
  std::vector<bool> told;
  for (const auto& [sequence, application] : cluster_->applications()) {
    told.push_back(application.not_finite);
  }
  EXPECT_THAT(told, ElementsAre(false, true, true, false));
}

TEST_F(AsynchronousLoopTest, ComputesWithTheLossScaleOfTheTicket) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/2, /*tickets=*/3);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(model_.loss_scales, ElementsAre(1, 2, 4));
}

TEST_F(AsynchronousLoopTest, TellsTheClipFactor) {
  options_.declaration.mutable_clipping()->set_global_norm(1);
  SetUpAsynchronous(/*replica=*/1, /*depth=*/1, /*tickets=*/2);
  EXPECT_EQ(Run(), absl::OkStatus());
  // At version v five elements are v or -v: the norm is sqrt(5) v.
  EXPECT_EQ(cluster_->applications()[1].clip_factor, 1);
  EXPECT_FLOAT_EQ(cluster_->applications()[2].clip_factor, 0.4472136f);
}

TEST_F(AsynchronousLoopTest, EndsWhenItIsShutOut) {
  const std::map<proto::Verdict, std::string> kCases = {
      {proto::FENCED, "the push for ticket 1 was fenced"},
      {proto::ABORTED, "the push for ticket 1 was dropped"},
      {proto::VERDICT_UNSPECIFIED, "the push for ticket 1 got no verdict"}};
  for (const uint32_t depth : {1, 2}) {
    for (const auto& [verdict, error] : kCases) {
      SetUpAsynchronous(/*replica=*/1, depth, /*tickets=*/5);
      cluster_->applied_verdicts[2] = verdict;
      EXPECT_THAT(Run().message(), HasSubstr(error));
      EXPECT_THAT(cluster_->calls().back(),
                  verdict == proto::VERDICT_UNSPECIFIED
                      ? HasSubstr("leave: the push")
                      : HasSubstr("leave"));
    }
  }
}

TEST_F(AsynchronousLoopTest, EndsWithTheReasonForWhichTheJobFailed) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/1, /*tickets=*/5);
  cluster_->applied_verdicts[2] = proto::ABORTED;
  cluster_->phase = proto::FAILED;
  cluster_->reason = "/job:ps/task:1 is lost";
  EXPECT_EQ(Run(), absl::AbortedError("/job:ps/task:1 is lost"));
}

TEST_F(AsynchronousLoopTest, LeavesWithWhatWentWrong) {
  const std::vector<std::string> kCalls = {
      "await ticket #1",  "await ticket #3",      "await pull 0", "add 0",
      "await applied #1", "apply #2: 8 examples", "pin 3",        "status"};
  for (const std::string& call : kCalls) {
    SCOPED_TRACE(call);
    SetUpAsynchronous(/*replica=*/0, /*depth=*/2, /*tickets=*/3);
    cluster_->errors[call] = absl::InternalError("ps is mad");
    EXPECT_THAT(Run().message(), HasSubstr("ps is mad"));
    EXPECT_THAT(cluster_->calls().back(), HasSubstr("leave: "));
  }
}

TEST_F(AsynchronousLoopTest, LeavesWhenTheModelFails) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/2, /*tickets=*/5);
  model_.at.error = 1;
  EXPECT_THAT(Run().message(), HasSubstr("the model broke"));
  EXPECT_EQ(cluster_->calls().back(), "leave: the model broke");
}

TEST_F(AsynchronousLoopTest, EvaluatesWhenSoManyTicketsAreSpent) {
  SetUpAsynchronous(/*replica=*/0, /*depth=*/1, /*tickets=*/20);
  has_test_set_ = true;
  options_.evaluation.set_every_steps(5);
  // Others are faster: this worker sees tickets 2, 7, 12 and 18.
  cluster_->tickets = {2, 7, 12, 18};
  for (int i = 0; i < 4; ++i) {
    cluster_->ticket_steps[i + 1] = cluster_->tickets[i];
  }
  EXPECT_EQ(Run(), absl::OkStatus());
  // The fake's versions are the pushes of this worker.
  EXPECT_THAT(cluster_->calls("pin"),
              ElementsAre("pin 1", "pin 2", "pin 3", "pin 20"));
  EXPECT_THAT(cluster_->calls("report"),
              ElementsAre("report 1", "report 2", "report 3", "report 20"));
}

TEST_F(AsynchronousLoopTest, EveryShardMustHaveAppliedAll) {
  // The last case has nothing to train on one of its shards.
  const std::vector<std::pair<std::vector<uint64_t>, absl::StatusCode>> kCases =
      {{{5, 5}, absl::StatusCode::kOk},
       {{5, 4}, absl::StatusCode::kInternal},
       {{6, 5}, absl::StatusCode::kInternal},
       {{5, 0}, absl::StatusCode::kOk}};
  for (const auto& [versions, code] : kCases) {
    SetUpAsynchronous(/*replica=*/0, /*depth=*/1, /*tickets=*/5);
    for (const uint64_t version : versions) {
      cluster_->pinned_versions.push_back(GlobalStep(version));
    }
    EXPECT_EQ(Run().code(), code) << versions[0] << ", " << versions[1];
  }
}

TEST_F(AsynchronousLoopTest, EveryWaitHasADeadline) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/2, /*tickets=*/3);
  options_.step_timeout = absl::Seconds(10);
  options_.recovery_timeout = absl::Seconds(100);
  options_.margin = absl::Seconds(1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(cluster_->deadline_of("await pull") - clock_.now,
            absl::Seconds(111));
  EXPECT_EQ(cluster_->deadline_of("await applied") - clock_.now,
            absl::Seconds(111));
  // Each of the two workers may have 2 + 2 pushes booked meanwhile.
  EXPECT_EQ(cluster_->deadline_of("await ticket") - clock_.now,
            absl::Seconds(181));
}

TEST_F(AsynchronousLoopTest, BoundLetsARequestWaitLonger) {
  options_.declaration.mutable_consistency()
      ->mutable_asynchronous()
      ->set_staleness_bound(3);
  SetUpAsynchronous(/*replica=*/1, /*depth=*/1, /*tickets=*/3);
  options_.step_timeout = absl::Seconds(10);
  options_.recovery_timeout = absl::ZeroDuration();
  options_.margin = absl::Seconds(1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(cluster_->deadline_of("await ticket") - clock_.now,
            absl::Seconds(121));
}

// Ticket 2, which is taken when the roll-back comes, and 0, which was spent,
// are handed out again.
TEST_F(AsynchronousLoopTest, GoesOnWithTheTicketsOfTheRestoredState) {
  for (const uint32_t depth : {1, 2, 3}) {
    for (const char* const call :
         {"await applied #2", "take ticket #3", "await ticket #3",
          "push #2 of ticket 1 at 1", "apply #3: 8 examples", "await done"}) {
      SCOPED_TRACE(absl::StrCat("depth ", depth, ", ", call));
      SetUpAsynchronous(/*replica=*/1, depth, /*tickets=*/7);
      FakeCluster::RollBack roll_back;
      roll_back.version = 1;
      roll_back.tickets = {0, 2, 5, 6};
      cluster_->roll_backs[call] = roll_back;
      model_.first_inputs.clear();
      EXPECT_EQ(Run(), absl::OkStatus());
      if (!cluster_->roll_backs.empty()) continue;  // of another depth
      EXPECT_EQ(cluster_->calls("await variables").size(), 2);
      const std::vector<float> batches = model_.first_inputs;
      ASSERT_GE(batches.size(), 4);
      EXPECT_THAT(std::vector<float>(batches.end() - 4, batches.end()),
                  ElementsAreArray(FirstInputs({0, 2, 5, 6})));
      EXPECT_EQ(cluster_->calls().back(), "leave");
    }
  }
}

TEST_F(AsynchronousLoopTest, CallsTheHookWithTheTicket) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/1, /*tickets=*/9);
  cluster_->tickets = {0, 3, 4};
  std::vector<uint64_t> tickets;
  options_.before_step = [&](GlobalStep ticket) {
    tickets.push_back(ticket.value());
  };
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(tickets, ElementsAre(0, 3, 4));
}

}  // namespace
}  // namespace holdfast
