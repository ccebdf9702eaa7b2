// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/synchronous_loop.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

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

using SynchronousLoopTest = TrainerTestBase;

TEST_F(SynchronousLoopTest, WorkerTrainsFromTheFirstStepToTheLast) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls(),
              ElementsAre("await variables", "pull 0", "await pull 0",
                          // The last layer's gradient is sent first.
                          "push #1 of step 0", "add 1", "add 0",
                          // One exchange.
                          "contribute #1: step 0, seat 1, 8 examples", "pull 1",
                          "await push #1", "await verdict #1", "await pull 1",
                          "push #2 of step 1", "add 1", "add 0",
                          "contribute #2: step 1, seat 1, 8 examples", "pull 2",
                          "await push #2", "await verdict #2", "await pull 2",
                          "await done", "leave"));
  EXPECT_EQ(counts_.accepted, 2);
  // Computed on version 1, as FakeModel does.
  EXPECT_THAT(cluster_->pushed(2),
              ElementsAre(Pair(0, std::vector<float>{-1, -1}),
                          Pair(1, std::vector<float>{1, 1, 1})));
  EXPECT_EQ(cluster_->contributions()[1].loss, 1);
}

// N = 2 M: the next seat is filled before the verdict on the one before it.
// The clock ticks when it is read: at the beginning and end of training, and of
// each phase: the first version, and in each of two steps input, computation,
// push and verdict. So there are 1 + 2 x 9 s, and each phase takes 1 s each
// time.
TEST_F(SynchronousLoopTest, MeasuresItsPhases) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  EXPECT_EQ(Run(), absl::OkStatus());
  const TaskReport report = meter_.Report();
  EXPECT_EQ(report.input_wait->overall(), 2.0 / 19);
  const proto::PhaseSeconds& phases = report.worker->phases();
  EXPECT_EQ(phases.input(), 2);
  EXPECT_EQ(phases.version(), 1);
  EXPECT_EQ(phases.compute(), 2);
  EXPECT_EQ(phases.push(), 2);
  EXPECT_EQ(phases.verdict(), 2);
  EXPECT_EQ(phases.ticket(), 0);
  EXPECT_EQ(report.worker->steps(), 2);
}

TEST_F(SynchronousLoopTest, FillsAllItsSeatsBeforeItWaitsForVerdicts_S1) {
  SetUpJob(/*replica=*/1, /*n=*/4, /*m=*/2, /*steps=*/1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("await variables", "pull 0", "await pull 0",
                  "push #1 of step 0", "add 1", "add 0", "await push #1",
                  "contribute #1: step 0, seat 1, 8 examples",
                  "push #2 of step 0", "add 1", "add 0", "await push #2",
                  "contribute #2: step 0, seat 3, 8 examples", "pull 1",
                  "await verdict #1", "await verdict #2", "await pull 1",
                  "await done", "leave"));
}

// For two variables, for the version that is computed on and the next.
TEST_F(SynchronousLoopTest, PullsIntoPinnedMemory) {
  FakeHostMemory memory;
  host_memory_ = &memory;
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/5);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(memory.allocations(), 4);
  EXPECT_EQ(memory.buffers(), 0);
}

TEST_F(SynchronousLoopTest, TakesTheBatchOfStepAndSeat) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/3);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(model_.first_inputs,
              ElementsAre(FirstInput(0, 1, 2), FirstInput(1, 1, 2),
                          FirstInput(2, 1, 2)));
}

TEST_F(SynchronousLoopTest, LateBackupWorkerGoesOnWithTheNewestVersion) {
  SetUpJob(/*replica=*/1, /*n=*/1, /*m=*/2, /*steps=*/6);
  // The contribution to step 0 comes too late, when there is version 4 already,
  // and so does the one to step 4; the next pull finds the end.
  cluster_->verdicts[{0, 1}] = proto::STALE;
  cluster_->newest[1] = 4;
  cluster_->verdicts[{4, 1}] = proto::STALE;
  cluster_->newest[5] = 6;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls(),
              ElementsAre("await variables", "pull 0", "await pull 0",
                          "push #1 of step 0", "add 1", "add 0",
                          "contribute #1: step 0, seat 1, 8 examples", "pull 1",
                          "await push #1", "await verdict #1", "await pull 1",
                          "push #2 of step 4", "add 1", "add 0",
                          "contribute #2: step 4, seat 1, 8 examples", "pull 5",
                          "await push #2", "await verdict #2", "await pull 5",
                          "await done", "leave"));
  EXPECT_EQ(counts_.accepted, 0);
  EXPECT_EQ(counts_.stale, 2);
  EXPECT_THAT(model_.first_inputs,
              ElementsAre(FirstInput(0, 1, 2), FirstInput(4, 1, 2)));
}

