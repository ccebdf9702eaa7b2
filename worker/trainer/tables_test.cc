// SPDX-License-Identifier: Apache-2.0

// How the loops pull and push rows of embedding tables.
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/testing/trainer_testing.h"

namespace holdfast {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TablesTest : public TrainerTestBase {
 protected:
  TablesTest() { SetUpTable(); }

  // Makes each computation last until the batch after it is made.
  void AwaitNextBatches() {
    model_.on_compute = [this](int64_t) {
      while (batches_->NextBags() == nullptr) std::this_thread::yield();
    };
  }

  // The rows that a push of the batch of these examples has.
  static std::map<uint64_t, std::vector<float>> RowsOf(
      const std::vector<int64_t>& examples) {
    std::map<uint64_t, std::vector<float>> rows;
    const auto add = [&](uint64_t id) {
      std::vector<float>& row = rows[id];
      row.resize(2);
      for (float& value : row) value += 1;
    };
    for (const int64_t i : examples) {
      add(i);
      add(i % 10);
    }
    return rows;
  }
  // The examples of the batch of (step, seat).
  std::vector<int64_t> ExamplesOf(uint64_t step, int64_t seat, int64_t seats) {
    BatchPipeline::Options options = batch_options_;
    options.by_ticket = false;
    options.seats_per_step = seats;
    options.seats = {seat};
    const auto pipeline = BatchPipeline::Start(&train_set_, options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    const auto batch =
        (*pipeline)->Next(GlobalStep(step), seat, absl::InfiniteFuture());
    EXPECT_TRUE(batch.ok()) << batch.status();
    return {batch->inputs.begin(), batch->inputs.end()};
  }
};

TEST_F(TablesTest, RowsOfTheNextBatchComeWithTheExchange) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/3);
  AwaitNextBatches();
  EXPECT_EQ(Run(), absl::OkStatus());
  // The initial values, and the rows of the first batch; then one pull for each
  // step.
  EXPECT_THAT(cluster_->calls("await pull"), SizeIs(2 + 3));
  ASSERT_THAT(model_.rows, SizeIs(3));
  for (int step = 0; step < 3; ++step) {
    EXPECT_THAT(model_.rows[step], Each(step));
    const auto pushed = cluster_->pushed_rows(step + 1);
    ASSERT_EQ(pushed.count(0), 1);
    EXPECT_EQ(pushed.at(0), RowsOf(ExamplesOf(step, 1, 2))) << step;
  }
}

TEST_F(TablesTest, AModelMayHaveNoVariables) {
  model_.has_variables = evaluation_model_.has_variables = false;
  has_test_set_ = true;
  options_.evaluation.set_batch_size(40);
  SetUpJob(/*replica=*/0, /*n=*/1, /*m=*/1, /*steps=*/3);
  EXPECT_EQ(Run(), absl::OkStatus());
  ASSERT_THAT(model_.rows, SizeIs(3 + 1));
  for (int step = 0; step < 3; ++step) {
    EXPECT_THAT(model_.rows[step], Each(step));
    EXPECT_EQ(cluster_->pushed_rows(step + 1).at(0),
              RowsOf(ExamplesOf(step, 0, 1)));
  }
  EXPECT_THAT(model_.rows.back(), Each(3));

  for (const uint32_t depth : {1, 2}) {
    options_.declaration.clear_tables();
    model_.rows.clear();
    SetUpAsynchronous(/*replica=*/0, depth, /*tickets=*/4);
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_EQ(counts_.accepted, 4);
    EXPECT_THAT(model_.rows, SizeIs(4 + 1));
  }
}

TEST_F(TablesTest, SeatsAfterTheFirstPullTheirsAlone) {
  SetUpJob(/*replica=*/0, /*n=*/4, /*m=*/2, /*steps=*/2);
  EXPECT_EQ(Run(), absl::OkStatus());
  ASSERT_THAT(model_.rows, SizeIs(4));
  for (int push = 0; push < 4; ++push) {
    EXPECT_THAT(model_.rows[push], Each(push / 2));
    EXPECT_EQ(cluster_->pushed_rows(push + 1).at(0),
              RowsOf(ExamplesOf(push / 2, push % 2 * 2, 4)));
  }
}

TEST_F(TablesTest, MicroBatchesSumRows) {
  SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/1);
  options_.micro_batches = 2;
  EXPECT_EQ(Run(), absl::OkStatus());
  // The halves have the same weight.
  std::map<uint64_t, std::vector<float>> expected = RowsOf(ExamplesOf(0, 1, 2));
  for (auto& [id, row] : expected) {
    for (float& value : row) value /= 2;
  }
  EXPECT_EQ(cluster_->pushed_rows(1).at(0), expected);
}

TEST_F(TablesTest, ByTicketRowsArePulledWhenTheBatchIsKnown) {
  SetUpTickets(/*replica=*/1, /*n=*/2, /*m=*/2, /*tickets=*/6);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(model_.rows, SizeIs(testing::Ge(1)));
  for (size_t i = 0; i < model_.rows.size(); ++i) {
    EXPECT_THAT(model_.rows[i], testing::Not(IsEmpty()));
  }
}

TEST_F(TablesTest, AnAsynchronousWorkerHasRowsOfEachTicket) {
  for (const uint32_t depth : {1, 2, 3}) {
    SCOPED_TRACE(depth);
    options_.declaration.clear_tables();
    model_.rows.clear();
    SetUpAsynchronous(/*replica=*/1, depth, /*tickets=*/6);
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_EQ(counts_.accepted, 6);
    EXPECT_THAT(model_.rows, SizeIs(6));
    // By ticket, the batches are those of one seat in as many steps.
    std::vector<std::map<uint64_t, std::vector<float>>> pushed;
    for (uint64_t push = 1; push <= 12; ++push) {
      const auto rows = cluster_->pushed_rows(push);
      if (rows.count(0) > 0) pushed.push_back(rows.at(0));
    }
    ASSERT_THAT(pushed, SizeIs(6));
    for (int ticket = 0; ticket < 6; ++ticket) {
      EXPECT_THAT(pushed, Contains(RowsOf(ExamplesOf(ticket, 0, 1))));
    }
  }
}

// The values for a ticket are pulled while the previous one is computed.
TEST_F(TablesTest, ADeeperPipelinePullsAhead) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/2, /*tickets=*/4);
  int computed = 0;
  model_.on_compute = [&](int64_t) {
    ++computed;
    if (computed == 4) return;
    while (cluster_->calls("await pull").size() <
           static_cast<size_t>(computed) + 1) {
      std::this_thread::yield();
    }
  };
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(computed, 4);
  // No pull was needed for rows alone.
  EXPECT_THAT(cluster_->calls("await pull"), SizeIs(4));
}

TEST_F(TablesTest, AnErrorEndsAPullAhead) {
  SetUpAsynchronous(/*replica=*/1, /*depth=*/2, /*tickets=*/4);
  model_.at.error = 0;
  EXPECT_FALSE(Run().ok());
}

TEST_F(TablesTest, EvaluationsReadRowsOfTheirVersion) {
  has_test_set_ = true;
  SetUpJob(/*replica=*/0, /*n=*/1, /*m=*/1, /*steps=*/2);
  options_.evaluation.set_batch_size(40);
  EXPECT_EQ(Run(), absl::OkStatus());
  // Two in training, and the last in the final evaluation.
  ASSERT_THAT(model_.rows, SizeIs(3));
  EXPECT_THAT(model_.rows.back(), SizeIs(40 * 2));
  EXPECT_THAT(model_.rows.back(), Each(2));
}

}  // namespace
}  // namespace holdfast
