// What other systems' tests say of rows that a step touches, and of those that
// it does not. Paths are those of the repositories named.
#include "ps_server/table/row_rule.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/table/testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// What the coordinator tells of step t of Adam, t = 1 at the first.
proto::StepScalars AdamScalars(float rate, int t) {
  proto::StepScalars scalars = Rate(rate);
  scalars.set_bias_correction1(static_cast<float>(1 - std::pow(0.9, t)));
  scalars.set_bias_correction2(static_cast<float>(1 - std::pow(0.999, t)));
  return scalars;
}

// tensorflow/tensorflow, tensorflow/python/training/adagrad_test.py,
// testSparseBasic: rate 3, three steps of gradient 0.1 for row 0 of a variable,
// and 0.01 for row 1 of another. (AdagradV2 of this rule adds an epsilon of
// 1e-7, which is below the test's accuracy.)
TEST(RowRuleTest, AdagradOfTensorFlow) {
  const struct {
    float first;
    float gradient;
    float after;
  } kCases[] = {{1, 0.1f, -1.6026098728179932f},
                {4, 0.01f, 3.715679168701172f}};
  for (const auto& test : kCases) {
    const auto table = MakeEmbeddingTable(
        Declared(1, "initializer { constant { value: " +
                        std::to_string(test.first) + " } }"),
        "learning_rate: 3 adagrad { initial_accumulator_value: 0.1 }");
    for (int i = 0; i < 3; ++i) {
      Step(table.get(), {{{7, {test.gradient}}}}, Rate(3));
    }
    EXPECT_THAT(ReadRow(*table, 7), ElementsAre(FloatNear(test.after, 1e-5f)));
    // The other row, which the test finds to be as it was.
    EXPECT_THAT(ReadRow(*table, 8), ElementsAre(test.first));
    EXPECT_EQ(table->rows(), 1);
  }
}

// sql-machine-learning/elasticdl, elasticdl/go/pkg/ps/optimizer_test.go,
// TestSGDOptimizer: rate 0.1, gradients of 1 for rows 1 and 3 of zeros, and
// then for rows 1, 3, 3 and 5, where here the client adds up the two of row 3.
TEST(RowRuleTest, SgdOfElasticDL) {
  const auto table =
      MakeEmbeddingTable(Declared(2, ""), "learning_rate: 0.1 sgd {}");
  Step(table.get(), {{{1, {1, 1}}, {3, {1, 1}}}}, Rate(0.1f));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(FloatEq(-0.1f), FloatEq(-0.1f)));
  EXPECT_THAT(ReadRow(*table, 3), ElementsAre(FloatEq(-0.1f), FloatEq(-0.1f)));
  Step(table.get(), {{{1, {1, 1}}, {3, {2, 2}}, {5, {1, 1}}}}, Rate(0.1f));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(FloatEq(-0.2f), FloatEq(-0.2f)));
  EXPECT_THAT(ReadRow(*table, 3), ElementsAre(FloatEq(-0.3f), FloatEq(-0.3f)));
  EXPECT_THAT(ReadRow(*table, 5), ElementsAre(FloatEq(-0.1f), FloatEq(-0.1f)));
}

// The same file, TestAdamOptimizer: rate 0.1. The optimizer has counted to 3
// when rows 1 and 3 of zeros come to be at its step 4; then rows 1, 3 and 5 get
// gradients of 1 at step 5. The moments of row 5 begin then, and the bias
// corrections do not.
TEST(RowRuleTest, LazyAdamOfElasticDL) {
  const auto table = MakeEmbeddingTable(
      Declared(2, ""),
      "learning_rate: 0.1 adam { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }");
  Step(table.get(), {{{1, {1, 1}}, {3, {1, 1}}}}, AdamScalars(0.1f, 4));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(FloatNear(-0.058112835f, 1e-6f),
                                              FloatNear(-0.058112835f, 1e-6f)));
  Step(table.get(), {{{1, {1, 1}}, {3, {1, 1}}, {5, {1, 1}}}},
       AdamScalars(0.1f, 5));
  for (const uint64_t id : {1, 3}) {
    EXPECT_THAT(ReadRow(*table, id),
                ElementsAre(FloatNear(-0.1314178004f, 1e-6f),
                            FloatNear(-0.1314178004f, 1e-6f)));
  }
  EXPECT_THAT(ReadRow(*table, 5),
              ElementsAre(FloatNear(-0.0545489238f, 1e-6f),
                          FloatNear(-0.0545489238f, 1e-6f)));
}

