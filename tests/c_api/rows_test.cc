// SPDX-License-Identifier: Apache-2.0

// Rows of embedding tables through the C API, against real ps servers.

#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c_api/holdfast.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"

namespace holdfast {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kLast = ~uint64_t{0};

// Two variables and two tables; a gradient of 1 subtracts 1.
constexpr char kTables[] = R"(
  variables { name: "w" shape: 2 dtype: FLOAT32
              initializer { constant { value: 10 } } }
  tables { name: "t" row_length: 2 max_rows_per_push: 3
           initializer { constant { value: 5 } } }
  tables { name: "u" row_length: 4 max_rows_per_push: 8
           initializer { uniform { low: 1 high: 2 } } }
  optimizers { learning_rate: 1 sgd {} }
)";
std::string Synchronous(int steps) {
  return absl::StrCat(kTables,
                      "consistency { synchronous {} } total_steps: ", steps,
                      " timeouts { recovery_seconds: 60 }");
}

// Rows of one table.
struct Rows {
  size_t table;
  std::vector<uint64_t> ids;

  holdfast_rows get() const { return {table, ids.data(), ids.size()}; }
};

// A worker's cluster and loop.
class Trainer {
 public:
  Trainer(const Options& options, const std::string& declaration)
      : cluster_(Ready(options, declaration)) {
    EXPECT_OK(Call(holdfast_loop_start, cluster_, nullptr, size_t{0}, &loop_));
  }
  ~Trainer() {
    holdfast_loop_free(loop_);
    holdfast_close(cluster_);
  }

  holdfast_cluster* cluster() { return cluster_; }
  holdfast_loop* loop() { return loop_; }
  holdfast_turn Next() {
    holdfast_turn turn = {};
    EXPECT_OK(Call(holdfast_loop_next, loop_, int64_t{-1}, &turn));
    return turn;
  }

  Result TryRead(const Rows& rows, std::vector<float>* into) {
    const holdfast_rows asked = rows.get();
    float* const memory = into->data();
    const size_t elements = into->size();
    return Call(holdfast_loop_read_rows, loop_, &asked, size_t{1}, &memory,
                &elements, int64_t{-1});
  }
  // Rows of "t".
  std::vector<float> Read(const std::vector<uint64_t>& ids) {
    std::vector<float> values(2 * ids.size());
    EXPECT_OK(TryRead({0, ids}, &values));
    return values;
  }
  Result WantRows(const Rows& rows) {
    const holdfast_rows wanted = rows.get();
    return Call(holdfast_loop_want_rows, loop_, &wanted, size_t{1});
  }
  Result AddRows(const Rows& rows, const std::vector<float>& gradients) {
    const holdfast_rows added = rows.get();
    return Call(holdfast_loop_add_rows, loop_, &added, gradients.data(),
                gradients.size());
  }
  // Pushes a gradient of ones for "w".
  void Push() {
    const float ones[] = {1, 1};
    const float* const gradients[] = {ones};
    const size_t elements[] = {2};
    EXPECT_OK(Call(holdfast_loop_push, loop_, gradients, elements, size_t{1},
                   uint64_t{1}, 0.5, HOLDFAST_CLIP_AS_DECLARED));
  }
  void Leave() {
    EXPECT_OK(Call(holdfast_leave, cluster_, nullptr, int64_t{-1}));
  }

 private:
  holdfast_cluster* const cluster_;
  holdfast_loop* loop_ = nullptr;
};

class RowsTest : public CApiClusterTest {};

TEST_F(RowsTest, TablesAreTold) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  size_t count = 0;
  holdfast_table table;
  for (const Result& result :
       {Call(holdfast_get_num_tables, cluster, &count),
        Call(holdfast_get_table, cluster, size_t{0}, &table)}) {
    EXPECT_EQ(result.kind, HOLDFAST_INVALID);
    EXPECT_THAT(result.message, HasSubstr("holdfast_await_variables"));
  }
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(1).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  ASSERT_OK(Call(holdfast_get_num_tables, cluster, &count));
  EXPECT_EQ(count, 2);
  ASSERT_OK(Call(holdfast_get_table, cluster, size_t{1}, &table));
  EXPECT_STREQ(table.name, "u");
  EXPECT_EQ(table.row_length, 4);
  EXPECT_EQ(table.max_rows_per_push, 8);
  EXPECT_EQ(Call(holdfast_get_table, cluster, size_t{2}, &table).message,
            "there is no table 2, only 2");
  holdfast_close(cluster);
}