TEST_F(SynchronousLoopTest, ContributesNothingWhenTheLossIsNotFinite) {
  SetUpJob(1, 2, 2, 3);
  model_.at.nan_loss = 1;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 8 examples",
                          "contribute #2: step 1, seat 1, 0 examples",
                          "contribute #3: step 2, seat 1, 8 examples"));
  EXPECT_EQ(counts_.not_finite, 1);
  EXPECT_EQ(counts_.accepted, 3);
  std::vector<bool> told;
  for (const Contribution& contribution : cluster_->contributions()) {
    told.push_back(contribution.not_finite);
  }
  EXPECT_THAT(told, ElementsAre(false, true, false));
}

TEST_F(SynchronousLoopTest, ComputesWithTheLossScaleOfTheVersion) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/3);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(model_.loss_scales, ElementsAre(1, 2, 4));
}

TEST_F(SynchronousLoopTest, ContributesNothingWhenAGradientIsNotFinite) {
  SetUpJob(1, 2, 2, 2);
  model_.at.infinite_gradient = 0;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 0 examples",
                          "contribute #2: step 1, seat 1, 8 examples"));
  // The gradient of b was sent before a's was known; its weight is 0.
  EXPECT_THAT(cluster_->pushed(1),
              ElementsAre(Pair(1, std::vector<float>{0, 0, 0})));
  EXPECT_THAT(cluster_->calls("await push #1"), IsEmpty());
  EXPECT_EQ(counts_.not_finite, 1);
}

TEST_F(SynchronousLoopTest, EndsWhenItIsShutOut) {
  const std::map<proto::Verdict, std::string> kCases = {
      {proto::FENCED, "seat 1 was fenced"},
      {proto::ABORTED, "seat 1 was dropped"},
      {proto::VERDICT_UNSPECIFIED, "seat 1 got no verdict"}};
  for (const auto& [verdict, error] : kCases) {
    options_.declaration.Clear();
    SetUpJob(1, 2, 2, 3);
    cluster_->verdicts[{1, 1}] = verdict;
    EXPECT_THAT(Run().message(), HasSubstr(error));
  }
}

TEST_F(SynchronousLoopTest, DuplicateSeatIsCounted) {
  SetUpJob(1, 2, 2, 3);
  cluster_->verdicts[{1, 1}] = proto::DUPLICATE;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(counts_.duplicate, 1);
  EXPECT_EQ(counts_.accepted, 2);
}

TEST_F(SynchronousLoopTest, CallsTheHookBeforeEachStep) {
  SetUpJob(1, 2, 2, 3);
  std::vector<uint64_t> steps;
  options_.before_step = [&](GlobalStep step) {
    steps.push_back(step.value());
  };
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(steps, ElementsAre(0, 1, 2));
}

TEST_F(SynchronousLoopTest, TellsTheClipFactor) {
  options_.declaration.mutable_clipping()->set_global_norm(1);
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  EXPECT_EQ(Run(), absl::OkStatus());
  // At version v five elements are v or -v: the norm is sqrt(5) v.
  EXPECT_EQ(cluster_->contributions()[0].clip_factor, 1);
  EXPECT_FLOAT_EQ(cluster_->contributions()[1].clip_factor, 0.4472136f);
}

TEST_F(SynchronousLoopTest, ComputesInMicroBatches) {
  options_.micro_batches = 2;
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(model_.first_inputs.size(), 2);
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 8 examples"));
}

