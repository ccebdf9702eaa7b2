// SPDX-License-Identifier: Apache-2.0

// Job files: how they are read, and every kind of error that they may have.

#include "common/job/job_file.h"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/job/testing/job_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// The kinds that a layer may have.
constexpr char kLayerKinds[] =
    "flatten or dense or relu or tanh or sigmoid or dropout or conv2d or "
    "max_pool2d or average_pool2d or global_average_pool2d or layer_norm or "
    "residual or batch_norm or reshape";

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(ParseJobFileTest, GoodJob) {
  const auto job = ParseJobFile(kJob, "some/dir/job.textproto");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "job");
  EXPECT_EQ(job->model().sequential().layers_size(), 4);
  EXPECT_EQ(job->steps(), 3000);
  EXPECT_EQ(job->placement(), proto::GREEDY_BY_BYTES);
}

TEST(ParseJobFileTest, RelativePathsCountFromTheFile) {
  const struct {
    std::string filename;
    std::string images;
  } kCases[] = {
      {"some/dir/job.textproto", "some/dir/train-images"},
      {"/job.textproto", "/train-images"},
      {"job.textproto", "train-images"},
  };
  for (const auto& test : kCases) {
    const auto job = ParseJobFile(kJob, test.filename);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->data().train().idx().images(), test.images);
    EXPECT_EQ(job->data().test().idx().labels(), "/data/test-labels");
  }
}