// bytedance/monolith, monolith/native_training/runtime/hash_table/optimizer/
// ftrl_optimizer_test.cc, ListUpdate: rate 0.01, gradients {10, 1}, twice. Its
// defaults (optimizer.proto) are an initial accumulator of 0.1, beta 0 and no
// regularization.
TEST(RowRuleTest, FtrlOfMonolith) {
  const auto table = MakeEmbeddingTable(
      Declared(2, ""),
      "learning_rate: 0.01 ftrl { initial_accumulator_value: 0.1 }");
  Step(table.get(), {{{1, {10, 1}}}}, Rate(0.01f));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(FloatNear(-0.009995f, 1e-6f),
                                              FloatNear(-0.00953463f, 1e-6f)));
  Step(table.get(), {{{1, {10, 1}}}}, Rate(0.01f));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(FloatNear(-0.0170643f, 1e-6f),
                                              FloatNear(-0.0164353f, 1e-6f)));
}

// PaddlePaddle/Paddle, paddle/fluid/distributed/test/sparse_sgd_rule_test.cc:
// the first update of a row of zeros by gradients 1 to 10 with rate 0.1.
Gradients OneToTen() {
  Gradients push;
  for (int i = 1; i <= 10; ++i) push[1].push_back(static_cast<float>(i));
  return push;
}

// sparse_value_naive_sgd_test: -0.1 to -1.
TEST(RowRuleTest, SgdOfPaddle) {
  const auto table =
      MakeEmbeddingTable(Declared(10, ""), "learning_rate: 0.1 sgd {}");
  Step(table.get(), {OneToTen()}, Rate(0.1f));
  for (int i = 0; i < 10; ++i) {
    EXPECT_FLOAT_EQ(ReadRow(*table, 1)[i], -0.1f * static_cast<float>(i + 1));
  }
}

// downpour_sparse_adagrad_test: the accumulator of the row is 38.5, the mean of
// the squares. (Its values are those of a rule that divides by the accumulator
// before the update.)
TEST(RowRuleTest, RowWiseAccumulatorOfPaddle) {
  const auto table = MakeEmbeddingTable(Declared(10, "row_wise: true"),
                                        "learning_rate: 0.1 adagrad { "
                                        "initial_accumulator_value: 0 }");
  Step(table.get(), {OneToTen()}, Rate(0.1f));
  const auto rows = table->Sorted(EmbeddingTable::Kind::kRow, BucketOfRow(1));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]->floats()[10], 38.5f);
}

// downpour_sparse_adam_test: all values are -0.1, but for the last digits of
// float; the moments are 0.1 g and 0.001 g^2.
TEST(RowRuleTest, AdamOfPaddle) {
  const auto table = MakeEmbeddingTable(
      Declared(10, ""),
      "learning_rate: 0.1 adam { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }");
  Step(table.get(), {OneToTen()}, AdamScalars(0.1f, 1));
  const auto rows = table->Sorted(EmbeddingTable::Kind::kRow, BucketOfRow(1));
  ASSERT_EQ(rows.size(), 1u);
  const float* const row = rows[0]->floats();
  for (int i = 0; i < 10; ++i) {
    const auto g = static_cast<float>(i + 1);
    EXPECT_NEAR(row[i], -0.1f, 1e-6f) << i;
    EXPECT_NEAR(row[10 + i], 0.1f * g, 1e-6f) << i;
    // 0.999 is not exact in float, nor is 1 - 0.999: within 5e-5 of it.
    EXPECT_NEAR(row[20 + i], 0.001f * g * g, 5e-5f * g * g) << i;
  }
}

