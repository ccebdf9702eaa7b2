// SPDX-License-Identifier: Apache-2.0

// Expectations from other systems' tests about a table: which rows a push
// makes, what several workers do to one row, what is read of a row that is not
// there, and when a row is removed. Paths are those of the repositories named.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/table/embedding_table.h"
#include "ps_server/table/testing/table_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;

// bytedance/monolith, monolith/native_training/runtime/hash_filter/
// hash_filter_test.cc, TestSkipZeroThresholdFeatures: with an occurrence
// threshold of 0 an id is never filtered; with 1 its first occurrence is. That
// is min_count 1 and 2 here.
TEST(TableFactsTest, ThresholdsOfMonolith) {
  const Gradients push = {{9, {1}}};
  const auto at_once = MakeEmbeddingTable(Declared(1, "min_count: 1"),
                                          "learning_rate: 1 sgd {}");
  Step(at_once.get(), {push}, Rate(1));
  EXPECT_EQ(at_once->rows(), 1);
  EXPECT_EQ(at_once->candidates(), 0);
  const auto filtered = MakeEmbeddingTable(Declared(1, "min_count: 2"),
                                           "learning_rate: 1 sgd {}");
  Step(filtered.get(), {push}, Rate(1));
  EXPECT_EQ(filtered->rows(), 0);
  EXPECT_THAT(ReadRow(*filtered, 9), ElementsAre(0));
  Step(filtered.get(), {push}, Rate(1));
  EXPECT_THAT(ReadRow(*filtered, 9), ElementsAre(-1));
}

// bytedance/monolith, monolith/native_training/runtime/hash_table/
// embedding_hash_table_test.h, OneTimeEvict: of values 2, 5 and 7 with times to
// live of 5, 6 and 14 the first alone is gone after 5. Days there, steps here;
// the sweep for the third comes every 3 steps.
TEST(TableFactsTest, ExpiryOfMonolith) {
  const struct {
    int expire_after;
    float value;
    float after;
  } kCases[] = {{5, 2, 0}, {6, 5, 5}, {14, 7, 7}};
  for (const auto& test : kCases) {
    const auto table = MakeEmbeddingTable(
        Declared(1, "expire_after_steps: " + std::to_string(test.expire_after)),
        "learning_rate: 1 sgd {}");
    Step(table.get(), {{{9, {-test.value}}}}, Rate(1));
    EXPECT_THAT(ReadRow(*table, 9), ElementsAre(test.value));
    for (int i = 0; i < 5; ++i) table->ApplyStep({}, Rate(1), {});
    EXPECT_THAT(ReadRow(*table, 9), ElementsAre(test.after));
  }
}

// alibaba/x-deeplearning, xdl/ps-plus/ps-plus/common/test/hashmap_test.cc,
// HashMap128Test.BloomFilter: with a threshold of 2, two ids make no row the
// first time, and 2 rows the second time. XDL counts pulls, a table pushes.
TEST(TableFactsTest, ThresholdOfXdl) {
  const auto table = MakeEmbeddingTable(Declared(1, "min_count: 2"),
                                        "learning_rate: 1 sgd {}");
  const Gradients push = {{1, {1}}, {3, {1}}};
  Step(table.get(), {push}, Rate(1));
  EXPECT_EQ(table->rows(), 0);
  Step(table.get(), {push}, Rate(1));
  EXPECT_EQ(table->rows(), 2);
}

// alibaba/x-deeplearning, xdl/ps-plus/ps-plus/common/test/bloom_filter_test.cc,
// CountingBloomFilter: ids 1, 2, 3, 4, 1, 2, 2 one after the other. The first 1
// reaches a count of 1 and not 2, the next one 2, and the last 2 reaches 3.
TEST(TableFactsTest, CountsOfXdl) {
  const struct {
    int min_count;
    int pushes;
    uint64_t id;
    bool admitted;
  } kCases[] = {
      {1, 1, 1, true}, {2, 1, 1, false}, {2, 5, 1, true}, {3, 7, 2, true}};
  for (const auto& test : kCases) {
    const auto table = MakeEmbeddingTable(
        Declared(1, "min_count: " + std::to_string(test.min_count)),
        "learning_rate: 1 sgd {}");
    const uint64_t ids[] = {1, 2, 3, 4, 1, 2, 2};
    for (int i = 0; i < test.pushes; ++i) {
      Step(table.get(), {{{ids[i], {1}}}}, Rate(1));
    }
    EXPECT_EQ(table->CountAbsent({&test.id, 1}), test.admitted ? 0 : 1)
        << test.min_count << " " << test.pushes;
  }
}