// One error each, and its complete message. The line numbers are kJob's.
TEST(ParseJobFileTest, OneFault) {
  const struct {
    std::string from;
    std::string to;
    std::string error;
  } kCases[] = {
      // Not a textproto.
      {"evaluation {", "evaluation",
       ":21:12: after \"evaluation\": Expected \"{\", found \"every_steps\"."},
      {"\"out\"", "\"out",
       ":7:60: after \"name\": String literals cannot cross line boundaries."},
      {"seed: 7", "seed: 7 }",
       ":22:9: after \"seed\": Expected identifier, got: }"},
      {"seed: 7", "seed:",
       ":23:1: after \"seed\": Expected integer, got: the end of the file"},
      {"seed: 7", "seed: 7 @",
       ":22:9: after \"seed\": Expected identifier, got: @"},
      {"sgd {} }", "sgd {} ",
       ":19:1: Message type \"holdfast.proto.Optimizer\" has no field named "
       "\"consistency\"."},
      // Fields that are missing or duplicated.
      {"units: 8", "unit: 8 units: 8",
       ":5:22: Message type \"holdfast.proto.Layer.Dense\" has no field named "
       "\"unit\"."},
      {"relu {}", "relu { leak: 1 }",
       ":6:21: Message type \"holdfast.proto.Layer.Relu\" has no field named "
       "\"leak\"."},
      {"seed: 7", "seed: 7 [a.b]: 2",
       ":22:14: after \"b\": Extension \"a.b\" is not defined or is not an "
       "extension of \"holdfast.proto.Job\"."},
      {"seed: 7", "seed: 7 seed: 8",
       ":22:9: Non-repeated field \"seed\" is specified multiple times."},
      {"sgd {}", "sgd {} momentum {}",
       ":18:39: Field \"momentum\" is specified along with field \"sgd\", "
       "another member of oneof \"update\"."},
      {"steps: 3000", "steps: 3000 epochs: 2",
       ":17:13: Field \"epochs\" is specified along with field \"steps\", "
       "another member of oneof \"length\"."},
      // Values of the wrong type.
      {"batch_size: 100", "batch_size: \"a\"",
       ":16:13: after \"batch_size\": Expected integer, got: \"a\""},
      {"batch_size: 100", "batch_size:\n  \"a\"",
       ":17:3: after \"batch_size\": Expected integer, got: \"a\""},
      {"batch_size: 100", "batch_size: -1",
       ":16:13: after \"batch_size\": Expected integer, got: -"},
      {"batch_size: 100", "batch_size: 1.5",
       ":16:13: after \"batch_size\": Expected integer, got: 1.5"},
      {"batch_size: 100", "batch_size: 4294967296",
       ":16:13: after \"batch_size\": Integer out of range (4294967296)"},
      {"batch_size: 100", "batch_size { a: 1 }",
       ":16:12: after \"batch_size\": Expected \":\", found \"{\"."},
      {"\"job\"", "job", ":1:7: after \"name\": Expected string, got: job"},
      {"0.1", "fast",
       ":18:28: after \"learning_rate\": Expected double, got: fast"},
      {"0.1", "\"fast\"",
       ":18:28: after \"learning_rate\": Expected double, got: \"fast\""},
      {"use_bias: true", "use_bias: yes",
       ":7:53: Invalid value for boolean field \"use_bias\". Value: \"yes\"."},
      {"use_bias: true", "use_bias: 7",
       ":7:53: after \"use_bias\": Integer out of range (7)"},
      {"GREEDY_BY_BYTES", "GREEDY",
       ":20:12: Unknown enumeration value of \"GREEDY\" for field "
       "\"placement\"."},
      {"GREEDY_BY_BYTES", "GREEDY # not RANDOM\n\n",
       ":20:12: Unknown enumeration value of \"GREEDY\" for field "
       "\"placement\"."},
      {"GREEDY_BY_BYTES", "1.5",
       ":20:12: after \"placement\": Expected integer or identifier, got: 1.5"},
      {"relu {}", "relu: 1",
       ":6:20: after \"relu\": Expected \"{\", found \"1\"."},
      // Impossible values.
      {"\"job\"", "\"\"", ":1: name: must be set"},
      {"\"job\"", "\"my job\"",
       ":1: name: must consist of letters, digits and _-./, and begin with a "
       "letter or "
       "digit, is \"my job\""},
      {"\"out\"", "\"../out\"",
       ":7: model.sequential.layers[3].name: must consist of letters, digits "
       "and _-./, and begin with a letter or digit, is \"../out\""},
      {"batch_size: 100", "",
       ": batch_size: must be at least 1, is 0 or not set"},
      {"batch_size: 100", "batch_size: 0",
       ":16: batch_size: must be at least 1, is 0 or not set"},
      {"batch_size: 100", "batch_size: 2000000000",
       ":16: batch_size: must be at most 1000000000, is 2000000000"},
      {"steps: 3000", "", ": needs steps or epochs"},
      {"steps: 3000", "steps: 0", ":17: steps: must be at least 1, is 0"},
      {"steps: 3000", "epochs: 0", ":17: epochs: must be above 0, is 0"},
      {"steps: 3000", "epochs: nan", ":17: epochs: must be finite, is nan"},
      {"0.1", "-1", ":18: optimizer.learning_rate: must be at least 0, is -1"},
      {"0.1", "1e999", ":18: optimizer.learning_rate: must be finite, is inf"},
      {"0.1", "-inf", ":18: optimizer.learning_rate: must be finite, is -inf"},
      {"learning_rate: 0.1", "", ":18: optimizer.learning_rate: must be set"},
      {"sgd {}", "",
       ":18: optimizer: needs sgd or momentum or adagrad or rmsprop or adam or "
       "adamw or ftrl"},
      {"sgd {}", "momentum { momentum: 1 }",
       ":18: optimizer.momentum.momentum: must be below 1, is 1"},
      {"sgd {}", "momentum { momentum: -0.5 }",
       ":18: optimizer.momentum.momentum: must be at least 0, is -0.5"},
      {"optimizer { learning_rate: 0.1 sgd {} }", "",
       ": optimizer: must be set"},
      {"scale: 0.5", "scale: 0", ":14: data.scale: must be above 0, is 0"},
      {"scale: 0.5", "prefetch: 0",
       ":14: data.prefetch: must be at least 1, is 0"},
      {"GREEDY_BY_BYTES", "7",
       ":20: placement: must be ROUND_ROBIN or GREEDY_BY_BYTES, is 7"},
      {"\"train-images\"", "\"\"", ":12: data.train.idx.images: must be set"},
      {"train { idx { images: \"train-images\" labels: \"train-labels\" } }",
       "train {}",
       ":12: data.train: needs idx or npy or csv or "
       "tfrecord or images or criteo or libsvm or registered"},
      {" labels: \"train-labels\"", "",
       ":12: data.train.idx: needs labels, the examples' classes, or targets, "
       "the numbers that the outputs should be"},
      {"train { idx { images: \"train-images\" labels: \"train-labels\" } }",
       "train { npy { inputs: \"x\" labels: \"y\" targets: \"z\" } }",
       ":12: data.train.npy: has labels and targets: an example has a class or "
       "targets, not both"},
      {"relu {}", "",
       absl::StrCat(":6: model.sequential.layers[2]: needs ", kLayerKinds)},
      {"units: 8", "units: 0",
       ":5: model.sequential.layers[1].dense.units: must be at least 1, is 0 "
       "or "
       "not set"},
      {"loss { softmax_cross_entropy {} }", "loss {}",
       ":8: model.sequential.loss: needs softmax_cross_entropy or "
       "sigmoid_cross_entropy or mean_squared_error or mean_absolute_error or "
       "huber"},
      {"loss { softmax_cross_entropy {} }", "",
       ":3: model.sequential.loss: must be set"},
      {"units: 8", "units: 8 kernel_initializer {}",
       ":5: model.sequential.layers[1].dense.kernel_initializer: needs zeros "
       "or "
       "constant or uniform or normal or truncated_normal or glorot or he or "
       "given"},
      {"units: 8", "units: 8 bias_initializer { given {} }",
       ":5: model.sequential.layers[1].dense.bias_initializer.given: a job "
       "file cannot contain values: only your own worker programs can give "
       "them (client/cluster.h)"},
      {"units: 8", "units: 8 kernel_initializer { normal { stddev: -1 } }",
       ":5: model.sequential.layers[1].dense.kernel_initializer.normal.stddev: "
       "must be at least 0, is -1"},
      {"consistency { synchronous { replicas_to_aggregate: 2 "
       "total_num_replicas: 2 } }",
       "consistency {}", ":19: consistency: needs synchronous or asynchronous"},
      {"replicas_to_aggregate: 2", "replicas_to_aggregate: 0",
       ":19: consistency.synchronous.replicas_to_aggregate: must be at least "
       "1, "
       "is 0"},
      {"seed: 7", "timeouts { step_seconds: 0 }",
       ":22: timeouts.step_seconds: must be above 0, is 0"},
      {"seed: 7", "local { ps: 0 }", ":22: local.ps: must be at least 1, is 0"},
      // Rules between fields.
      {"seed: 7", "local { workers: 3 }",
       ":22: local.workers: must be total_num_replicas, which is 2, is 3"},
      {"seed: 7", "micro_batches: 0",
       ":22: micro_batches: must be at least 1, is 0"},
      {"seed: 7", "micro_batches: 101",
       ":22: micro_batches: must be at most batch_size, which is 100, is 101"},
      {"seed: 7", "examples: ALL",
       ":22:11: Unknown enumeration value of \"ALL\" for field \"examples\"."},
      {"consistency { synchronous { replicas_to_aggregate: 2 "
       "total_num_replicas: 2 } }",
       "consistency { asynchronous {} }\nexamples: BY_STEP",
       ":20: examples: must be BY_TICKET in an asynchronous job, whose pushes "
       "have no seats in steps, is BY_STEP"},
      {"consistency { synchronous { replicas_to_aggregate: 2 "
       "total_num_replicas: 2 } }",
       "consistency { asynchronous { pipeline_depth: 65 } }",
       ":19: consistency.asynchronous.pipeline_depth: must be at most 64, is "
       "65"},
      {"seed: 7", "timeouts { recovery_seconds: -1 }",
       ":22: timeouts.recovery_seconds: must be at least 0, is -1"},
      {"seed: 7", "checkpoints { keep: 0 }",
       ":22: checkpoints.keep: must be at least 1, is 0"},
      {"seed: 7", "lost_workers { min_replicas: 1 }",
       ":22: lost_workers.min_replicas: needs policy: CONTINUE"},
      {"seed: 7", "lost_workers { policy: WAIT max_workers: 2 }",
       ":22: lost_workers.max_workers: needs policy: CONTINUE"},
      {"seed: 7",
       "lost_workers { policy: CONTINUE min_replicas: 3 max_workers: 2 }",
       ":22: lost_workers.min_replicas: must be at most max_workers, which is "
       "2, is 3"},
      {"seed: 7", "lost_workers { policy: CONTINUE max_workers: 4 }",
       ":19: consistency.synchronous.total_num_replicas: must be "
       "lost_workers.max_workers, which is 4, is 2"},
      {"replicas_to_aggregate: 2 total_num_replicas: 2 } }",
       "replicas_to_aggregate: 4 total_num_replicas: 2 } }\n"
       "lost_workers { policy: CONTINUE }",
       ":19: consistency.synchronous.replicas_to_aggregate: must be at most "
       "the 2 workers that there may be if lost_workers.policy is CONTINUE, "
       "is 4"},
      {"consistency { synchronous { replicas_to_aggregate: 2 "
       "total_num_replicas: 2 } }",
       "lost_workers { policy: CONTINUE max_workers: 2 } local { workers: 3 }",
       ":19: local.workers: must be at most lost_workers.max_workers, which is "
       "2, is 3"},
      {"consistency { synchronous { replicas_to_aggregate: 2 "
       "total_num_replicas: 2 } }",
       "consistency { asynchronous {} }\nlost_workers { policy: WAIT }",
       ":20: lost_workers.policy: must be CONTINUE in an asynchronous job, "
       "whose pushes do not wait for other workers, is WAIT"},
      {"test { idx { images: \"/data/test-images\" labels: "
       "\"/data/test-labels\" } }",
       "", ":21: evaluation: needs data.test or data.holdout"},
      {"evaluation { ",
       "evaluation { keep_best { metric { name: \"acuracy\" } } ",
       ":21: evaluation.keep_best.metric.name: must be loss, accuracy, "
       "top_k_accuracy, auc, mean_absolute_error or mean_squared_error, is "
       "\"acuracy\"; other names are for your own programs"},
      {"evaluation { ",
       "evaluation { keep_best { metric { name: \"calibration\" } } ",
       ":21: evaluation.keep_best.metric.name: calibration is best at 1, so "
       "neither its minimum nor its maximum is best: use loss or auc"},
      {"units: 8", "units: 8 kernel_initializer { uniform { low: 1 high: 1 } }",
       ":5: model.sequential.layers[1].dense.kernel_initializer.uniform.high: "
       "must be above low, which is 1, is 1"},
      {"units: 8", "units: 8 use_bias: false bias_initializer { zeros {} }",
       ":5: model.sequential.layers[1].dense.bias_initializer: has no bias to "
       "initialize: use_bias is false"},
      {"\"out\"", "\"relu\"",
       ":7: model.sequential.layers[3]: has the name \"relu\", like "
       "layers[2]: give it another"},
      // Layers that take images, and nested layers.
      {"relu {}", "conv2d { kernel_size: 3 }",
       ":6: model.sequential.layers[2].conv2d.filters: must be at least 1, is "
       "0 or not set"},
      {"relu {}", "conv2d { filters: 3 }",
       ":6: model.sequential.layers[2].conv2d.kernel_size: must have at least "
       "one"},
      {"relu {}", "conv2d { filters: 3 kernel_size: [3, 0] }",
       ":6: model.sequential.layers[2].conv2d.kernel_size[1]: must be at "
       "least 1, is 0"},
      {"relu {}", "conv2d { filters: 3\nkernel_size: [3, 2, 1] }",
       ":7: model.sequential.layers[2].conv2d.kernel_size: must be one number, "
       "or two, [height, width], is 3 numbers"},
      {"relu {}", "conv2d { filters: 3 kernel_size: 1 stride: [3, 2, 1] }",
       ":6: model.sequential.layers[2].conv2d.stride: must be one number, or "
       "two, [height, width], is 3 numbers"},
      {"relu {}", "conv2d { filters: 3 kernel_size: 1 groups: 2 }",
       ":6: model.sequential.layers[2].conv2d.groups: must divide filters, "
       "which is 3, is 2"},
      {"relu {}", "conv2d { filters: 3 kernel_size: 1 padding: FULL }",
       ":6:58: Unknown enumeration value of \"FULL\" for field \"padding\"."},
      {"relu {}",
       "conv2d { filters: 3 kernel_size: 1 use_bias: false bias_initializer { "
       "zeros {} } }",
       ":6: model.sequential.layers[2].conv2d.bias_initializer: has no bias to "
       "initialize: use_bias is false"},
      {"relu {}", "max_pool2d {}",
       ":6: model.sequential.layers[2].max_pool2d.size: must have at least "
       "one"},
      {"relu {}", "max_pool2d { size: [1, 2, 3] }",
       ":6: model.sequential.layers[2].max_pool2d.size: must be one number, or "
       "two, [height, width], is 3 numbers"},
      {"relu {}", "average_pool2d { size: 2 stride: [1, 2, 3] }",
       ":6: model.sequential.layers[2].average_pool2d.stride: must be one "
       "number, or two, [height, width], is 3 numbers"},
      {"relu {}", "layer_norm { epsilon: 0 }",
       ":6: model.sequential.layers[2].layer_norm.epsilon: must be above 0, is "
       "0"},
      {"relu {}", "batch_norm { momentum: 1 }",
       ":6: model.sequential.layers[2].batch_norm.momentum: must be below 1, "
       "is 1"},
      {"relu {}", "residual {}",
       ":6: model.sequential.layers[2].residual.layers: must have at least "
       "one"},
      {"relu {}",
       "residual { layers { relu {} }\nlayers { conv2d { filters: 3 "
       "kernel_size: 1 groups: 2 } } }",
       ":7: model.sequential.layers[2].residual.layers[1].conv2d.groups: must "
       "divide filters, which is 3, is 2"},
      {"relu {}",
       "residual { layers { relu {} }\nshortcut { name: \"a\" relu {} }\n"
       "shortcut { name: \"a\" relu {} } }",
       ":8: model.sequential.layers[2].residual.shortcut[1]: has the name "
       "\"a\", like shortcut[0]: give it another"},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(ErrorsOf(Changed(test.from, test.to)),
                ElementsAre(absl::StrCat("dir/job.textproto", test.error)))
        << test.from << " -> " << test.to;
  }
}

