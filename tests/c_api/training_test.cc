// SPDX-License-Identifier: Apache-2.0

// A worker that trains through the C API, on real ps servers over loopback.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/c_api/holdfast.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"
#include "tests/c_api/calls.h"

namespace holdfast {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST_F(CApiClusterTest, TrainsFromC) {
  for (const bool asynchronous : {false, true}) {
    for (const uint32_t num_ps : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(num_ps, " ps, asynchronous ", asynchronous));
      Start(num_ps, /*num_workers=*/2);
      const std::string text =
          asynchronous
              ? absl::StrCat(kVariables,
                             "consistency { asynchronous { pipeline_depth: 2 } "
                             "} total_steps: 6 total_tickets: 6")
              : Synchronous(6);
      std::vector<std::future<std::string>> workers;
      std::vector<double> sums(2);
      for (int index = 0; index < 2; ++index) {
        workers.push_back(std::async(std::launch::async, [&, index] {
          const Options worker = Worker(index);
          const auto options = worker.Get();
          char* const error = TrainInC(options.data(), options.size(),
                                       text.c_str(), 1, &sums[index]);
          const std::string copy = error == nullptr ? "" : error;
          std::free(error);
          return copy;
        }));
      }
      for (auto& worker : workers) EXPECT_EQ(worker.get(), "");
      // Six steps of 1: 10 - 6 six times, 7 five times, -6.
      EXPECT_THAT(sums, ElementsAre(53, 53));
      ExpectDone();
      cluster_.reset();
    }
  }
}