// 1000 examples, 4 seats of 400: 400, 400, 200 and none.
TEST_F(SynchronousLoopTest, SeatWithoutExamplesContributesNothing) {
  batch_options_.batch_size = 400;
  batch_options_.short_last_batch = true;
  SetUpJob(/*replica=*/1, /*n=*/4, /*m=*/2, /*steps=*/1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 400 examples",
                          "contribute #2: step 0, seat 3, 0 examples"));
  EXPECT_THAT(cluster_->calls("await push"), ElementsAre("await push #1"));
  EXPECT_EQ(counts_.accepted, 2);
  EXPECT_EQ(counts_.not_finite, 0);
}

// Of the calls, only those of a step that begins while values arrive.
class EarlyStepTest : public SynchronousLoopTest {
 protected:
  EarlyStepTest() { model_.awaits_parameters = true; }
};

TEST_F(EarlyStepTest, ComputesWhileValuesArrive) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->slow_pulls[1];
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre(
          "await variables", "pull 0", "await pull 0", "push #1 of step 0",
          "add 1", "add 0", "contribute #1: step 0, seat 1, 8 examples",
          "pull 1", "await push #1", "await verdict #1",
          // Now the version is known.
          "await variable 0 of pull 1", "push #2 of step 1",
          // The forward pass.
          "await variable 0 of pull 1", "await variable 1 of pull 1", "add 1",
          "add 0", "await pull 1", "contribute #2: step 1, seat 1, 8 examples",
          "pull 2", "await push #2", "await verdict #2", "await pull 2",
          "await done", "leave"));
  EXPECT_THAT(cluster_->pushed(2),
              ElementsAre(Pair(0, std::vector<float>{-1, -1}),
                          Pair(1, std::vector<float>{1, 1, 1})));
  EXPECT_THAT(model_.loss_scales, ElementsAre(1, 2));
  EXPECT_EQ(counts_.accepted, 2);
}

// The clock ticks when it is read. In addition to the phases in
// MeasuresItsPhases, the loop waits for the first variable, within the
// computation for the second, and, when all are there, for the pull.
TEST_F(EarlyStepTest, MetersTheWaitsForValuesAsWaits) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->slow_pulls[1];
  EXPECT_EQ(Run(), absl::OkStatus());
  const proto::PhaseSeconds phases = meter_.Report().worker->phases();
  EXPECT_EQ(phases.version(), 1 + 3);
  // Before, and after, the wait for the second variable.
  EXPECT_EQ(phases.compute(), 1 + 2);
  EXPECT_EQ(phases.verdict(), 2);
}

TEST_F(EarlyStepTest, DropsAGradientOfASupersededVersion) {
  SetUpJob(/*replica=*/1, /*n=*/1, /*m=*/2, /*steps=*/6);
  cluster_->verdicts[{0, 1}] = proto::STALE;
  cluster_->slow_pulls[1] = 1;
  cluster_->newest[1] = 4;
  cluster_->verdicts[{4, 1}] = proto::STALE;
  cluster_->newest[5] = 6;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("await variables", "pull 0", "await pull 0",
                  "push #1 of step 0", "add 1", "add 0",
                  "contribute #1: step 0, seat 1, 8 examples", "pull 1",
                  "await push #1", "await verdict #1",
                  "await variable 0 of pull 1", "push #2 of step 1",
                  "await variable 0 of pull 1", "await variable 1 of pull 1",
                  // Push 2 is neither sent nor contributed.
                  "await pull 1", "push #3 of step 4", "add 1", "add 0",
                  "contribute #3: step 4, seat 1, 8 examples", "pull 5",
                  "await push #3", "await verdict #3", "await pull 5",
                  "await done", "leave"));
  EXPECT_THAT(model_.first_inputs,
              ElementsAre(FirstInput(0, 1, 2), FirstInput(4, 1, 2)));
  EXPECT_THAT(model_.loss_scales, ElementsAre(1, 16));
  EXPECT_EQ(counts_.stale, 2);
}

// [H7] The pull has to begin again, at the same version.
TEST_F(EarlyStepTest, ComputesTheSameBatchAgain) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/3);
  cluster_->slow_pulls[1] = 1;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("push"),
              ElementsAre("push #1 of step 0", "push #2 of step 1",
                          "push #3 of step 1", "push #4 of step 2"));
  EXPECT_THAT(model_.first_inputs,
              ElementsAre(FirstInput(0, 1, 2), FirstInput(1, 1, 2),
                          FirstInput(2, 1, 2)));
  EXPECT_EQ(counts_.accepted, 3);
}