TEST(ParseJobFileTest, EveryBrokenRuleIsToldInTheOrderOfTheFile) {
  EXPECT_THAT(
      ErrorsOf("optimizer { learning_rate: -2 }\n"
               "name: \"x\"\n"
               "batch_size: 0\n"
               "model { sequential {\n"
               "  layers {\n"
               "    dense {\n"
               "      units: 0\n"
               "    }\n"
               "  }\n"
               "  layers {\n"
               "  }\n"
               "} }\n"),
      ElementsAre(
          "dir/job.textproto: data: must be set",
          "dir/job.textproto: needs steps or epochs",
          "dir/job.textproto:1: optimizer.learning_rate: must be at least 0, "
          "is -2",
          "dir/job.textproto:1: optimizer: needs sgd or momentum or adagrad or "
          "rmsprop or adam or adamw or ftrl",
          "dir/job.textproto:3: batch_size: must be at least 1, is 0 or not "
          "set",
          "dir/job.textproto:4: model.sequential.loss: must be set",
          "dir/job.textproto:7: model.sequential.layers[0].dense.units: must "
          "be at least 1, is 0 or not set",
          absl::StrCat("dir/job.textproto:10: model.sequential.layers[1]: "
                       "needs ",
                       kLayerKinds)));
  // A list.
  EXPECT_THAT(
      ErrorsOf(Changed("layers { flatten {} }\n",
                       "layers [\n{ flatten {} },\n"
                       "{ dense {\n"
                       "units: 0 } },\n"
                       "{}]\n")),
      ElementsAre(
          absl::StrCat(
              "dir/job.textproto:3: model.sequential.layers[2]: needs ",
              kLayerKinds),
          "dir/job.textproto:7: model.sequential.layers[1].dense.units: "
          "must be at least 1, is 0 or not set"));
}

