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

Result Agree(holdfast_cluster* cluster,
             const std::vector<holdfast_option>& facts) {
  return Call(holdfast_agree, cluster, facts.data(), facts.size(), int64_t{-1});
}

TEST_F(CApiClusterTest, FactsOfTheTextAreEveryWorkers) {
  Start(/*num_ps=*/1, /*num_workers=*/3);
  const auto with = [](const std::string& name, const std::string& value) {
    return absl::StrCat(Synchronous(5), " agreed { key: \"", name,
                        "\" value: \"", value, "\" }");
  };
  holdfast_cluster* const chief = Ready(Worker(0), with("length", "60000"));
  // Known only to worker 1, which is no chief.
  holdfast_cluster* const other = Ready(Worker(1), with("seed", "7"));
  holdfast_cluster* const refused = Connect(Worker(2));
  const auto declare = [&](const std::string& text) {
    EXPECT_OK(Call(holdfast_declare, refused, text.c_str(), nullptr, size_t{0},
                   int64_t{-1}));
    return Call(holdfast_await_variables, refused, int64_t{-1});
  };
  const Result result = declare(with("length", "50000"));
  EXPECT_EQ(result.kind, HOLDFAST_REFUSED);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.message,
              HasSubstr("/job:worker/task:2 has length 50000, the job has "
                        "60000: it must be the same in every worker"));
  EXPECT_THAT(declare(with("seed", "8")).message,
              HasSubstr("seed 8, the job has 7"));
  EXPECT_OK(declare(with("seed", "7")));
  EXPECT_THAT(Agree(chief, {{"seed", "8"}}).message,
              HasSubstr("/job:worker/task:0 has seed 8, the job has 7"));
  holdfast_close(refused);
  holdfast_close(other);
  holdfast_close(chief);
}

TEST_F(CApiClusterTest, FactsAreAgreedOnLater) {
  Start(/*num_ps=*/1, /*num_workers=*/2);
  holdfast_cluster* const other = Connect(Worker(1));
  EXPECT_THAT(Agree(other, {{"a", "1"}}).message,
              HasSubstr("call holdfast_await_variables first"));
  holdfast_cluster* const chief = Ready(Worker(0), Synchronous(5));
  ASSERT_OK(Call(holdfast_await_variables, other, int64_t{-1}));
  EXPECT_OK(Agree(other, {{"a", "1"}, {"b", "2"}}));
  EXPECT_OK(Agree(chief, {{"b", "2"}, {"c", "3"}}));
  EXPECT_OK(Agree(chief, {}));
  const Result result = Agree(other, {{"c", "4"}});
  EXPECT_EQ(result.kind, HOLDFAST_REFUSED);
  EXPECT_THAT(result.message,
              HasSubstr("/job:worker/task:1 has c 4, the job has 3"));
  EXPECT_OK(Agree(other, {{"c", "3"}}));  // It may correct itself.

  EXPECT_THAT(Agree(chief, {{"d", nullptr}}).message, HasSubstr("facts"));
  EXPECT_THAT(Agree(chief, {{"d", "1"}, {"d", "2"}}).message,
              HasSubstr("two values for \"d\""));
  EXPECT_THAT(Agree(chief, {{"\xff", "1"}}).message,
              HasSubstr("not UTF-8, as those of \"\\xff\""));
  const Result too_long = Agree(chief, {{"d", std::string(257, 'd').c_str()}});
  EXPECT_EQ(too_long.kind, HOLDFAST_INVALID);
  EXPECT_THAT(too_long.message, HasSubstr("at most 256 bytes"));
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