TEST_F(EarlyStepTest, OnlyTheFirstSeatAwaitsValues) {
  SetUpJob(/*replica=*/1, /*n=*/4, /*m=*/2, /*steps=*/2);
  cluster_->slow_pulls[1];
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls("await variable "),
      ElementsAre("await variable 0 of pull 1", "await variable 0 of pull 1",
                  "await variable 1 of pull 1"));
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 8 examples",
                          "contribute #2: step 0, seat 3, 8 examples",
                          "contribute #3: step 1, seat 1, 8 examples",
                          "contribute #4: step 1, seat 3, 8 examples"));
  EXPECT_THAT(cluster_->overwritten(), IsEmpty());
}

TEST_F(EarlyStepTest, OnlyTheFirstMicroBatchAwaitsValues) {
  options_.micro_batches = 2;
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->slow_pulls[1];
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(model_.first_inputs.size(), 4);
  EXPECT_EQ(cluster_->calls("await variable ").size(), 3);
  EXPECT_THAT(cluster_->pushed(2),
              ElementsAre(Pair(0, std::vector<float>{-1, -1}),
                          Pair(1, std::vector<float>{1, 1, 1})));
}

// The second step's seat has no examples, so nothing is computed.
TEST_F(EarlyStepTest, ContributesNothingBeforeAllValuesAreThere) {
  batch_options_.batch_size = 400;
  batch_options_.short_last_batch = true;
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->slow_pulls[1];
  EXPECT_EQ(Run(), absl::OkStatus());
  const std::vector<std::string> calls = cluster_->calls();
  const auto at = [&](const std::string& call) {
    return std::find(calls.begin(), calls.end(), call);
  };
  EXPECT_LT(at("await pull 1"),
            at("contribute #2: step 1, seat 1, 0 examples"));
  EXPECT_NE(at("contribute #2: step 1, seat 1, 0 examples"), calls.end());
}

TEST_F(EarlyStepTest, AwaitsAllValuesWhenAnEvaluationIsDue) {
  has_test_set_ = true;
  options_.evaluation.set_every_steps(1);
  SetUpJob(/*replica=*/0, /*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->slow_pulls[1];
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("await variable "),
              ElementsAre("await variable 0 of pull 1"));
  EXPECT_THAT(cluster_->calls("report"), ElementsAre("report 1", "report 2"));
}

TEST_F(EarlyStepTest, AnErrorOfThePullIsTheErrorOfTheStep) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->slow_pulls[1];
  cluster_->errors["await variable 1 of pull 1"] = absl::InternalError("lost");
  EXPECT_EQ(Run(), absl::InternalError("lost"));
  EXPECT_EQ(cluster_->calls().back(), "leave: lost");
}

TEST_F(EarlyStepTest, GoesOnFromTheRestoredState) {
  for (const char* call :
       {"await variable 0 of pull 2", "push #3 of step 2",
        "await variable 1 of pull 2", "await pull 2", "await verdict #3"}) {
    SCOPED_TRACE(call);
    options_.declaration.Clear();
    SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/4);
    cluster_->slow_pulls[1];
    cluster_->slow_pulls[2];
    cluster_->roll_backs[call].version = 1;
    model_.first_inputs.clear();
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_EQ(cluster_->calls("await variables").size(), 2);
    const std::vector<std::string> contributions =
        cluster_->calls("contribute");
    ASSERT_GE(contributions.size(), 3);
    EXPECT_THAT(contributions[contributions.size() - 3],
                HasSubstr(": step 1, "));
    EXPECT_THAT(contributions.back(), HasSubstr(": step 3, "));
  }
}

TEST_F(EarlyStepTest, NotByTicket) {
  SetUpTickets(/*replica=*/1, /*n=*/2, /*m=*/2, /*tickets=*/4);
  cluster_->tickets = {1, 3};
  cluster_->slow_pulls[1];
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("await variable "), IsEmpty());
  EXPECT_EQ(counts_.accepted, 2);
}