TEST_F(CApiClusterTest, TellsOfPlaceVariablesStatusAndOutcome) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  holdfast_place place;
  ASSERT_OK(Call(holdfast_get_place, cluster, &place));
  EXPECT_STREQ(place.job, "worker");
  EXPECT_EQ(place.index, 0);
  EXPECT_EQ(place.replica, 0);
  EXPECT_EQ(place.num_replicas, 1);
  EXPECT_EQ(place.num_ps, 2);
  EXPECT_EQ(place.is_chief, 1);

  // Errors before there are variables.
  size_t count = 0;
  holdfast_loop* loop = nullptr;
  holdfast_values* values = nullptr;
  char* text = nullptr;
  for (const Result& result :
       {Call(holdfast_get_num_variables, cluster, &count),
        Call(holdfast_get_declaration, cluster, &text),
        Call(holdfast_await_variables, cluster, int64_t{-1}),
        Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop),
        Call(holdfast_pull, cluster, uint64_t{0}, &values)}) {
    EXPECT_EQ(result.kind, HOLDFAST_INVALID) << result.message;
    EXPECT_THAT(result.message,
                ::testing::MatchesRegex(
                    ".*: call holdfast_(declare|await_variables) first"));
  }

  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(2).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(2).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  EXPECT_EQ(Call(holdfast_declare, cluster, Synchronous(3).c_str(), nullptr,
                 size_t{0}, int64_t{-1})
                .kind,
            HOLDFAST_REFUSED);
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  ASSERT_OK(Call(holdfast_get_num_variables, cluster, &count));
  ASSERT_EQ(count, 3);
  std::vector<std::string> variables;
  for (size_t i = 0; i < count; ++i) {
    holdfast_variable variable;
    ASSERT_OK(Call(holdfast_get_variable, cluster, i, &variable));
    EXPECT_EQ(variable.data, nullptr);
    variables.push_back(absl::StrCat(variable.name, " ", variable.rank, " ",
                                     variable.elements, " ", variable.trainable,
                                     " ", variable.moving_average));
  }
  EXPECT_THAT(variables,
              ElementsAre("w 2 6 1 0", "frozen 1 5 0 0", "b 0 1 1 0"));
  holdfast_variable variable;
  EXPECT_EQ(Call(holdfast_get_variable, cluster, size_t{3}, &variable).kind,
            HOLDFAST_INVALID);
  ASSERT_OK(Call(holdfast_get_declaration, cluster, &text));
  EXPECT_THAT(Take(text), HasSubstr("total_num_replicas: 1"));

  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_loop* second = nullptr;
  EXPECT_THAT(
      Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &second).message,
      HasSubstr("a loop already exists"));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.done, 0);
  EXPECT_EQ(turn.batch, 0);
  EXPECT_EQ(turn.loss_scale, 1);

  // Into memory of the caller, except for "frozen".
  std::vector<float> w(6), b(1);
  float* const into[] = {w.data(), nullptr, b.data()};
  const size_t sizes[] = {6, 0, 1};
  ASSERT_OK(Call(holdfast_loop_read, loop, into, sizes, size_t{3}));
  EXPECT_EQ(w, std::vector<float>(6, 10));
  const size_t wrong[] = {5, 0, 1};
  EXPECT_THAT(Call(holdfast_loop_read, loop, into, wrong, size_t{3}).message,
              HasSubstr("variable \"w\" has 6 elements, not 5"));
  EXPECT_THAT(Call(holdfast_loop_read, loop, into, sizes, size_t{2}).message,
              HasSubstr("3 variables, not 2"));

  // One by one.
  EXPECT_THAT(
      Call(holdfast_loop_add, loop, size_t{0}, w.data(), size_t{5}).message,
      HasSubstr("gradient has 5 elements"));
  ASSERT_OK(Call(holdfast_loop_add, loop, size_t{2}, b.data(), size_t{1}));
  EXPECT_THAT(
      Call(holdfast_loop_contribute, loop, uint64_t{1}, 0.5, 1.f).message,
      HasSubstr("the first is of \"w\""));
  std::thread hook([&] {
    EXPECT_OK(Call(holdfast_loop_add, loop, size_t{0}, w.data(), size_t{6}));
  });
  hook.join();
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{1}, 0.5, 1.f));
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.step, 1);
  holdfast_outcome outcome;
  ASSERT_OK(Call(holdfast_loop_outcome, loop, &outcome));
  EXPECT_EQ(outcome.verdict, HOLDFAST_ACCEPTED);
  EXPECT_EQ(outcome.accepted, 1);

  ASSERT_OK(Call(holdfast_get_status, cluster, int64_t{-1}, &text));
  EXPECT_THAT(Take(text), HasSubstr("\"global_step\":\"1\""));
  EXPECT_OK(Call(holdfast_report_evaluation, cluster, uint64_t{1}, uint64_t{8},
                 0.5, 0.75, std::nan(""), int64_t{-1}));
  // There is no checkpoint directory.
  uint64_t step = 0;
  EXPECT_NE(Call(holdfast_save_checkpoint, cluster, int64_t{-1}, &step).kind,
            HOLDFAST_OK);

  // All current values, by another call.
  ASSERT_OK(Call(holdfast_pull, cluster, uint64_t{1}, &values));
  EXPECT_OK(Call(holdfast_values_wait, values, int64_t{-1}));
  ASSERT_OK(Call(holdfast_values_get_step, values, &step));
  EXPECT_EQ(step, 1);
  ASSERT_OK(Call(holdfast_values_get_variable, values, size_t{0}, &variable));
  EXPECT_EQ(variable.data[5], 0);
  holdfast_values_free(values);

  const float* const gradients[] = {w.data(), nullptr, b.data()};
  ASSERT_OK(Call(holdfast_loop_push, loop, gradients, sizes, size_t{3},
                 uint64_t{1}, std::nan(""), HOLDFAST_CLIP_AS_DECLARED));
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.done, 1);
  EXPECT_EQ(turn.step, 2);
  ASSERT_OK(Call(holdfast_loop_outcome, loop, &outcome));
  EXPECT_EQ(outcome.not_finite, 1);
  const float* final_values[3];
  ASSERT_OK(Call(holdfast_loop_values, loop, final_values, size_t{3}));
  EXPECT_EQ(final_values[0][5], 0);
  EXPECT_EQ(final_values[1][4], 7);
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  EXPECT_THAT(Call(holdfast_get_status, cluster, int64_t{-1}, &text).message,
              HasSubstr("has left the cluster"));
  holdfast_close(cluster);
  // The memory stays valid; the loop was freed with its cluster.
  EXPECT_EQ(final_values[0][5], 0);
  EXPECT_EQ(Call(holdfast_loop_next, loop, int64_t{-1}, &turn).kind,
            HOLDFAST_BAD_HANDLE);
  holdfast_loop_free(loop);
  ExpectDone();
}

