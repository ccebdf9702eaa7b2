// SPDX-License-Identifier: Apache-2.0

// Expectations from other systems' tests about rows that a step touches, and
// rows that it does not. Paths are those of the repositories named.
#include "ps_server/table/row_rule.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/table/testing/table_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// The scalars that the coordinator gives for step t of Adam; t = 1 for the
// first.
proto::StepScalars AdamScalars(float rate, int t, double beta1 = 0.9,
                               double beta2 = 0.999) {
  proto::StepScalars scalars = Rate(rate);
  scalars.set_bias_correction1(static_cast<float>(1 - std::pow(beta1, t)));
  scalars.set_bias_correction2(static_cast<float>(1 - std::pow(beta2, t)));
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
    // The other row, which the test finds unchanged.
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

// downpour_sparse_adam_test: all values are -0.1, except for the last digits of
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

// alibaba/x-deeplearning, xdl/ps-plus/ps-plus/server/udf/test/
// adagrad_updater_test.cc, AdagradUpdaterForHash: two variables of 4 rows, of
// which two get two gradients; then row 1 gets the second gradient (again, in
// the other variable). XDL's rule has no epsilon.
TEST(RowRuleTest, AdagradOfXdl) {
  const auto five = MakeEmbeddingTable(
      Declared(1, "initializer { constant { value: 5 } }"),
      "learning_rate: 3 adagrad { initial_accumulator_value: 5 epsilon: 0 }");
  Step(five.get(), {{{0, {2}}, {2, {2}}}}, Rate(3));
  EXPECT_THAT(ReadRow(*five, 0), ElementsAre(3));
  Step(five.get(), {{{0, {4}}, {2, {4}}}}, Rate(3));
  Step(five.get(), {{{1, {4}}}}, Rate(3));
  EXPECT_THAT(ReadRow(*five, 0), ElementsAre(FloatEq(0.6f)));
  EXPECT_THAT(ReadRow(*five, 1), ElementsAre(FloatEq(2.381385f)));
  EXPECT_THAT(ReadRow(*five, 2), ElementsAre(FloatEq(0.6f)));
  EXPECT_THAT(ReadRow(*five, 3), ElementsAre(5));
  const auto one = MakeEmbeddingTable(
      Declared(1, "initializer { constant { value: 1 } }"),
      "learning_rate: 4 adagrad { initial_accumulator_value: 3 epsilon: 0 }");
  Step(one.get(), {{{1, {1}}, {2, {1}}}}, Rate(4));
  EXPECT_THAT(ReadRow(*one, 1), ElementsAre(-1));
  Step(one.get(), {{{1, {3}}, {2, {3}}}}, Rate(4));
  EXPECT_THAT(ReadRow(*one, 1), ElementsAre(FloatEq(-4.3282f)));
  Step(one.get(), {{{1, {3}}}}, Rate(4));
  EXPECT_THAT(ReadRow(*one, 0), ElementsAre(1));
  EXPECT_THAT(ReadRow(*one, 1), ElementsAre(FloatEq(-6.88661f)));
  EXPECT_THAT(ReadRow(*one, 2), ElementsAre(FloatEq(-4.3282f)));
  EXPECT_THAT(ReadRow(*one, 3), ElementsAre(1));
}

// The same folder, adam_updater_test.cc: rate 2, gradients of 2 and 1 for rows
// 0 and 2, and of 1 for row 1 at step 3, whose bias corrections are the step's
// (lr_decay is true).
TEST(RowRuleTest, LazyAdamOfXdl) {
  const auto table = MakeEmbeddingTable(
      Declared(1, "initializer { constant { value: 5 } }"),
      "learning_rate: 2 adam { beta1: 0.9 beta2: 0.8 epsilon: 0.5 }");
  Step(table.get(), {{{0, {2}}, {2, {2}}}}, AdamScalars(2, 1, 0.9, 0.8));
  EXPECT_THAT(ReadRow(*table, 0), ElementsAre(FloatNear(3.71714f, 5e-6f)));
  Step(table.get(), {{{0, {1}}, {2, {1}}}}, AdamScalars(2, 2, 0.9, 0.8));
  Step(table.get(), {{{1, {1}}}}, AdamScalars(2, 3, 0.9, 0.8));
  EXPECT_THAT(ReadRow(*table, 0), ElementsAre(FloatNear(2.46871f, 5e-6f)));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(FloatNear(4.45572f, 5e-6f)));
  EXPECT_THAT(ReadRow(*table, 2), ElementsAre(FloatNear(2.46871f, 5e-6f)));
  EXPECT_THAT(ReadRow(*table, 3), ElementsAre(5));
}

