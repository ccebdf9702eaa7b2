// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/declaration.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "worker/model/model.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

std::vector<proto::Variable> Variables() {
  return {Parse<proto::Variable>(
              "name: \"w\" shape: [2, 3] dtype: FLOAT32 initializer { he {} }"),
          Parse<proto::Variable>(
              "name: \"b\" shape: 3 dtype: FLOAT32 initializer { zeros {} }")};
}

bool Equal(const proto::Declaration& a, const proto::Declaration& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

proto::Declaration Make(const proto::Job& job, const Replicas& replicas,
                        uint64_t num_examples) {
  auto declaration = MakeDeclaration(job, Variables(), replicas, num_examples);
  EXPECT_TRUE(declaration.ok()) << declaration.status();
  return *std::move(declaration);
}

// 2 passes over 1000 examples, 300 a step: 6.67 steps, rounded up.
TEST(MakeDeclarationTest, HoldsWhatTheJobSays) {
  const auto job = Parse<proto::Job>(
      R"pb(name: "example"
           batch_size: 100
           epochs: 2
           optimizer {
             learning_rate: 0.5
             sgd {}
           }
           consistency { synchronous { aggregation: SUM } }
           placement: GREEDY_BY_BYTES
           seed: 9
           timeouts { step_seconds: 60 recovery_seconds: 5 }
           clipping { global_norm: 5 }
           partitioner { fixed_shards { shards: 3 } }
           checkpoints { every_steps: 7 keep: 2 }
           max_consecutive_not_finite: 50
           lost_workers { policy: CONTINUE min_replicas: 2 })pb");
  const auto expected = Parse<proto::Declaration>(
      R"pb(variables {
             name: "w"
             shape: [ 2, 3 ]
             dtype: FLOAT32
             initializer { he {} }
           }
           variables {
             name: "b"
             shape: 3
             dtype: FLOAT32
             initializer { zeros {} }
           }
           optimizers {
             learning_rate: 0.5
             sgd {}
           }
           consistency {
             synchronous {
               replicas_to_aggregate: 2
               total_num_replicas: 3
               aggregation: SUM
             }
           }
           placement: GREEDY_BY_BYTES
           seed: 9
           total_steps: 7
           timeouts { step_seconds: 60 recovery_seconds: 5 }
           clipping { global_norm: 5 }
           partitioner { fixed_shards { shards: 3 } }
           examples: BY_STEP
           checkpoints { every_steps: 7 keep: 2 }
           max_consecutive_not_finite: 50
           lost_workers { policy: CONTINUE min_replicas: 2 })pb");
  const proto::Declaration declaration =
      Make(job, Replicas{.to_aggregate = 2, .total = 3}, 1000);
  EXPECT_TRUE(Equal(declaration, expected)) << declaration.DebugString();
}

TEST(MakeDeclarationTest, Float16AloneHasALossScale) {
  const std::string job = "batch_size: 100 epochs: 2 precision ";
  EXPECT_TRUE(Make(Parse<proto::Job>(job + "{ float16 {} }"), Replicas{}, 1050)
                  .has_loss_scale());
  const proto::Declaration declaration =
      Make(Parse<proto::Job>(
               job + "{ float16 { loss_scale { growth_interval: 7 } } }"),
           Replicas{}, 1050);
  EXPECT_EQ(declaration.loss_scale().growth_interval(), 7);
  EXPECT_FALSE(declaration.loss_scale().has_initial());
  for (const char* precision : {"{ float32 {} }", "{ bfloat16 {} }"}) {
    EXPECT_FALSE(Make(Parse<proto::Job>(job + precision), Replicas{}, 1050)
                     .has_loss_scale());
  }
}

// 2 passes over 1050 examples are 21 batches of 100, and 10.5 steps of 2.
TEST(MakeDeclarationTest, CountsTicketsOfASynchronousJob) {
  const auto job = Parse<proto::Job>("batch_size: 100 epochs: 2");
  const proto::Declaration declaration = Make(
      job,
      Replicas{.to_aggregate = 2, .total = 3, .examples = proto::BY_TICKET},
      1050);
  EXPECT_EQ(declaration.examples(), proto::BY_TICKET);
  EXPECT_EQ(declaration.total_tickets(), 21);
  EXPECT_EQ(declaration.total_steps(), 11);
  EXPECT_FALSE(declaration.has_clipping());
  EXPECT_FALSE(declaration.has_partitioner());
  EXPECT_TRUE(declaration.has_checkpoints());
  EXPECT_FALSE(declaration.has_lost_workers());
}

TEST(MakeDeclarationTest, HoldsAnAsynchronousMode) {
  const auto job = Parse<proto::Job>("batch_size: 100 steps: 50");
  Replicas replicas{.total = 3,
                    .asynchronous = true,
                    .pipeline_depth = 2,
                    .examples = proto::BY_TICKET};
  proto::Declaration declaration = Make(job, replicas, 1000);
  EXPECT_EQ(declaration.consistency().ShortDebugString(),
            "asynchronous { pipeline_depth: 2 }");
  EXPECT_EQ(declaration.examples(), proto::BY_TICKET);
  EXPECT_EQ(declaration.total_tickets(), 50);
  EXPECT_EQ(declaration.total_steps(), 50);

  replicas.staleness_bound = 0;
  declaration = Make(job, replicas, 1000);
  EXPECT_EQ(declaration.consistency().ShortDebugString(),
            "asynchronous { staleness_bound: 0 pipeline_depth: 2 }");
}