TEST_F(SynchronousLoopTest, AModelThatDoesNotAwaitItsParametersGetsThemAll) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->slow_pulls[1];
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("await variable "), IsEmpty());
  EXPECT_EQ(counts_.accepted, 2);
}

TEST_F(SynchronousLoopTest, ByTicketAsksForOneAtATime) {
  SetUpTickets(/*replica=*/1, /*n=*/2, /*m=*/2, /*tickets=*/4);
  cluster_->tickets = {1, 3};
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("await variables", "pull 0", "await pull 0", "take ticket #1",
                  "await ticket #1", "push #1 of ticket 1 at 0", "add 1",
                  "add 0", "await push #1",
                  "contribute #1: step 0, seat 1, 8 examples", "pull 1",
                  "await verdict #1",
                  // Its examples are read while the pull is under way.
                  "take ticket #2", "await ticket #2", "await pull 1",
                  "push #2 of ticket 3 at 1", "add 1", "add 0", "await push #2",
                  "contribute #2: step 1, seat 1, 8 examples", "pull 2",
                  "await verdict #2", "take ticket #3",
                  // DONE.
                  "await ticket #3", "await done", "leave"));
  EXPECT_EQ(counts_.accepted, 2);
  EXPECT_THAT(model_.first_inputs, ElementsAreArray(FirstInputs({1, 3})));
}

// N = 2 M: the last step closes below N, with one seat of this worker empty.
TEST_F(SynchronousLoopTest, ByTicketStepMayCloseWhileItWaitsForAnother) {
  SetUpTickets(/*replica=*/1, /*n=*/4, /*m=*/2, /*tickets=*/6);
  cluster_->tickets = {1, 2, 5};
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 8 examples",
                          "contribute #2: step 0, seat 3, 8 examples",
                          "contribute #3: step 1, seat 1, 8 examples"));
  const std::vector<std::string> calls = cluster_->calls();
  EXPECT_THAT(std::vector<std::string>(calls.end() - 6, calls.end()),
              ElementsAre("contribute #3: step 1, seat 1, 8 examples",
                          "take ticket #4", "await ticket #4",
                          "await verdict #3", "await done", "leave"));
  EXPECT_EQ(counts_.accepted, 3);
}

TEST_F(SynchronousLoopTest, ByTicketExamplesOfALatePushComeAgain) {
  SetUpTickets(/*replica=*/1, /*n=*/1, /*m=*/2, /*tickets=*/6);
  cluster_->tickets = {0, 2};
  cluster_->verdicts[{0, 1}] = proto::STALE;
  cluster_->newest[1] = 3;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("push"), ElementsAre("push #1 of ticket 0 at 0",
                                                   "push #2 of ticket 0 at 3",
                                                   "push #3 of ticket 2 at 4"));
  EXPECT_THAT(model_.first_inputs, ElementsAreArray(FirstInputs({0, 0, 2})));
  EXPECT_EQ(counts_.stale, 1);
  EXPECT_EQ(counts_.accepted, 2);
}

// While the request is parked others make steps 0 to 4.
TEST_F(SynchronousLoopTest, ByTicketPullsAgainForATicketOfALaterStep) {
  SetUpTickets(/*replica=*/1, /*n=*/1, /*m=*/2, /*tickets=*/9);
  cluster_->tickets = {4, 8};
  cluster_->ticket_steps[1] = 5;
  cluster_->ticket_steps[2] = 7;
  std::vector<uint64_t> begun;
  options_.before_step = [&](GlobalStep step) {
    begun.push_back(step.value());
  };
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("await variables", "pull 0", "await pull 0", "take ticket #1",
                  "await ticket #1", "pull 5", "await pull 5",
                  "push #1 of ticket 4 at 5", "add 1", "add 0", "await push #1",
                  "contribute #1: step 5, seat 1, 8 examples", "pull 6",
                  "await verdict #1", "take ticket #2", "await ticket #2",
                  "await pull 6", "pull 7", "await pull 7",
                  "push #2 of ticket 8 at 7", "add 1", "add 0", "await push #2",
                  "contribute #2: step 7, seat 1, 8 examples", "pull 8",
                  "await verdict #2", "take ticket #3", "await ticket #3",
                  "await done", "leave"));
  EXPECT_THAT(begun, ElementsAre(5, 7));
}