// By hand: rate 0.5, momentum 0.5, gradients 2, none, 4 for a row: a = 2, w =
// -1; a row that is not touched stays, where a variable would go on by -0.5; a
// = 0.5 * 2 + 4 = 5, w = -3.5.
TEST(RowRuleTest, MomentumIsLazy) {
  const auto table = MakeEmbeddingTable(
      Declared(1, ""), "learning_rate: 0.5 momentum { momentum: 0.5 }");
  Step(table.get(), {{{1, {2}}}}, Rate(0.5f));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(-1));
  Step(table.get(), {{{2, {8}}}}, Rate(0.5f));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(-1));
  Step(table.get(), {{{1, {4}}}}, Rate(0.5f));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(-3.5f));
}

// By hand: gradient {3, 4}, accumulator 3.5 at first: a = 3.5 + 25 / 2 = 16,
// w = -2 {3, 4} / 4. Then {0, 12}: a = 16 + 144 / 2 = 88, w -= 2 {0, 12} /
// sqrt(88).
TEST(RowRuleTest, RowWiseAdagradByHand) {
  const auto table = MakeEmbeddingTable(
      Declared(2, "row_wise: true"),
      "learning_rate: 2 adagrad { initial_accumulator_value: 3.5 epsilon: 0 }");
  Step(table.get(), {{{1, {3, 4}}}}, Rate(2));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(-1.5f, -2.0f));
  const auto rows = table->Sorted(EmbeddingTable::Kind::kRow, BucketOfRow(1));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(table->floats(EmbeddingTable::Kind::kRow), 3u);
  EXPECT_EQ(rows[0]->floats()[2], 16);
  Step(table.get(), {{{1, {0, 12}}}}, Rate(2));
  EXPECT_THAT(
      ReadRow(*table, 1),
      ElementsAre(-1.5f, FloatEq(static_cast<float>(-2 - 24 / std::sqrt(88)))));
  EXPECT_EQ(rows[0]->floats()[2], 88);
}

// With rows of one element it is Adagrad; with weight decay, too.
TEST(RowRuleTest, RowWiseAdagradOfOneElementIsAdagrad) {
  for (const std::string decay : {"", " weight_decay: 0.125"}) {
    const std::string optimizer = "learning_rate: 0.1 adagrad {}" + decay;
    const std::string first = "initializer { uniform { low: -1 high: 1 } } ";
    const auto rows =
        MakeEmbeddingTable(Declared(1, first + "row_wise: true"), optimizer);
    const auto elements = MakeEmbeddingTable(Declared(1, first), optimizer);
    for (int step = 0; step < 50; ++step) {
      const Gradients push = {{1, {std::sin(1.0f + step)}},
                              {2u + step % 3, {std::cos(1.0f + step)}}};
      Step(rows.get(), {push}, Rate(0.1f));
      Step(elements.get(), {push}, Rate(0.1f));
    }
    for (uint64_t id = 0; id < 6; ++id) {
      EXPECT_EQ(ReadRow(*rows, id), ReadRow(*elements, id)) << id;
    }
  }
}

TEST(RowRuleTest, WhatATableCannotHave) {
  const auto error = [](const std::string& fields,
                        const std::string& optimizer) {
    const absl::Status status =
        MakeRowRule(Declared(2, fields), ParseText<proto::Optimizer>(optimizer))
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error("", "learning_rate: 1 rmsprop {}"),
              HasSubstr("table \"t\": its optimizer is to be sgd"));
  EXPECT_THAT(error("", "learning_rate: 1 adamw {}"), HasSubstr("to be sgd"));
  EXPECT_THAT(error("row_wise: true", "learning_rate: 1 sgd {}"),
              HasSubstr("table \"t\": row_wise is for adagrad alone"));
}

}  // namespace
}  // namespace holdfast