TEST(ParseJobFileTest, OfWhatCannotBeReadTheFirstFaultIsTold) {
  EXPECT_THAT(ErrorsOf("batch_size: 0\n"
                       "steps: many\n"
                       "seed: few\n"),
              ElementsAre("dir/job.textproto:2:8: after \"steps\": Expected "
                          "integer, got: many"));
}

TEST(ParseJobFileTest, AtMostTwentyBrokenRulesAreTold) {
  std::string layers;
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&layers, "layers { relu {} name: \"?\" }\n");
  }
  const std::vector<std::string> errors =
      ErrorsOf(absl::StrCat("model { sequential {\n", layers, "} }\n"));
  EXPECT_THAT(errors, SizeIs(21));
  EXPECT_THAT(errors, Each(StartsWith("dir/job.textproto:")));
  EXPECT_EQ(errors.back(), "dir/job.textproto: and more");
}

TEST(ParseJobFileTest, AnythingButAJob) {
  EXPECT_THAT(ErrorsOf(""), SizeIs(6));
  EXPECT_THAT(ErrorsOf("# nothing"), SizeIs(6));
  for (const std::string& text :
       {std::string("\0\1\2", 3), std::string("\xff\xfe{"), std::string("{"),
        std::string("]"), std::string("model {{"), std::string("model { ]"),
        std::string("model [{ } , <> ]"), std::string("name: 'a' \"b\" 7"),
        std::string("\"name\": \"json\""), std::string("\"\""),
        std::string("model < sequential { >"), std::string(100, '['),
        std::string(100, '{')}) {
    EXPECT_THAT(ErrorsOf(text), Not(SizeIs(0)));
  }
  std::string deep;
  for (int i = 0; i < 200000; ++i) deep += "a {";
  EXPECT_THAT(ErrorsOf(deep), ElementsAre(HasSubstr(":1:1: ")));
  EXPECT_THAT(ErrorsOf(absl::StrCat("a: ", std::string(200000, '['))),
              ElementsAre(HasSubstr(":1:1: ")));
  EXPECT_THAT(ErrorsOf(std::string((1 << 20) + 1, '\n')),
              ElementsAre("dir/job.textproto: a job file has at most 1048576 "
                          "bytes"));
}

