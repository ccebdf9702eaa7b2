// SPDX-License-Identifier: Apache-2.0

// What a worker declares through the C API, on real ps servers over loopback.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c_api/holdfast.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"

namespace holdfast {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(CApiClusterTest, FirstValuesAreTheChiefs) {
  Start(/*num_ps=*/2, /*num_workers=*/2);
  const std::string text = R"(
    variables { name: "w" shape: 3 dtype: FLOAT32 initializer { given {} } }
    variables { name: "b" dtype: FLOAT32 initializer { zeros {} } }
    optimizers { learning_rate: 1 sgd {} }
    consistency { synchronous {} } total_steps: 1)";
  holdfast_cluster* const chief = Connect(Worker(0));
  std::vector<float> w = {1, 2, 3};
  const float* wrong[] = {w.data(), w.data()};
  EXPECT_THAT(
      Call(holdfast_declare, chief, text.c_str(), wrong, size_t{2}, int64_t{-1})
          .message,
      HasSubstr("variable \"b\": first values are given"));
  EXPECT_THAT(Call(holdfast_declare, chief, text.c_str(), nullptr, size_t{0},
                   int64_t{-1})
                  .message,
              HasSubstr("variable \"w\": its initializer is `given`"));
  const float* given[] = {w.data(), nullptr};
  ASSERT_OK(Call(holdfast_declare, chief, text.c_str(), given, size_t{2},
                 int64_t{-1}));
  w = {0, 0, 0};  // The values were copied.
  // Continues in the background.
  const Result begun = Call(holdfast_await_variables, chief, int64_t{0});
  EXPECT_THAT(begun.kind, AnyOf(HOLDFAST_OK, HOLDFAST_TIMED_OUT))
      << begun.message;
  holdfast_cluster* const other = Ready(Worker(1), text);
  ASSERT_OK(Call(holdfast_await_variables, chief, int64_t{-1}));
  holdfast_values* values = nullptr;
  ASSERT_OK(Call(holdfast_pull, other, uint64_t{0}, &values));
  ASSERT_OK(Call(holdfast_values_wait, values, int64_t{-1}));
  holdfast_variable variable;
  ASSERT_OK(Call(holdfast_values_get_variable, values, size_t{0}, &variable));
  EXPECT_THAT(std::vector<float>(variable.data, variable.data + 3),
              ElementsAre(1, 2, 3));
  holdfast_values_free(values);
  EXPECT_OK(Call(holdfast_leave, other, "that is all", int64_t{-1}));
  holdfast_close(other);
  holdfast_close(chief);
}

TEST_F(CApiClusterTest, AnotherDeclarationIsRefused) {
  Start(/*num_ps=*/1, /*num_workers=*/2);
  holdfast_cluster* const chief = Ready(Worker(0), Synchronous(5));
  holdfast_cluster* const other = Connect(Worker(1));
  ASSERT_OK(Call(holdfast_declare, other, Synchronous(6).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  const Result result = Call(holdfast_await_variables, other, int64_t{-1});
  EXPECT_EQ(result.kind, HOLDFAST_REFUSED);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.task, "/job:worker/task:1");
  EXPECT_THAT(result.message, HasSubstr("total_steps: 5 -> 6"));

  holdfast_close(other);
  holdfast_close(chief);
}

TEST_F(CApiClusterTest, ATextThatCannotBeReadIsToldWithItsLine) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  const auto declare = [&](const std::string& text) {
    return Call(holdfast_declare, cluster, text.c_str(), nullptr, size_t{0},
                int64_t{-1});
  };
  const Result unread = declare("seed: 1\ntotal_stesp: 3");
  EXPECT_EQ(unread.kind, HOLDFAST_INVALID);
  EXPECT_THAT(unread.message, HasSubstr("line 2"));
  EXPECT_THAT(unread.message, HasSubstr("total_stesp"));
  const Result broken = declare(absl::StrCat(
      kVariables, "consistency { synchronous {} } total_steps: 0"));
  EXPECT_EQ(broken.kind, HOLDFAST_INVALID);
  EXPECT_THAT(broken.message, HasSubstr("total_steps"));
  EXPECT_OK(declare(Synchronous(1)));
  holdfast_close(cluster);
}

}  // namespace
}  // namespace holdfast