// The same folder, momentum_updater_test.cc: rate 1, momentum 0.5, gradients of
// 1 for rows 0 and 2, twice, and then for rows 1 and 2. Row 0 stays.
TEST(RowRuleTest, LazyMomentumOfXdl) {
  const auto table = MakeEmbeddingTable(
      Declared(1, ""), "learning_rate: 1 momentum { momentum: 0.5 }");
  Step(table.get(), {{{0, {1}}, {2, {1}}}}, Rate(1));
  EXPECT_THAT(ReadRow(*table, 0), ElementsAre(-1));
  Step(table.get(), {{{0, {1}}, {2, {1}}}}, Rate(1));
  EXPECT_THAT(ReadRow(*table, 2), ElementsAre(-2.5f));
  Step(table.get(), {{{1, {1}}, {2, {1}}}}, Rate(1));
  EXPECT_THAT(ReadRow(*table, 0), ElementsAre(-2.5f));
  EXPECT_THAT(ReadRow(*table, 1), ElementsAre(-1));
  EXPECT_THAT(ReadRow(*table, 2), ElementsAre(-4.25f));
  EXPECT_THAT(ReadRow(*table, 3), ElementsAre(0));
}

// alibaba/x-deeplearning, xdl/test/python/unit_test/ps_ops/
// test_ps_sparse_apply_{adagrad,adam,ftrl,momentum}_op.py: ones, gradients 1
// and 2 for rows 1 and 2, twice.
TEST(RowRuleTest, SparseApplyOfXdl) {
  const struct {
    float rate;
    std::string optimizer;
    float within;
    float once[2];
    float twice[2];
  } kCases[] = {
      {0.5f,
       "adagrad { initial_accumulator_value: 0 epsilon: 0 }",
       1e-7f,
       {0.5f, 0.5f},
       {0.14644662f, 0.14644662f}},
      {0.1f,
       "adam { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }",
       // XDL's slots are double; in float 1 - 0.999 is 1.3e-5 of it less.
       2e-6f,
       {0.90000004f, 0.90000004f},
       {0.8000001f, 0.8000001f}},
      {0.1f,
       "ftrl { initial_accumulator_value: 0.1 }",
       2e-7f,
       {0.6031424f, 0.7450533f},
       {0.5341358f, 0.6747804f}},
      {0.5f, "momentum { momentum: 0.9 }", 2e-7f, {0.5f, 0}, {-0.45f, -1.9f}},
  };
  for (const auto& test : kCases) {
    const auto table =
        MakeEmbeddingTable(Declared(1, "initializer { constant { value: 1 } }"),
                           "learning_rate: 1 " + test.optimizer);
    for (int t = 1; t <= 2; ++t) {
      Step(table.get(), {{{1, {1}}, {2, {2}}}}, AdamScalars(test.rate, t));
      const float* const values = t == 1 ? test.once : test.twice;
      EXPECT_THAT(ReadRow(*table, 1),
                  ElementsAre(FloatNear(values[0], test.within)))
          << test.optimizer;
      EXPECT_THAT(ReadRow(*table, 2),
                  ElementsAre(FloatNear(values[1], test.within)))
          << test.optimizer;
    }
    EXPECT_THAT(ReadRow(*table, 0), ElementsAre(1));
    EXPECT_THAT(ReadRow(*table, 3), ElementsAre(1));
  }
}

// apache/mxnet, tests/python/unittest/test_gluon_trainer.py,
// test_trainer_with_sparse_grad_on_single_context: the first step of momentum
// 0.5 with rate 1 and gradients of 1 for 10 rows of zeros: -1.
TEST(RowRuleTest, MomentumOfMXNet) {
  const auto table = MakeEmbeddingTable(
      Declared(1, ""), "learning_rate: 1 momentum { momentum: 0.5 }");
  Gradients push;
  for (uint64_t id = 0; id < 10; ++id) push[id] = {1};
  Step(table.get(), {push}, Rate(1));
  for (uint64_t id = 0; id < 10; ++id) {
    EXPECT_THAT(ReadRow(*table, id), ElementsAre(-1)) << id;
  }
}

