// SPDX-License-Identifier: Apache-2.0

// The C API when a worker is fenced, when the job is rolled back, and when the
// job was finished before or is stopped.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/c_api/holdfast.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/test_cluster.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// TestCluster does not wait for lost tasks unless the job says so.
constexpr char kPatient[] = " timeouts { recovery_seconds: 60 }";

class FaultsTest : public CApiClusterTest {
 protected:
  static holdfast_loop* StartLoop(holdfast_cluster* cluster,
                                  bool strict = false) {
    holdfast_loop* loop = nullptr;
    const holdfast_option option = {"strict", strict ? "true" : "false"};
    EXPECT_OK(Call(holdfast_loop_start, cluster, &option, size_t{1}, &loop));
    return loop;
  }

  static Result Next(holdfast_loop* loop, holdfast_turn* turn) {
    return Call(holdfast_loop_next, loop, int64_t{-1}, turn);
  }

  // A gradient of ones: each step takes 1 from "w" and "b".
  static void Push(holdfast_loop* loop) {
    const std::vector<float> ones(6, 1);
    const float* const gradients[] = {ones.data(), nullptr, ones.data()};
    const size_t sizes[] = {6, 0, 1};
    EXPECT_OK(Call(holdfast_loop_push, loop, gradients, sizes, size_t{3},
                   uint64_t{1}, 0.0, 1.f));
  }

  // The first value of "w".
  static float FirstValue(holdfast_loop* loop) {
    const float* values[3] = {};
    EXPECT_OK(Call(holdfast_loop_values, loop, values, size_t{3}));
    return values[0] == nullptr ? 0 : *values[0];
  }

  // Has the coordinator fence a worker: in a job that continues without workers
  // that leave, this sends a Leave in the name of the worker. (Without
  // certificates a claimed name is believed: docs/operating/security.md.)
  void ShutOut(uint32_t worker) {
    const RawClient client(cluster_->address(0));
    const auto status = client.Call("Coordinator.GetStatus", "", kPatience);
    ASSERT_TRUE(status.ok()) << status.status();
    const std::string task =
        absl::StrCat("task { job: \"worker\"",
                     worker == 0 ? "" : absl::StrCat(" index: ", worker), " }");
    const std::vector<std::string> at =
        absl::StrSplit(*status, absl::StrCat(task, " incarnation: "));
    ASSERT_EQ(at.size(), 2) << *status;
    const std::string incarnation = at[1].substr(0, at[1].find(' '));
    const auto left = client.Call(
        "Coordinator.Leave",
        absl::StrCat("sender { ", task, " incarnation: ", incarnation,
                     " generation: 1 }"),
        kPatience);
    ASSERT_TRUE(left.ok()) << left.status();
  }
};

TEST_F(FaultsTest, AWorkerThatIsShutOutIsFencedAndTheJobGoesOn) {
  Start(/*num_ps=*/2, /*num_workers=*/2);
  const std::string text =
      absl::StrCat(kVariables,
                   "consistency { asynchronous {} } total_steps: 6 "
                   "total_tickets: 6",
                   kPatient);
  holdfast_cluster* const chief = Ready(Worker(0), text);
  holdfast_cluster* const other = Ready(Worker(1), text);
  holdfast_loop* const fenced = StartLoop(other);
  holdfast_turn turn;
  EXPECT_OK(Next(fenced, &turn));
  Push(fenced);
  EXPECT_OK(Next(fenced, &turn));
  ShutOut(1);
  Push(fenced);
  for (int i = 0; i < 2; ++i) {
    const Result result = Next(fenced, &turn);
    EXPECT_EQ(result.kind, HOLDFAST_FENCED) << result.message;
    EXPECT_EQ(result.exit_code, 138);
    EXPECT_THAT(result.message, HasSubstr("fenced"));
  }
  holdfast_loop_free(fenced);
  holdfast_close(other);

  // Each ticket counts once, no matter which worker had it first.
  holdfast_loop* const loop = StartLoop(chief);
  for (;;) {
    ASSERT_OK(Next(loop, &turn));
    if (turn.done) break;
    Push(loop);
  }
  EXPECT_EQ(FirstValue(loop), 10 - 6);
  EXPECT_OK(Call(holdfast_leave, chief, nullptr, int64_t{-1}));
  holdfast_close(chief);
  holdfast_loop_free(loop);
  ExpectDone();
}