TEST_F(CApiClusterTest, ATurnIsKeptUntilItIsContributed) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster = Ready(Worker(0), Synchronous(2));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn = {};
  int32_t state = -1;
  ASSERT_OK(Call(holdfast_loop_current, loop, &turn, &state));
  EXPECT_EQ(state, HOLDFAST_TURN_NEXT);
  EXPECT_EQ(Call(holdfast_loop_restart, loop).kind, HOLDFAST_INVALID);
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));

  const std::vector<float> w(6, 1);
  const std::vector<float> wrong(6, 100);
  const float b = 2;
  const size_t elements[] = {6, 0, 1};
  const float* gradients[] = {wrong.data(), nullptr, &b};
  // Of a push that fails nothing is handed in.
  const size_t too_many[] = {6, 0, 2};
  EXPECT_EQ(Call(holdfast_loop_push, loop, gradients, too_many, size_t{3},
                 uint64_t{1}, 0.0, 1.f)
                .kind,
            HOLDFAST_INVALID);
  for (const auto& [examples, factor] : std::vector<std::pair<uint64_t, float>>{
           {1, 1.5f}, {uint64_t{1} << 63, 1.f}}) {
    EXPECT_EQ(Call(holdfast_loop_push, loop, gradients, elements, size_t{3},
                   examples, 0.0, factor)
                  .kind,
              HOLDFAST_INVALID);
  }
  // Nor what was handed in before a restart.
  ASSERT_OK(Call(holdfast_loop_add, loop, size_t{0}, wrong.data(), size_t{6}));
  ASSERT_OK(Call(holdfast_loop_restart, loop));
  ASSERT_OK(Call(holdfast_loop_current, loop, &turn, &state));
  EXPECT_EQ(state, HOLDFAST_TURN_HANDED_OUT);
  EXPECT_EQ(turn.batch, 0);
  EXPECT_EQ(turn.number, 1);
  for (int step = 0; step < 2; ++step) {
    gradients[0] = w.data();
    ASSERT_OK(Call(holdfast_loop_push, loop, gradients, elements, size_t{3},
                   uint64_t{1}, 0.0, 1.f));
    ASSERT_OK(Call(holdfast_loop_current, loop, &turn, &state));
    EXPECT_EQ(state, HOLDFAST_TURN_NEXT);
    ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  }
  ASSERT_OK(Call(holdfast_loop_current, loop, &turn, &state));
  EXPECT_EQ(state, HOLDFAST_TURN_DONE);
  EXPECT_EQ(turn.step, 2);
  const float* values[3];
  ASSERT_OK(Call(holdfast_loop_values, loop, values, size_t{3}));
  EXPECT_THAT(std::vector<float>(values[0], values[0] + 6), Each(8));
  EXPECT_EQ(*values[2], -4);
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  holdfast_loop_free(loop);
  holdfast_close(cluster);
  ExpectDone();
}

TEST_F(CApiClusterTest, AWaitForInputIsTold) {
  StartWithCheckpoints(/*num_ps=*/1, /*num_workers=*/1);
  const std::string trace = absl::StrCat(testing::TempDir(), "/trace.json");
  holdfast_cluster* const cluster =
      Ready(Worker(0).Set("trace", trace), Synchronous(1));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  ASSERT_OK(Call(holdfast_loop_input, loop, 1));
  // The worker reports the wait with its lease, and its share of the time after
  // a second.
  const absl::Time deadline = SteadyNow() + absl::Seconds(30);
  std::string status;
  do {
    char* json = nullptr;
    ASSERT_OK(Call(holdfast_get_status, cluster, int64_t{-1}, &json));
    status = Take(json);
  } while (status.find("\"input_wait\"") == std::string::npos &&
           SteadyNow() < deadline);
  EXPECT_THAT(status, HasSubstr("\"waiting_for\":\"input\""));
  EXPECT_THAT(status, HasSubstr("\"input_wait\":{\"recent\":0."));
  ASSERT_OK(Call(holdfast_loop_input, loop, 0));
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.done, 1);
  EXPECT_OK(Call(holdfast_loop_input, loop, 1));
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  holdfast_loop_free(loop);
  holdfast_close(cluster);
  std::ifstream file(trace);
  const std::string spans((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(spans, HasSubstr("\"name\":\"input\""));
}

TEST_F(CApiClusterTest, AWorkerLeavesWithAReason) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster = Ready(Worker(0), Synchronous(5));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_OK(Call(holdfast_leave, cluster, "no more data", int64_t{-1}));
  EXPECT_EQ(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f).kind,
            HOLDFAST_OK);
  EXPECT_EQ(Call(holdfast_loop_next, loop, int64_t{-1}, &turn).kind,
            HOLDFAST_INVALID);
  EXPECT_THAT(std::string(cluster_->Wait(0).message()),
              HasSubstr("no more data"));
  holdfast_close(cluster);
  holdfast_loop_free(loop);
}

struct Lines {
  absl::Mutex mutex;
  std::vector<std::string> lines;
};

TEST_F(CApiClusterTest, TheLogGoesWhereItIsTold) {
  Lines lines;
  const auto sink = [](void* context, int32_t severity, const char* line) {
    auto* const into = static_cast<Lines*>(context);
    absl::MutexLock lock(&into->mutex);
    into->lines.push_back(absl::StrCat(severity, " ", line));
  };
  const auto run = [&](int32_t least) {
    holdfast_set_log(least, sink, &lines);
    // The ps logs to the same log, because it is in this process.
    Start(/*num_ps=*/1, /*num_workers=*/1);
    holdfast_close(Ready(Worker(0), Synchronous(5)));
    cluster_.reset();
    holdfast_set_log(HOLDFAST_LOG_WARNING, nullptr, nullptr);
  };
  run(HOLDFAST_LOG_NONE);
  EXPECT_THAT(lines.lines, IsEmpty());
  run(HOLDFAST_LOG_INFO);
  EXPECT_THAT(lines.lines, Contains(StartsWith("0 ")));
}

}  // namespace
}  // namespace holdfast