// Of one table, without variables.
std::string Alone(const std::string& consistency) {
  return absl::StrCat(R"(
    tables { name: "t" row_length: 2 max_rows_per_push: 3
             initializer { constant { value: 5 } } }
    optimizers { learning_rate: 1 sgd {} } total_steps: 3
    timeouts { recovery_seconds: 60 } consistency { )",
                      consistency, " {} }");
}

TEST_F(RowsTest, AJobMayHaveTablesAlone) {
  for (const std::string consistency : {"synchronous", "asynchronous"}) {
    for (const uint32_t num_ps : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(consistency, ", ", num_ps, " ps"));
      Start(num_ps, /*num_workers=*/1);
      Trainer trainer(Worker(0), Alone(consistency));
      size_t count = 1;
      EXPECT_OK(Call(holdfast_get_num_variables, trainer.cluster(), &count));
      EXPECT_EQ(count, 0);
      for (int step = 0; step < 3; ++step) {
        const holdfast_turn turn = trainer.Next();
        EXPECT_EQ(turn.done, 0);
        EXPECT_EQ(turn.step, step);
        const float expected = 5.f - static_cast<float>(step);
        EXPECT_THAT(trainer.Read({7, 1, kLast}), Each(expected));
        EXPECT_OK(trainer.AddRows({0, {1, 7, kLast}}, {1, 1, 1, 1, 1, 1}));
        EXPECT_OK(Call(holdfast_loop_push, trainer.loop(), nullptr, nullptr,
                       size_t{0}, uint64_t{1}, 0.5, HOLDFAST_CLIP_AS_DECLARED));
      }
      EXPECT_EQ(trainer.Next().done, 1);
      EXPECT_THAT(trainer.Read({7, 1, kLast}), Each(2));
      trainer.Leave();
      ExpectDone();
    }
  }
}

TEST_F(RowsTest, AJobWithNeitherVariablesNorTablesIsRefused) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  const Result result =
      Call(holdfast_declare, cluster,
           "optimizers { learning_rate: 1 sgd {} } total_steps: 3 "
           "consistency { synchronous {} }",
           nullptr, size_t{0}, int64_t{-1});
  EXPECT_EQ(result.kind, HOLDFAST_INVALID);
  EXPECT_THAT(result.message,
              HasSubstr("variables: must have at least one, unless there are "
                        "tables"));
  holdfast_close(cluster);
}

TEST_F(RowsTest, RowsAreReadAndTheirGradientsAddedUp) {
  for (const uint32_t num_ps : {1, 3}) {
    Start(num_ps, /*num_workers=*/1);
    Trainer trainer(Worker(0), Synchronous(2));
    // Rows that are wanted before the first turn come with its values.
    const holdfast_rows wanted = Rows{0, {9, 4}}.get();
    ASSERT_OK(
        Call(holdfast_loop_want_rows, trainer.loop(), &wanted, size_t{1}));
    trainer.Next();
    // Rows that no worker has pushed have their first values.
    EXPECT_THAT(trainer.Read({9, 4, 9}), Each(5));
    EXPECT_THAT(trainer.Read({kLast, 0}), Each(5));
    std::vector<float> u(8);
    ASSERT_OK(trainer.TryRead({1, {7, 8}}, &u));
    EXPECT_NE(u[0], u[4]);

    ASSERT_OK(trainer.AddRows({0, {9, 4, 9}}, {1, 0, 2, 0, 3, 0.5}));
    trainer.Push();
    EXPECT_EQ(trainer.Next().step, 1);
    EXPECT_THAT(trainer.Read({4, 9, 4, 5}),
                ElementsAre(3, 5, 1, 4.5, 3, 5, 5, 5));
    std::vector<float> same(8);
    ASSERT_OK(trainer.TryRead({1, {7, 8}}, &same));
    EXPECT_EQ(same, u);
    // A turn may have no rows, and still counts.
    trainer.Push();
    EXPECT_EQ(trainer.Next().done, 1);
    EXPECT_THAT(trainer.Read({9}), ElementsAre(1, 4.5));

    // Along with all values, for callers without a loop.
    const Rows of_t = {0, {kLast, 9, 9}};
    const Rows of_u = {1, {8}};
    const holdfast_rows rows[] = {of_u.get(), of_t.get()};
    holdfast_values* values = nullptr;
    ASSERT_OK(Call(holdfast_pull_rows, trainer.cluster(), uint64_t{2}, rows,
                   size_t{2}, &values));
    std::vector<float> t(6);
    EXPECT_OK(Call(holdfast_values_wait, values, int64_t{-1}));
    uint64_t step = 0;
    EXPECT_OK(Call(holdfast_values_get_step, values, &step));
    EXPECT_EQ(step, 2);
    EXPECT_OK(
        Call(holdfast_values_get_rows, values, size_t{1}, t.data(), t.size()));
    EXPECT_THAT(t, ElementsAre(5, 5, 1, 4.5, 1, 4.5));
    holdfast_variable w;
    EXPECT_OK(Call(holdfast_values_get_variable, values, size_t{0}, &w));
    EXPECT_EQ(w.data[0], 8);
    EXPECT_THAT(
        Call(holdfast_values_get_rows, values, size_t{1}, t.data(), size_t{5})
            .message,
        HasSubstr("table \"t\": 3 rows of 2 values are 6 numbers, not "
                  "5"));
    EXPECT_EQ(
        Call(holdfast_values_get_rows, values, size_t{2}, t.data(), t.size())
            .kind,
        HOLDFAST_INVALID);
    holdfast_values_free(values);
    trainer.Leave();
    ExpectDone();
  }
}