// A run of MXNet 1.9.1: mxnet.optimizer with weights and gradients that are
// row_sparse, lazy_update=True, rate 0.1, and options that apache/mxnet,
// tests/python/unittest/test_optimizer.py uses in test_sparse_sgd, _adagrad,
// _adam and _ftrl, which draw weights and gradients at random; epsilon is the
// default of 1.9.1. MXNet's FTRL adds `wd` where this one adds 2 l2.
//
// Rows 0 to 2 are {1, -2}, {0.5, 4} and {3, 0.25}. Step 1 has gradients {0.5,
// -1} for row 0 and {2, 0.25} for row 2, step 2 {-1, 3} for row 2, and step 3
// {0.125, 0.75} for row 0 and {-2, 1} for row 1.
TEST(RowRuleTest, RowSparseOptimizersOfMXNet) {
  const std::vector<Gradients> pushes = {{{0, {0.5f, -1}}, {2, {2, 0.25f}}},
                                         {{2, {-1, 3}}},
                                         {{0, {0.125f, 0.75f}}, {1, {-2, 1}}}};
  const struct {
    std::string optimizer;
    // Rows after the three steps.
    float rows[3][2];
  } kCases[] = {
      {"sgd {} weight_decay: 0.03",
       {{0.93165898f, -1.9633180f},
        {0.69849998f, 3.8880000f},
        {2.8826268f, -0.076422781f}}},
      {"momentum { momentum: 0.9 } weight_decay: 0.03",
       {{0.88395905f, -1.8679180f},
        {0.69850004f, 3.8880000f},
        {2.6945269f, -0.099597767f}}},
      {"adagrad { initial_accumulator_value: 0 epsilon: 1e-7 }",
       {{0.87574649f, -1.9600000f},
        {0.60000002f, 3.9000001f},
        {2.9447215f, 0.050345488f}}},
      {"adam { beta1: 0.5 beta2: 0.8 } weight_decay: 0.03",
       {{0.82523102f, -1.9123892f},
        {0.58925998f, 3.9107399f},
        {2.8943250f, 0.056997299f}}},
      {"ftrl { initial_accumulator_value: 0 l1: 0.1 l2: 0.015 beta: 1 }",
       {{0.28451544f, -0.97687352f},
        {0.39627036f, 1.9420869f},
        {1.9589452f, -0.047818977f}}},
  };
  const float first[3][2] = {{1, -2}, {0.5f, 4}, {3, 0.25f}};
  for (const auto& test : kCases) {
    const auto table = MakeEmbeddingTable(
        Declared(2, ""), "learning_rate: 0.1 " + test.optimizer);
    for (uint64_t id = 0; id < 3; ++id) {
      ASSERT_TRUE(table->LoadValues(id, first[id]).ok());
    }
    for (int t = 1; t <= 3; ++t) {
      Step(table.get(), {pushes[t - 1]}, AdamScalars(0.1f, t, 0.5, 0.8));
    }
    for (uint64_t id = 0; id < 3; ++id) {
      EXPECT_THAT(ReadRow(*table, id),
                  ElementsAre(FloatNear(test.rows[id][0], 1e-6f),
                              FloatNear(test.rows[id][1], 1e-6f)))
          << test.optimizer << " row " << id;
    }
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

// The accumulator knows the gradients when the rate rises again.
TEST(RowRuleTest, ARateOf0ChangesNoValue) {
  for (const std::string rule : {"sgd {}", "momentum { momentum: 0.9 }",
                                 "adagrad {}", "adam {}", "ftrl {}"}) {
    const auto table = MakeEmbeddingTable(
        Declared(2, "initializer { constant { value: 0.3 } }"),
        "learning_rate: 0 " + rule);
    for (int t = 1; t <= 3; ++t) {
      Step(table.get(), {{{7, {1, -2}}}}, AdamScalars(0, t));
    }
    EXPECT_THAT(ReadRow(*table, 7), ElementsAre(0.3f, 0.3f)) << rule;
    EXPECT_EQ(table->rows(), 1) << rule;
  }
  // 0.5 + (1 + 4) / 2 = 3, and 3 + (4 + 4) / 2 = 7.
  const auto table = MakeEmbeddingTable(
      Declared(2, "row_wise: true"),
      "learning_rate: 0 adagrad { initial_accumulator_value: 0.5 }");
  Step(table.get(), {{{7, {1, -2}}}}, Rate(0));
  EXPECT_THAT(ReadRow(*table, 7), ElementsAre(0, 0));
  Step(table.get(), {{{7, {2, 2}}}}, Rate(1));
  EXPECT_THAT(ReadRow(*table, 7), ElementsAre(FloatEq(-2 / std::sqrt(7.0f)),
                                              FloatEq(-2 / std::sqrt(7.0f))));
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
              HasSubstr("table \"t\": its optimizer must be sgd"));
  EXPECT_THAT(error("", "learning_rate: 1 adamw {}"), HasSubstr("must be sgd"));
  EXPECT_THAT(error("row_wise: true", "learning_rate: 1 sgd {}"),
              HasSubstr("table \"t\": row_wise is only for adagrad"));
}

}  // namespace
}  // namespace holdfast