// The same file, InsertedLookup: with a threshold of 255 an id is there from
// its 256th time on at the latest.
TEST(TableFactsTest, LargestThresholdOfXdl) {
  const auto table = MakeEmbeddingTable(Declared(1, "min_count: 255"),
                                        "learning_rate: 1 sgd {}");
  for (int i = 0; i < 300; ++i) {
    Step(table.get(), {{{123, {1}}}}, Rate(1));
    if (i >= 255) {
      EXPECT_EQ(table->rows(), 1) << i;
    }
  }
}

// alibaba/x-deeplearning, xdl/test/python/unit_test/ps_ops/
// test_ps_sparse_pull_op.py: of a variable of ones, rows 1 and 3, which are
// unchanged, are {1, 1}.
TEST(TableFactsTest, MissingRowsOfXdl) {
  const auto table =
      MakeEmbeddingTable(Declared(2, "initializer { constant { value: 1 } }"),
                         "learning_rate: 1 sgd {}");
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(1, 1));
  EXPECT_THAT(ReadRow(*table, 3), ElementsAre(1, 1));
}

// alibaba/x-deeplearning, xdl/ps-plus/ps-plus/server/udf/test/
// aggregate_slice_test.cc, AggregateSliceSparse: three workers push gradients
// of 1 for rows 3 and 5, of 2 for rows 4 and 5, and of 3 for row 3. The means
// over the workers are 4 / 3, 2 / 3 and 1, because a worker without the row
// counts.
TEST(TableFactsTest, MeanOfThreeWorkersOfXdl) {
  const proto::EmbeddingTable declared = Declared(8, "");
  const auto table = MakeEmbeddingTable(declared, "learning_rate: 1 sgd {}");
  const std::vector<float> one(8, 1), two(8, 2), three(8, 3);
  const ReceivedRows received[] = {Received(declared, {{3, one}, {5, one}}),
                                   Received(declared, {{4, two}, {5, two}}),
                                   Received(declared, {{3, three}})};
  RowSum sum;
  sum.divisor = 3;
  for (const ReceivedRows& rows : received) sum.terms.push_back({{&rows}, 1});
  table->ApplyStep(sum, Rate(1), {});
  EXPECT_THAT(ReadRow(*table, 3), Each(FloatEq(-4 / 3.0f)));
  EXPECT_THAT(ReadRow(*table, 4), Each(FloatEq(-2 / 3.0f)));
  EXPECT_THAT(ReadRow(*table, 5), Each(FloatEq(-1)));
  EXPECT_EQ(table->rows(), 3);
}

// alibaba/x-deeplearning,
// xdl/test/python/unit_test/test_add_sparse_gradient.py, test_add_1d: gradients
// of a tenth of the id, from three sources with ids 1 to 6, {0, 2, 3, 5, 7, 9}
// and {1, 4, 5, 7, 8}. The sums of rows 0 to 9 are {0, 0.2, 0.4, 0.6, 0.8, 1.5,
// 0.6, 1.4, 0.8, 0.9}.
TEST(TableFactsTest, SumOfThreeSourcesOfXdl) {
  const auto table =
      MakeEmbeddingTable(Declared(1, ""), "learning_rate: 1 sgd {}");
  Step(table.get(),
       {{{1, {0.1f}},
         {2, {0.2f}},
         {3, {0.3f}},
         {4, {0.4f}},
         {5, {0.5f}},
         {6, {0.6f}}},
        {{0, {0}},
         {2, {0.2f}},
         {3, {0.3f}},
         {5, {0.5f}},
         {7, {0.7f}},
         {9, {0.9f}}},
        {{1, {0.1f}}, {4, {0.4f}}, {5, {0.5f}}, {7, {0.7f}}, {8, {0.8f}}}},
       Rate(1));
  const float sums[] = {0,    0.2f, 0.4f, 0.6f, 0.8f,
                        1.5f, 0.6f, 1.4f, 0.8f, 0.9f};
  EXPECT_EQ(table->rows(), 10);
  for (uint64_t id = 0; id < 10; ++id) {
    EXPECT_THAT(ReadRow(*table, id), ElementsAre(FloatEq(-sums[id]))) << id;
  }
}