// Every prefix of a valid job, and every job with one byte changed, is either
// read or rejected with a message.
TEST(ParseJobFileTest, DamagedJobs) {
  const std::string good = kJob;
  for (size_t size = 0; size < good.size(); ++size) {
    const auto job = ParseJobFile(good.substr(0, size), "j");
    if (job.ok()) continue;
    EXPECT_THAT(Message(job.status()), StartsWith("j:"));
  }
  for (size_t at = 0; at < good.size(); ++at) {
    for (const char c : {'{', '}', '"', '[', ' ', '\n', '\t', 'x', '\xff'}) {
      std::string bad = good;
      bad[at] = c;
      const auto job = ParseJobFile(bad, "j");
      if (job.ok()) continue;
      EXPECT_THAT(Message(job.status()), StartsWith("j:"));
    }
  }
}

TEST(ParseJobFileTest, ColumnsCountTabsToTheNextMultipleOfEight) {
  EXPECT_THAT(ErrorsOf("name: \"x\"\n \t\tfoo: 1\n"),
              ElementsAre(AllOf(StartsWith("dir/job.textproto:2:17: "),
                                HasSubstr("\"foo\""))));
}

// The settings of examples and batches, in synchronous and asynchronous jobs.
TEST(ParseJobFileTest, ExamplesAndMicroBatches) {
  const std::string synchronous =
      "consistency { synchronous { replicas_to_aggregate: 2 "
      "total_num_replicas: 2 } }";
  for (const std::string& consistency :
       {synchronous + "examples: BY_STEP", synchronous + "examples: BY_TICKET",
        std::string("consistency { asynchronous {} } examples: BY_TICKET"),
        std::string("consistency { asynchronous { staleness_bound: 0 } }"),
        std::string("examples: BY_STEP"),
        std::string("consistency { asynchronous {} } local { workers: 3 }"),
        std::string("micro_batches: 100")}) {
    const auto job = ParseJobFile(Changed(synchronous, consistency), "j");
    EXPECT_TRUE(job.ok()) << consistency << ": " << job.status();
  }
}