TEST_F(RowsTest, TwoWorkersTrainTheSameRows) {
  Start(/*num_ps=*/2, /*num_workers=*/2);
  constexpr int kSteps = 20;
  std::vector<float> last[2];
  const auto train = [&](int index) {
    Trainer trainer(Worker(index), Synchronous(kSteps));
    const uint64_t own = 10 + index;
    for (;;) {
      const holdfast_turn turn = trainer.Next();
      const float step = static_cast<float>(turn.step);
      // A row that only one of the two workers has pushed gets half of the
      // gradient.
      EXPECT_THAT(trainer.Read({1, own}),
                  ElementsAre(5 - 2 * step, 5, 5 - step, 5));
      if (turn.done) break;
      EXPECT_OK(trainer.AddRows({0, {own, 1}}, {2, 0, 2, 0}));
      // Every other turn.
      if (turn.step % 2 == 0) EXPECT_OK(trainer.WantRows({0, {1, own}}));
      trainer.Push();
    }
    last[index] = trainer.Read({1, 10, 11});
    trainer.Leave();
  };
  std::thread other(train, 1);
  train(0);
  other.join();
  EXPECT_EQ(last[0], last[1]);
  ExpectDone();
}

TEST_F(RowsTest, AsynchronousTurnsReadAndPushRows) {
  Start(/*num_ps=*/2, /*num_workers=*/2);
  const std::string text = absl::StrCat(
      kTables,
      "consistency { asynchronous { pipeline_depth: 2 } } total_steps: 20 "
      "total_tickets: 20 timeouts { recovery_seconds: 60 }");
  const auto train = [&](int index) {
    Trainer trainer(Worker(index), text);
    while (!trainer.Next().done) {
      const std::vector<float> values = trainer.Read({1, 2});
      EXPECT_LE(values[0], 5);
      EXPECT_OK(trainer.AddRows({0, {1, 2, 1}}, {1, 0, 1, 0, 1, 0}));
      trainer.Push();
    }
    EXPECT_THAT(trainer.Read({1, 2}), ElementsAre(5 - 40, 5, 5 - 20, 5));
    trainer.Leave();
  };
  std::thread other(train, 1);
  train(0);
  other.join();
  ExpectDone();
}