// apache/mxnet, tests/nightly/dist_sync_kvstore.py, check_row_sparse_keys: rows
// 0 and 1 are ones; each of the workers, which are 7 in ci/docker/
// runtime_functions.sh, pushes rank + 1 for row rank % 2, and twice the sum is
// added. So row 0 grows by 2 (1 + 3 + 5 + 7) and row 1 by 2 (2 + 4 + 6) in each
// of 7 rounds. SGD subtracts, so the gradients here are negative.
TEST(TableFactsTest, SevenWorkersOfMXNet) {
  const auto table =
      MakeEmbeddingTable(Declared(3, "initializer { constant { value: 1 } }"),
                         "learning_rate: 2 sgd {}");
  std::vector<Gradients> pushes;
  for (uint64_t rank = 0; rank < 7; ++rank) {
    const float gradient = -1.0f - static_cast<float>(rank);
    pushes.push_back({{rank % 2, {gradient, gradient, gradient}}});
  }
  for (int round = 1; round <= 7; ++round) {
    Step(table.get(), pushes, Rate(2));
    EXPECT_THAT(ReadRow(*table, 0), Each(1 + 32 * round));
    EXPECT_THAT(ReadRow(*table, 1), Each(1 + 24 * round));
  }
}

// The same file, check_row_sparse_keys_with_zeros: pushes without rows leave
// all rows as they are, which is ones, in each of 7 rounds.
TEST(TableFactsTest, PushesWithoutRowsOfMXNet) {
  const auto table =
      MakeEmbeddingTable(Declared(3, "initializer { constant { value: 1 } }"),
                         "learning_rate: 2 sgd {}");
  for (int round = 1; round <= 7; ++round) {
    Step(table.get(), std::vector<Gradients>(7), Rate(2));
    EXPECT_THAT(ReadRow(*table, 0), Each(1));
    EXPECT_THAT(ReadRow(*table, 1), Each(1));
  }
  EXPECT_EQ(table->rows(), 0);
}

// The same file, test_gluon_trainer_sparse_step: rate 1, ones, and each of n
// workers, 7 as above, pushes rank + 1 for both rows of 10 elements: 1 - (1 +
// n) n / 2.
TEST(TableFactsTest, SparseStepOfMXNet) {
  const auto table =
      MakeEmbeddingTable(Declared(10, "initializer { constant { value: 1 } }"),
                         "learning_rate: 1 sgd {}");
  std::vector<Gradients> pushes;
  for (int rank = 0; rank < 7; ++rank) {
    const std::vector<float> gradient(10, static_cast<float>(rank + 1));
    pushes.push_back({{0, gradient}, {1, gradient}});
  }
  Step(table.get(), pushes, Rate(1));
  EXPECT_THAT(ReadRow(*table, 0), Each(-27));
  EXPECT_THAT(ReadRow(*table, 1), Each(-27));
}

// apache/mxnet, tests/python/unittest/test_gluon_trainer.py,
// test_trainer_sparse_kv: rate 0.1, zeros, gradients of 1 for all 10 rows from
// two devices: -0.2.
TEST(TableFactsTest, TwoDevicesOfMXNet) {
  const auto table =
      MakeEmbeddingTable(Declared(1, ""), "learning_rate: 0.1 sgd {}");
  Gradients push;
  for (uint64_t id = 0; id < 10; ++id) push[id] = {1};
  Step(table.get(), {push, push}, Rate(0.1f));
  for (uint64_t id = 0; id < 10; ++id) {
    EXPECT_THAT(ReadRow(*table, id), ElementsAre(-0.2f)) << id;
  }
}

}  // namespace
}  // namespace holdfast