TEST(ParseJobFileTest, LostWorkers) {
  const std::string synchronous =
      "consistency { synchronous { replicas_to_aggregate: 2 "
      "total_num_replicas: 2 } }";
  for (const std::string& text :
       {synchronous + "lost_workers { policy: WAIT }",
        synchronous + "lost_workers { policy: CONTINUE }",
        synchronous + "lost_workers { policy: CONTINUE max_workers: 2 }",
        std::string("lost_workers { policy: CONTINUE min_replicas: 4 "
                    "max_workers: 4 } local { workers: 2 }"),
        std::string("consistency { asynchronous {} } "
                    "lost_workers { min_replicas: 2 max_workers: 8 }"),
        std::string("consistency { asynchronous {} } "
                    "lost_workers { policy: CONTINUE }")}) {
    const auto job = ParseJobFile(Changed(synchronous, text), "j");
    EXPECT_TRUE(job.ok()) << text << ": " << job.status();
  }
}

TEST(ParseJobFileTest, Compression) {
  const auto errors = [](const std::string& text) {
    return std::string(
        ParseJobFile(absl::StrCat(kJob, text), "j").status().message());
  };
  EXPECT_EQ(errors("compression { variables: \"dense/.*\" push: INT8 }"
                   "compression { push: TOP_K top_k: 0.02 pull: FLOAT16 }"),
            "");
  EXPECT_EQ(
      errors("compression { push: INT8 }\n"
             "compression { variables: \"(a\" push: INT8 pull: INT8 }"),
      "j:24: compression[1].pull: must be EXACT, FLOAT16 or BFLOAT16, is "
      "INT8\n"
      "j:24: compression[1].variables: is not a regular expression: missing "
      "): (a");
  EXPECT_EQ(
      errors("compression { push: INT4 }"),
      "j:23:21: Unknown enumeration value of \"INT4\" for field \"push\".");
}