// As above, between two seats: the ticket is for the next step's first.
TEST_F(SynchronousLoopTest, ByTicketStepMayCloseBetweenTwoSeats) {
  SetUpTickets(/*replica=*/0, /*n=*/2, /*m=*/1, /*tickets=*/4);
  options_.is_chief = false;
  cluster_->tickets = {0, 2, 3};
  cluster_->ticket_steps[2] = 1;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 0, 8 examples",
                          "contribute #2: step 1, seat 0, 8 examples",
                          "contribute #3: step 1, seat 1, 8 examples"));
  EXPECT_THAT(
      cluster_->calls("await verdict"),
      ElementsAre("await verdict #1", "await verdict #2", "await verdict #3"));
}

TEST_F(SynchronousLoopTest, ByTicketWithoutAnyIsDone) {
  SetUpTickets(/*replica=*/1, /*n=*/1, /*m=*/2, /*tickets=*/9);
  cluster_->tickets.clear();
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(
      cluster_->calls(),
      ElementsAre("await variables", "pull 0", "await pull 0", "take ticket #1",
                  "await ticket #1", "await done", "leave"));
}

TEST_F(SynchronousLoopTest, ByTicketContributesNothingUnderTheTicketsNumber) {
  SetUpTickets(/*replica=*/1, /*n=*/2, /*m=*/2, /*tickets=*/4);
  cluster_->tickets = {0, 2};
  model_.at.nan_loss = 0;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 0 examples",
                          "contribute #2: step 1, seat 1, 8 examples"));
  EXPECT_EQ(counts_.not_finite, 1);
}

TEST_F(SynchronousLoopTest, ByTicketChiefEvaluatesAndConcludes) {
  SetUpTickets(/*replica=*/0, /*n=*/2, /*m=*/2, /*tickets=*/7);
  cluster_->tickets = {0, 2, 4, 6};
  has_test_set_ = true;
  options_.evaluation.set_every_steps(2);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(cluster_->calls("report"), ElementsAre("report 2", "report 4"));
}

TEST_F(SynchronousLoopTest, ByTicketWaitsAsLongAsTheCoordinatorMay) {
  // Two tickets may be given out, each in its own step.
  SetUpTickets(/*replica=*/1, /*n=*/1, /*m=*/2, /*tickets=*/1);
  options_.step_timeout = absl::Seconds(10);
  options_.recovery_timeout = absl::Seconds(100);
  options_.margin = absl::Seconds(1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(cluster_->deadline_of("await ticket") - clock_.now,
            absl::Seconds(131));
}

TEST_F(SynchronousLoopTest, ByTicketGoesOnWithTheTicketsOfTheRestoredState) {
  for (const char* call : {"await ticket #2", "push #2 of ticket 1 at 1",
                           "await verdict #2", "await pull 2", "await done"}) {
    SCOPED_TRACE(call);
    options_.declaration.Clear();
    SetUpTickets(/*replica=*/1, /*n=*/1, /*m=*/2, /*tickets=*/5);
    FakeCluster::RollBack roll_back;
    roll_back.version = 1;
    roll_back.tickets = {0, 3};
    cluster_->roll_backs[call] = roll_back;
    model_.first_inputs.clear();
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_EQ(cluster_->calls("await variables").size(), 2);
    const std::vector<float> batches = model_.first_inputs;
    ASSERT_GE(batches.size(), 2);
    EXPECT_THAT(std::vector<float>(batches.end() - 2, batches.end()),
                ElementsAreArray(FirstInputs({0, 3})));
    EXPECT_THAT(cluster_->calls("contribute").back(),
                ::testing::HasSubstr(": step 2, "));
  }
}

TEST_F(SynchronousLoopTest, ByTicketEndsWithTheRequestsError) {
  SetUpTickets(/*replica=*/1, /*n=*/2, /*m=*/2, /*tickets=*/4);
  cluster_->errors["await ticket #2"] = absl::InternalError("lost");
  EXPECT_EQ(Run(), absl::InternalError("lost"));
  EXPECT_EQ(cluster_->calls().back(), "leave: lost");
}

}  // namespace
}  // namespace holdfast