TEST_F(FaultsTest, ARollBackGoesOnFromTheCheckpoint) {
  StartWithCheckpoints(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster =
      Ready(Worker(0), absl::StrCat(Synchronous(6), kPatient));
  holdfast_loop* const loop = StartLoop(cluster);
  std::vector<std::string> turns;
  holdfast_turn turn;
  for (bool killed = false;;) {
    ASSERT_OK(Next(loop, &turn));
    if (turn.done) break;
    turns.push_back(absl::StrCat("batch ", turn.batch, " at ", FirstValue(loop),
                                 turn.rolled_back ? ", rolled back" : ""));
    uint64_t step = 0;
    if (turn.step == 2 && !killed) {
      ASSERT_OK(Call(holdfast_save_checkpoint, cluster, int64_t{-1}, &step));
      EXPECT_EQ(step, 2);
    }
    if (turn.step == 4 && !killed) {
      killed = true;
      cluster_->Restart(1);
    }
    Push(loop);
  }
  EXPECT_THAT(turns, ElementsAre("batch 0 at 10", "batch 1 at 9",
                                 "batch 2 at 8", "batch 3 at 7", "batch 4 at 6",
                                 "batch 2 at 8, rolled back", "batch 3 at 7",
                                 "batch 4 at 6", "batch 5 at 5"));
  EXPECT_EQ(FirstValue(loop), 10 - 6);
  holdfast_outcome outcome;
  ASSERT_OK(Call(holdfast_loop_outcome, loop, &outcome));
  EXPECT_EQ(outcome.roll_backs, 1);
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  holdfast_close(cluster);
  holdfast_loop_free(loop);
  ExpectDone();
}

TEST_F(FaultsTest, AStrictLoopEndsWithTheRollBackAndTheNextOneGoesOn) {
  StartWithCheckpoints(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster =
      Ready(Worker(0), absl::StrCat(Synchronous(4), kPatient));
  holdfast_loop* loop = StartLoop(cluster, /*strict=*/true);
  holdfast_turn turn;
  ASSERT_OK(Next(loop, &turn));
  Push(loop);
  ASSERT_OK(Next(loop, &turn));
  uint64_t step = 0;
  ASSERT_OK(Call(holdfast_save_checkpoint, cluster, int64_t{-1}, &step));
  EXPECT_EQ(step, 1);
  Push(loop);
  ASSERT_OK(Next(loop, &turn));
  EXPECT_EQ(turn.step, 2);
  cluster_->Restart(1);
  Push(loop);
  for (int i = 0; i < 2; ++i) {
    const Result result = Next(loop, &turn);
    EXPECT_EQ(result.kind, HOLDFAST_ROLLED_BACK) << result.message;
    EXPECT_EQ(result.exit_code, 138);
  }
  holdfast_loop_free(loop);

  loop = StartLoop(cluster, /*strict=*/true);
  std::vector<std::string> turns;
  for (;;) {
    ASSERT_OK(Next(loop, &turn));
    if (turn.done) break;
    turns.push_back(absl::StrCat("batch ", turn.batch, " at ", FirstValue(loop),
                                 turn.rolled_back ? ", rolled back" : ""));
    Push(loop);
  }
  EXPECT_THAT(turns, ElementsAre("batch 1 at 9, rolled back", "batch 2 at 8",
                                 "batch 3 at 7"));
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  holdfast_close(cluster);
  holdfast_loop_free(loop);
  ExpectDone();
}

TEST_F(FaultsTest, AWorkerEndsTheJob) {
  StartWithCheckpoints(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster =
      Ready(Worker(0), absl::StrCat(Synchronous(9), kPatient));
  holdfast_loop* const loop = StartLoop(cluster);
  holdfast_turn turn;
  ASSERT_OK(Next(loop, &turn));
  Push(loop);
  ASSERT_OK(Next(loop, &turn));
  // The second turn is not contributed.
  EXPECT_OK(Call(holdfast_finish, cluster, int64_t{-1}));
  EXPECT_OK(Call(holdfast_finish, cluster, int64_t{-1}));
  ASSERT_OK(Next(loop, &turn));
  EXPECT_TRUE(turn.done);
  EXPECT_EQ(turn.step, 1);
  EXPECT_EQ(FirstValue(loop), 10 - 1);
  EXPECT_OK(Call(holdfast_step_down, cluster, int32_t{1}, int64_t{-1}));
  holdfast_close(cluster);
  holdfast_loop_free(loop);
  ExpectDone();
}

TEST_F(FaultsTest, AJobThatWasFinishedBeforeHasItsValuesInTheCheckpoint) {
  const std::string text = absl::StrCat(Synchronous(2), kPatient);
  holdfast_turn turn;
  const std::string name = "/g0001-step00000002";
  const std::string aside = checkpoints_ + "-aside";
  std::filesystem::create_directory(aside);
  // In the second round the checkpoint is there, in the third it is not.
  for (const int round : {0, 1, 2}) {
    SCOPED_TRACE(round);
    const bool before = round > 0;
    StartWithCheckpoints(/*num_ps=*/2, /*num_workers=*/1);
    if (round == 2) std::filesystem::rename(checkpoints_ + name, aside + name);
    holdfast_cluster* const cluster = Ready(Worker(0), text);
    holdfast_loop* const loop = StartLoop(cluster);
    uint64_t turns = 0;
    for (;; ++turns) {
      ASSERT_OK(Next(loop, &turn));
      if (turn.done) break;
      Push(loop);
    }
    EXPECT_EQ(turns, before ? 0 : 2);
    size_t count = 0;
    EXPECT_OK(Call(holdfast_get_num_variables, cluster, &count));
    EXPECT_EQ(count, 3);
    if (round == 2) {
      const float* values[3] = {};
      holdfast_values* pulled = nullptr;
      for (const Result& result :
           {Call(holdfast_loop_values, loop, values, size_t{3}),
            Call(holdfast_loop_read_rows, loop, nullptr, size_t{0}, nullptr,
                 nullptr, int64_t{-1}),
            Call(holdfast_pull, cluster, uint64_t{0}, &pulled)}) {
        EXPECT_EQ(result.kind, HOLDFAST_UNAVAILABLE);
        EXPECT_EQ(result.exit_code, 0);
        EXPECT_THAT(result.message,
                    AllOf(HasSubstr("its last checkpoint, which holds them, "
                                    "cannot be read here: "),
                          HasSubstr("HOLDFAST_CHECKPOINT_DIR")));
      }
    } else {
      EXPECT_EQ(FirstValue(loop), 10 - 2);
      holdfast_values* pulled = nullptr;
      EXPECT_OK(Call(holdfast_pull, cluster, uint64_t{0}, &pulled));
      EXPECT_OK(Call(holdfast_values_wait, pulled, int64_t{-1}));
      holdfast_variable variable;
      EXPECT_OK(
          Call(holdfast_values_get_variable, pulled, size_t{0}, &variable));
      EXPECT_EQ(variable.data[0], 10 - 2);
      holdfast_values_free(pulled);
    }
    EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
    holdfast_close(cluster);
    holdfast_loop_free(loop);
    ExpectDone();
    cluster_.reset();
  }
  holdfast_values* values = nullptr;
  ASSERT_OK(Call(holdfast_load_checkpoint, (aside + name).c_str(), &values));
  holdfast_variable variable;
  ASSERT_OK(Call(holdfast_values_get_variable, values, size_t{0}, &variable));
  EXPECT_EQ(variable.data[0], 10 - 2);
  holdfast_values_free(values);
}

TEST_F(FaultsTest, AJobThatIsStoppedGoesOnWithTheNextStart) {
  const std::string text = absl::StrCat(Synchronous(6), kPatient);
  StartWithCheckpoints(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* cluster = Ready(Worker(0), text);
  holdfast_loop* loop = StartLoop(cluster);
  holdfast_turn turn;
  ASSERT_OK(Next(loop, &turn));
  Push(loop);
  ASSERT_OK(Next(loop, &turn));
  EXPECT_EQ(turn.step, 1);
  const auto stopped =
      RawClient(cluster_->address(0))
          .Call("Coordinator.Stop", "wait_ms: 30000", kPatience);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_THAT(*stopped, HasSubstr("phase: STOPPED"));
  Push(loop);
  for (int i = 0; i < 2; ++i) {
    const Result result = Next(loop, &turn);
    EXPECT_EQ(result.kind, HOLDFAST_STOPPED) << result.message;
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.message, HasSubstr("was stopped at step 1 of 6; "));
  }
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  holdfast_close(cluster);
  holdfast_loop_free(loop);
  ExpectDone();

  StartWithCheckpoints(/*num_ps=*/2, /*num_workers=*/1);
  cluster = Ready(Worker(0), text);
  loop = StartLoop(cluster);
  ASSERT_OK(Next(loop, &turn));
  EXPECT_EQ(turn.step, 1);
  EXPECT_EQ(turn.batch, 1);
  while (!turn.done) {
    Push(loop);
    ASSERT_OK(Next(loop, &turn));
  }
  EXPECT_EQ(FirstValue(loop), 10 - 6);
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  holdfast_close(cluster);
  holdfast_loop_free(loop);
  ExpectDone();
}

TEST_F(FaultsTest, AWorkerThatComesToAStoppedJobHasNoTurns) {
  const std::string text = absl::StrCat(Synchronous(6), kPatient);
  StartWithCheckpoints(/*num_ps=*/1, /*num_workers=*/2);
  holdfast_cluster* const chief = Ready(Worker(0), text);
  const auto stopped =
      RawClient(cluster_->address(0))
          .Call("Coordinator.Stop", "wait_ms: 30000", kPatience);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  holdfast_cluster* const late = Ready(Worker(1), text);
  holdfast_loop* const loop = StartLoop(late);
  holdfast_turn turn;
  holdfast_values* pulled = nullptr;
  for (const Result& result :
       {Next(loop, &turn), Call(holdfast_pull, late, uint64_t{0}, &pulled)}) {
    EXPECT_EQ(result.kind, HOLDFAST_STOPPED) << result.message;
    EXPECT_THAT(result.message, HasSubstr("was stopped at step 0 of 6; "));
  }
  for (holdfast_cluster* const cluster : {chief, late}) {
    EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
    holdfast_close(cluster);
  }
  holdfast_loop_free(loop);
  ExpectDone();
}

}  // namespace
}  // namespace holdfast