TEST(ResolveCompressionTest, TheFirstRuleThatMatchesCounts) {
  const std::vector<std::string> names = {"dense/kernel", "dense/bias",
                                          "out/kernel"};
  const auto resolve = [&](const std::string& rules) {
    const auto job = ParseJobFile(absl::StrCat(kJob, rules), "j");
    EXPECT_TRUE(job.ok()) << job.status();
    return ResolveCompression(*job, names);
  };
  const auto texts = [&](const std::string& rules) {
    const auto resolved = resolve(rules);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    std::vector<std::string> texts;
    for (const proto::Compression& compression : *resolved) {
      texts.push_back(compression.ShortDebugString());
    }
    return texts;
  };
  EXPECT_THAT(texts(""), ElementsAre("", "", ""));
  EXPECT_THAT(texts("compression { pull: BFLOAT16 }"), Each("pull: BFLOAT16"));
  EXPECT_THAT(
      texts("compression { variables: \"dense/.*\" push: INT8 }"
            "compression { variables: \".*/kernel\" push: TOP_K top_k: 0.5 }"),
      ElementsAre("push: INT8", "push: INT8", "push: TOP_K top_k: 0.5"));
  // Whole names match; and it is not an error if earlier rules leave nothing
  // for a rule.
  EXPECT_THAT(texts("compression { variables: \".*kernel|out\" push: INT8 }"
                    "compression { variables: \"out/kernel\" pull: FLOAT16 }"),
              ElementsAre("push: INT8", "", "push: INT8"));
  const absl::Status none =
      resolve("compression { push: INT8 } compression { variables: \"dense\" }")
          .status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(none.message(),
            "compression[1].variables: \"dense\" is not the whole name of any "
            "variable; the variables are dense/kernel, dense/bias, out/kernel");
}

TEST(LoadJobFileTest, ReadsAFile) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/j.textproto");
  std::ofstream(path, std::ios::binary) << kJob;
  const auto job = LoadJobFile(path);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data().train().idx().images(),
            absl::StrCat(::testing::TempDir(), "/train-images"));
}

TEST(LoadJobFileTest, Unreadable) {
  for (const std::string& path :
       {absl::StrCat(::testing::TempDir(), "/none.textproto"),
        std::string(::testing::TempDir()), std::string()}) {
    const auto job = LoadJobFile(path);
    EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(Message(job.status()),
                HasSubstr(absl::StrCat("cannot read job file \"", path, "\"")));
  }
  const auto endless = LoadJobFile("/dev/zero");
  EXPECT_THAT(Message(endless.status()),
              HasSubstr("/dev/zero: a job file has at most 1048576 bytes"));
}

// Every job in examples/ is valid. Bazel runs tests in the root of the tree's
// files.
TEST(LoadJobFileTest, Examples) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("examples")) {
    if (entry.path().extension() != ".textproto") continue;
    names.push_back(entry.path().stem());
    const auto job = LoadJobFile(entry.path());
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->name(), names.back());
    const auto replicas = ResolveConsistency(*job, job->local().workers());
    EXPECT_TRUE(replicas.ok()) << names.back() << ": " << replicas.status();
    // As README says about --workers; a backup replica needs a fixed number.
    EXPECT_EQ(ResolveConsistency(*job, 4).ok(),
              names.back().find("_backup") == std::string::npos)
        << names.back();
  }
  EXPECT_THAT(names,
              ::testing::IsSupersetOf(
                  {"fashion_mnist_mlp", "fashion_mnist_mlp_backup",
                   "fashion_mnist_softmax", "fashion_mnist_softmax_backup"}));
}

}  // namespace
}  // namespace holdfast
