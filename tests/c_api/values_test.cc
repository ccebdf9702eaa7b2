// SPDX-License-Identifier: Apache-2.0

// Where the values are that the C API reads from real ps servers over loopback,
// and how long they stay.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "client/c_api/holdfast.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

TEST_F(CApiClusterTest, AReaderReads) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const worker = Ready(Worker(0), Synchronous(5));
  holdfast_cluster* const reader =
      Connect(Options(cluster_->spec(), "client", 0));
  EXPECT_EQ(
      Call(holdfast_declare, reader, "", nullptr, size_t{0}, int64_t{-1}).kind,
      HOLDFAST_INVALID);
  ASSERT_OK(Call(holdfast_await_variables, reader, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  EXPECT_EQ(Call(holdfast_loop_start, reader, nullptr, size_t{0}, &loop).kind,
            HOLDFAST_INVALID);
  holdfast_values* values = nullptr;
  ASSERT_OK(Call(holdfast_pull, reader, uint64_t{0}, &values));
  ASSERT_OK(Call(holdfast_values_wait, values, int64_t{-1}));
  holdfast_close(reader);
  // Values that have been received belong to the caller.
  holdfast_variable variable;
  ASSERT_OK(Call(holdfast_values_get_variable, values, size_t{1}, &variable));
  EXPECT_EQ(variable.data[0], 7);
  holdfast_values_free(values);
  holdfast_close(worker);
}

TEST_F(CApiClusterTest, WritesValuesToTheCallersMemory) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(2).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  // "frozen" stays in the loop's memory.
  std::vector<float> w(6), b(1);
  float* const memory[] = {w.data(), nullptr, b.data()};
  const size_t sizes[] = {6, 0, 1};
  const size_t wrong[] = {5, 0, 1};
  holdfast_loop* loop = nullptr;
  const auto start = [&](const size_t* elements, size_t count) {
    return Call(holdfast_loop_start_in, cluster, memory, elements, count,
                nullptr, size_t{0}, &loop);
  };
  EXPECT_THAT(start(sizes, 2).message, HasSubstr("3 variables, not 2"));
  EXPECT_THAT(start(wrong, 3).message,
              HasSubstr("variable \"w\" has 6 elements, not 5"));
  ASSERT_OK(start(sizes, 3));

  const std::vector<float> ones(6, 1);
  const float* const gradients[] = {ones.data(), nullptr, ones.data()};
  std::vector<float> before = w;
  holdfast_turn turn;
  for (int turns = 0; turns < 3; ++turns) {
    ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
    EXPECT_NE(w, std::exchange(before, w));
    EXPECT_EQ(w, std::vector<float>(6, w[0]));
    const float* values[3];
    ASSERT_OK(Call(holdfast_loop_values, loop, values, size_t{3}));
    EXPECT_EQ(values[0], w.data());
    EXPECT_EQ(values[2], b.data());
    if (turn.done) break;
    ASSERT_OK(Call(holdfast_loop_push, loop, gradients, sizes, size_t{3},
                   uint64_t{1}, 0.5, 1.f));
  }
  EXPECT_EQ(turn.done, 1);
  holdfast_close(cluster);
  holdfast_loop_free(loop);
}

TEST_F(CApiClusterTest, ValuesThatAreTakenStayAsTheyAre) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(3).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  const std::vector<float> ones(6, 1);
  const float* const gradients[] = {ones.data(), nullptr, ones.data()};
  const size_t sizes[] = {6, 0, 1};
  holdfast_values* taken[4];
  const float* data[4][3];
  std::vector<float> first;
  for (int turns = 0; turns < 4; ++turns) {
    holdfast_turn turn;
    ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
    EXPECT_EQ(turn.done, turns == 3);
    EXPECT_THAT(Call(holdfast_loop_take_values, loop, data[turns], size_t{2},
                     &taken[turns])
                    .message,
                HasSubstr("3 variables, not 2"));
    ASSERT_OK(Call(holdfast_loop_take_values, loop, data[turns], size_t{3},
                   &taken[turns]));
    first.push_back(data[turns][0][0]);
    // The other call gives the same values.
    const float* values[3];
    ASSERT_OK(Call(holdfast_loop_values, loop, values, size_t{3}));
    EXPECT_EQ(values[0][5], data[turns][0][5]);
    float* memory = nullptr;
    EXPECT_OK(Call(holdfast_loop_memory, loop, size_t{7}, &memory));
    EXPECT_EQ(memory, nullptr);
    if (turn.done) break;
    ASSERT_OK(Call(holdfast_loop_push, loop, gradients, sizes, size_t{3},
                   uint64_t{1}, 0.5, 1.f));
  }
  holdfast_loop_free(loop);
  holdfast_close(cluster);
  for (int turns = 0; turns < 4; ++turns) {
    uint64_t step = 9;
    EXPECT_OK(Call(holdfast_values_get_step, taken[turns], &step));
    EXPECT_EQ(step, turns);
    holdfast_variable variable;
    ASSERT_OK(
        Call(holdfast_values_get_variable, taken[turns], size_t{0}, &variable));
    EXPECT_EQ(variable.data, data[turns][0]);
    EXPECT_EQ(variable.data[0], first[turns]);
    if (turns > 0) {
      EXPECT_NE(first[turns], first[turns - 1]);
    }
    holdfast_values_free(taken[turns]);
  }
}

}  // namespace
}  // namespace holdfast
