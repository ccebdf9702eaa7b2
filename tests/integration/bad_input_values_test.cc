// SPDX-License-Identifier: Apache-2.0

// Like bad_input_test.cc, while the chief gives first values.

#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/bad_input_testing.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

// The first values of "w" are given: ones.
class GivenBadInputTest : public BadInputTest {
 protected:
  GivenBadInputTest()
      : BadInputTest(absl::StrReplaceAll(
                         kDeclaration, {{"constant { value: 10 }",
                                         "given { sha256: "
                                         "'f46913286d895f62d646314f400fc3d7a543"
                                         "cf34eb4ae56df87f43dc4582a36b' }"}}),
                     /*gives_values=*/true) {}
};

TEST_F(GivenBadInputTest, TrainingBeginsWithTheDeclaredValues) {
  const std::string w = "tensors { variable: 'w' data: '" + Ones(6) + "' } ";
  const std::string others =
      "tensors { variable: 'w' data: '" + Threes(6) + "' } ";
  Try({
      {0, "Shard.Give", "", {"INVALID_ARGUMENT", "sender: must be set"}},
      {0,
       "Shard.Give",
       "sender { task { job: 'worker' index: 2 } incarnation: 1 "
       "generation: 1 } " +
           w,
       {"INVALID_ARGUMENT", "only a worker of the cluster",
        "/job:worker/task:2"}},
      {0,
       "Shard.Give",
       "sender { task { job: 'client' } generation: 1 } " + w,
       {"INVALID_ARGUMENT", "only a worker of the cluster"}},
      {0,
       "Shard.Give",
       "<w1 of 0> " + w,
       {"ABORTED", "speaks in generation 0"}},
      {0,
       "Shard.Give",
       "<w1 of 2> " + w,
       {"UNAVAILABLE", "is not in generation 2 yet"}},
      {0,
       "Shard.Give",
       "<w1> " + others,
       {"INVALID_ARGUMENT", "first values of variable \"w\"",
        "elements 0 to 5 are not those that were declared",
        "given by /job:worker/task:1"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' data: '" + Ones(5) + "' }",
       {"INVALID_ARGUMENT",
        "variable \"w\": 20 bytes from element 0, expected "
        "the range of 6 elements"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' }",
       {"INVALID_ARGUMENT", "variable \"w\": 0 bytes"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' encoding: FLOAT16 data: '" + Ones(6) +
           "' }",
       {"INVALID_ARGUMENT", "EXACT"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' encoding: 99 data: '" + Ones(6) + "' }",
       {"INVALID_ARGUMENT", "EXACT"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' begin: 1 data: '" + Ones(5) + "' }",
       {"INVALID_ARGUMENT", "no range begins at element 1"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' begin: 18446744073709289472 data: '" +
           Ones(6) + "' }",
       {"INVALID_ARGUMENT", "no range begins at element 18446744073709289472"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'b' data: '" + Ones(1) + "' }",
       {"INVALID_ARGUMENT", "variable \"b\": they are not given on this ps"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'none' }",
       {"INVALID_ARGUMENT",
        "variable \"none\": they are not given on this ps"}},
      // No variable exists before all values are given.
      {0,
       "Shard.Push",
       "<w1> sequence: 1 num_parts: 1",
       {"UNAVAILABLE", "is not in generation 1 yet"}},
      {0,
       "Shard.Pull",
       "<w1> min_version: 0 ranges { variable: 'w' size: 6 }",
       {"UNAVAILABLE", "is not in generation 1 yet"}},
      {0,
       "Coordinator.GetPlacement",
       "<w1> wait_ms: 30000 values_given_through: 0",
       {"OK", "values_wanted: true"}},
      {0,
       "Coordinator.Declare",
       "<w1> declaration { variables { name: 'w' shape: 6 dtype: FLOAT32 "
       "initializer { given { sha256: 'abc' } } } optimizers { sgd {} "
       "learning_rate: 1 } consistency { synchronous {} } total_steps: 2 }",
       {"INVALID_ARGUMENT",
        "variable \"w\": given.sha256[0]: not 64 "
        "lower-case hexadecimal digits"}},
      {0, "Shard.Give", "<w1>", {"OK", "wanted { variable: \"w\" size: 6 }"}},
      // Ps 1 has all of its values, and ignores these.
      {1, "Shard.Give", "<w1> " + w, {"OK generation: 1"}},
      {0, "Shard.Give", "<w1> " + w, {"OK generation: 1"}},
      {0, "Shard.Give", "<w0> " + others, {"OK generation: 1"}},
      {0,
       "Coordinator.GetPlacement",
       "<w1> wait_ms: 30000 values_given_through: 1",
       {"OK", "ready: true"}},
  });
  const std::string one = "\\000\\000\\200?";
  EXPECT_THAT(Pull(0, 0, "ranges { variable: 'w' size: 6 }"),
              HasSubstr("data: \"" + one + one + one + one + one + one + "\""));
  TrainStep(0, 1);
}

}  // namespace
}  // namespace holdfast