TEST(MakeDeclarationTest, HoldsHowEachVariableTravels) {
  auto job =
      Parse<proto::Job>(
          R"pb(batch_size: 100
               steps: 50
               compression {
                 variables: "w"
                 push: TOP_K
                 top_k: 0.1
                 pull: FLOAT16
               })pb");
  proto::Declaration declaration = Make(job, {.total = 1}, 1000);
  EXPECT_EQ(declaration.variables(0).compression().ShortDebugString(),
            "push: TOP_K top_k: 0.1 pull: FLOAT16");
  EXPECT_EQ(declaration.variables(1).compression().ShortDebugString(), "");
  // Moving averages are not compressed.
  job.mutable_compression(0)->set_variables(".*");
  std::vector<proto::Variable> variables = Variables();
  variables[1].mutable_moving_average()->set_momentum(0.5f);
  const auto averaging = MakeDeclaration(job, variables, {.total = 1}, 1000);
  ASSERT_TRUE(averaging.ok()) << averaging.status();
  EXPECT_TRUE(averaging->variables(0).has_compression());
  EXPECT_FALSE(averaging->variables(1).has_compression());
  EXPECT_EQ(averaging->variables(1).moving_average().momentum(), 0.5f);
  job.mutable_compression(0)->set_variables("v");
  EXPECT_EQ(
      MakeDeclaration(job, Variables(), {.total = 1}, 1000).status().message(),
      "compression[0].variables: \"v\" is not the whole name of any variable; "
      "the variables are w, b");
}

TEST(DeclareJobTest, TellsTheJobFileAndItsExamples) {
  auto job = Parse<proto::Job>(
      R"pb(name: "example"
           data { train { npy { inputs: "x.npy" targets: "y.npy" } } }
           local { ps: 3 })pb");
  proto::Declaration declaration;
  *declaration.mutable_job() =
      DeclareJob(job, {.shape = {28, 14, 3}, .num_targets = 2});
  EXPECT_EQ(declaration.job().num_classes(), 0);
  EXPECT_EQ(declaration.job().num_targets(), 2);
  EXPECT_EQ(declaration.job().example_shape_size(), 3);
  EXPECT_EQ(declaration.job().example_shape(1), 14);
  const auto declared = DeclaredJobFile(declaration);
  ASSERT_TRUE(declared.ok()) << declared.status();
  EXPECT_EQ(declared->name(), "example");
  // Paths of data and the number of local tasks are each machine's own.
  EXPECT_TRUE(declared->data().train().has_npy());
  EXPECT_EQ(declared->data().train().npy().inputs(), "");
  EXPECT_FALSE(declared->has_local());
  EXPECT_FALSE(declared->data().has_test());

  EXPECT_EQ(DeclareJob(job, {.shape = {4}, .num_classes = 7}).num_classes(), 7);
}

TEST(DeclareJobTest, ScriptsDeclareNone) {
  EXPECT_TRUE(absl::IsNotFound(DeclaredJobFile({}).status()));
  proto::Declaration damaged;
  damaged.mutable_job()->set_job_file("\xff");
  EXPECT_TRUE(absl::IsDataLoss(DeclaredJobFile(damaged).status()));
}

TEST(MakeDeclarationTest, AModelHasNoFirstValuesToGive) {
  const auto given = Parse<proto::Variable>(
      "name: \"w\" shape: 3 dtype: FLOAT32 initializer { given {} }");
  const absl::Status status =
      MakeDeclaration(proto::Job(), {given}, Replicas(), 100).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("the model's variable \"w\""),
            std::string::npos)
      << status;
}

// The declaration of a job with one table, for the second of two fields.
proto::Declaration WithTable(const std::string& declared,
                             const std::string& optimizer,
                             absl::Status* status) {
  const auto job = Parse<proto::Job>(optimizer + " batch_size: 10");
  ModelTable table;
  table.declared = Parse<proto::EmbeddingTable>(declared);
  table.fields = {1};
  ExampleSpec examples;
  examples.id_fields = {{"a", 1}, {"b", 3}};
  proto::Declaration declaration;
  *status = AddTables(job, {table}, examples, &declaration);
  return declaration;
}

constexpr char kTable[] = "name: 't' row_length: 2 initializer { zeros {} } ";

TEST(AddTablesTest, APushHasAtMostAsManyRowsAsABatchHasIds) {
  absl::Status status;
  const auto declaration =
      WithTable(kTable, "optimizer { learning_rate: 1 sgd {} }", &status);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(declaration.tables_size(), 1);
  EXPECT_EQ(declaration.tables(0).max_rows_per_push(), 30);
}

TEST(AddTablesTest, WhatAPsWouldRefuseIsRefusedBefore) {
  const auto error = [](const std::string& declared,
                        const std::string& optimizer) {
    absl::Status status;
    WithTable(declared, optimizer, &status);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  const std::string sgd = "optimizer { learning_rate: 1 sgd {} }";
  EXPECT_THAT(error("name: 't' row_length: 2 initializer { glorot {} }", sgd),
              HasSubstr("table \"t\": glorot and he"));
  EXPECT_THAT(error(std::string(kTable) + "row_wise: true", sgd),
              HasSubstr("table \"t\": row_wise is only for adagrad"));
  EXPECT_THAT(error(kTable, "optimizer { learning_rate: 1 rmsprop {} }"),
              HasSubstr("table \"t\": its optimizer"));
}

}  // namespace
}  // namespace holdfast