TEST_F(RowsTest, WrongInputsAreToldAndNothingIsLost) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  Trainer trainer(Worker(0), Synchronous(2));
  std::vector<float> values(4);
  const auto message = [](const Result& result) {
    EXPECT_EQ(result.kind, HOLDFAST_INVALID);
    return result.message;
  };
  EXPECT_THAT(message(trainer.TryRead({0, {1, 2}}, &values)),
              HasSubstr("no turn"));
  trainer.Next();
  EXPECT_EQ(message(trainer.TryRead({2, {1, 2}}, &values)),
            "there is no table 2, only 2");
  EXPECT_EQ(message(trainer.TryRead({0, {1}}, &values)),
            "table \"t\": 1 rows of 2 values are 2 numbers, not 4");
  const std::vector<uint64_t> ids = {1, 2};
  holdfast_rows rows[] = {{0, ids.data(), 2}, {0, ids.data(), 2}};
  EXPECT_THAT(
      message(Call(holdfast_loop_want_rows, trainer.loop(), rows, size_t{2})),
      HasSubstr("table \"t\" is named twice"));
  holdfast_values* pulled = nullptr;
  EXPECT_THAT(message(Call(holdfast_pull_rows, trainer.cluster(), uint64_t{0},
                           rows, size_t{2}, &pulled)),
              HasSubstr("table \"t\" is named twice"));
  rows[0].ids = nullptr;
  EXPECT_EQ(
      message(Call(holdfast_loop_want_rows, trainer.loop(), rows, size_t{1})),
      "rows[0].ids is NULL");

  EXPECT_EQ(message(trainer.AddRows({2, {1}}, {1, 1})),
            "there is no table 2, only 2");
  EXPECT_EQ(message(trainer.AddRows({0, {1, 2}}, {1, 1, 1})),
            "table \"t\": the gradients of 2 rows of 2 values are 3 numbers");
  EXPECT_EQ(
      message(trainer.AddRows({0, {1, 2, 3, 4}}, {1, 1, 1, 1, 1, 1, 1, 1})),
      "table \"t\": 4 rows are pushed, but max_rows_per_push is 3");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(message(trainer.AddRows({0, {1, 2}}, {1, 1, nan, 1})),
            "table \"t\": element 0 of row 2 is nan");
  // As many distinct rows as are allowed.
  ASSERT_OK(trainer.AddRows({0, {1, 2, 3, 1}}, {1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(message(trainer.AddRows({0, {1}}, {1, 1})),
            "table \"t\": its rows were handed in before");
  trainer.Push();
  trainer.Next();
  EXPECT_THAT(trainer.Read({1, 2, 3}), ElementsAre(3, 3, 4, 4, 4, 4));
  // A turn whose rows are not finite is skipped, and counted.
  EXPECT_EQ(trainer.AddRows({0, {1, 2}}, {1, 1, nan, 1}).kind,
            HOLDFAST_INVALID);
  trainer.Push();
  EXPECT_EQ(trainer.Next().done, 1);
  EXPECT_THAT(trainer.Read({1, 2, 3}), ElementsAre(3, 3, 4, 4, 4, 4));
  holdfast_outcome outcome;
  ASSERT_OK(Call(holdfast_loop_outcome, trainer.loop(), &outcome));
  EXPECT_EQ(outcome.not_finite, 1);
  EXPECT_EQ(outcome.accepted, 2);
  trainer.Leave();
  ExpectDone();
}

// The rows of a turn are wanted with the turn before or, if `while_read`, read
// during the turn, and a ps is lost before that.
class RowsRollBackTest : public RowsTest,
                         public testing::WithParamInterface<bool> {};

TEST_P(RowsRollBackTest, GoesOnFromTheRowsOfTheCheckpoint) {
  const bool while_read = GetParam();
  StartWithCheckpoints(/*num_ps=*/2, /*num_workers=*/1);
  Trainer trainer(Worker(0), Synchronous(6));
  // The rows are on both ps.
  const std::vector<uint64_t> ids = {1, 2, 3};
  std::vector<std::string> turns;
  for (bool killed = false;;) {
    const holdfast_turn turn = trainer.Next();
    if (turn.done) break;
    const std::vector<float> values = trainer.Read(ids);
    EXPECT_EQ(values[0], values[2]);
    EXPECT_EQ(values[0], values[4]);
    turns.push_back(absl::StrCat(turn.batch, " at ", values[0],
                                 turn.rolled_back ? ", rolled back" : ""));
    uint64_t step = 0;
    if (turn.step == 2 && !killed) {
      ASSERT_OK(Call(holdfast_save_checkpoint, trainer.cluster(), int64_t{-1},
                     &step));
    }
    if (turn.step == 4 && !killed) {
      killed = true;
      cluster_->Restart(1);
      if (while_read) {
        std::vector<float> none(6, -1);
        EXPECT_EQ(trainer.TryRead({0, ids}, &none).kind, HOLDFAST_ROLLED_BACK);
        continue;
      }
    }
    EXPECT_OK(trainer.AddRows({0, ids}, {1, 0, 1, 0, 1, 0}));
    if (!while_read) EXPECT_OK(trainer.WantRows({0, ids}));
    trainer.Push();
  }
  EXPECT_THAT(turns,
              ElementsAre("0 at 5", "1 at 4", "2 at 3", "3 at 2", "4 at 1",
                          "2 at 3, rolled back", "3 at 2", "4 at 1", "5 at 0"));
  EXPECT_THAT(trainer.Read(ids), ElementsAre(-1, 5, -1, 5, -1, 5));
  trainer.Leave();
  ExpectDone();
}

INSTANTIATE_TEST_SUITE_P(All, RowsRollBackTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "WhileRead" : "WhilePushed";
                         });

}  // namespace
}  // namespace holdfast
