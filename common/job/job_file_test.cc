// SPDX-License-Identifier: Apache-2.0
#include "common/job/job_file.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A valid job. The tests of errors change single words in it.
constexpr char kJob[] = R"(name: "job"
model {
  sequential {
    layers { flatten {} }
    layers { dense { units: 8 } }
    layers { relu {} }
    layers { name: "out" dense { units: 4 use_bias: true } }
    loss { softmax_cross_entropy {} }
  }
}
data {
  train { idx { images: "train-images" labels: "train-labels" } }
  test { idx { images: "/data/test-images" labels: "/data/test-labels" } }
  scale: 0.5
}
batch_size: 100
steps: 3000
optimizer { learning_rate: 0.1 sgd {} }
consistency { synchronous { replicas_to_aggregate: 2 total_num_replicas: 2 } }
placement: GREEDY_BY_BYTES
evaluation { every_steps: 500 }
seed: 7
)";

// The kinds that a layer may have.
constexpr char kLayerKinds[] =
    "flatten or dense or relu or tanh or sigmoid or dropout or conv2d or "
    "max_pool2d or average_pool2d or global_average_pool2d or layer_norm or "
    "residual or batch_norm or reshape";

// kJob with `from`, which must occur in it once, replaced.
std::string Changed(const std::string& from, const std::string& to) {
  const std::string job = kJob;
  EXPECT_NE(job.find(from), std::string::npos) << from;
  EXPECT_EQ(job.find(from), job.rfind(from)) << from;
  return absl::StrReplaceAll(job, {{from, to}});
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

// The lines of the error that `text` gives.
std::vector<std::string> ErrorsOf(const std::string& text) {
  const auto job = ParseJobFile(text, "dir/job.textproto");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return absl::StrSplit(Message(job.status()), '\n');
}

proto::Job Parse(const std::string& text) {
  const auto job = ParseJobFile(text, "job.textproto");
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
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
      {"0.1", "-1", ":18: optimizer.learning_rate: must be above 0, is -1"},
      {"0.1", "1e999", ":18: optimizer.learning_rate: must be finite, is inf"},
      {"0.1", "-inf", ":18: optimizer.learning_rate: must be finite, is -inf"},
      {"learning_rate: 0.1", "",
       ":18: optimizer.learning_rate: must be above 0, is 0 or not set"},
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

TEST(ParseJobFileTest, RulesOfCsvFiles) {
  // The errors of a job with such a data.train.csv, without their place.
  const auto errors = [](const std::string& csv, const std::string& more = "") {
    std::string job = Changed(
        "train { idx { images: \"train-images\" labels: \"train-labels\" } }",
        absl::StrCat("train { csv { files: 'a*.csv' ", csv, " } }"));
    job = absl::StrReplaceAll(job, {{"scale: 0.5", more}});
    std::vector<std::string> lines = ErrorsOf(job);
    for (std::string& line : lines) {
      line = absl::StrReplaceAll(
          line, {{"dir/job.textproto:12: data.train.csv.", ""}});
    }
    return lines;
  };
  const std::string x = "columns { name: 'x' number {} } ";
  const std::string y = "columns { name: 'y' label {} } ";
  EXPECT_THAT(
      errors("columns { number {} } " + y),
      ElementsAre(
          "columns[0]: needs name or range, to say which columns it is for"));
  EXPECT_THAT(errors("columns { name: 'x' } " + x + y),
              ElementsAre("columns[0]: needs number or category or label or "
                          "target or weight or ids"));
  EXPECT_THAT(errors(x),
              ElementsAre("columns: needs one label, or targets: has 0 and 0"));
  EXPECT_THAT(errors(x + y + y),
              ElementsAre("columns: needs one label, or targets: has 2 and 0"));
  EXPECT_THAT(errors(y), ElementsAre("columns: has no number, no category and "
                                     "no ids, and so no inputs"));
  EXPECT_THAT(errors(x + y + "delimiter: '::'"),
              ElementsAre("delimiter: must be one character other than a quote "
                          "or a line end, is \"::\""));
  EXPECT_THAT(
      errors(x + y + "header: false"),
      ElementsAre(
          "columns[0].name: there are no names if header is false: use range",
          "columns[1].name: there are no names if header is false: use range"));
  EXPECT_THAT(errors("columns { range { first: 3 last: 2 } number {} } " + y),
              ElementsAre("columns[0].range[0].last: must be at least first, "
                          "which is 3, is 2"));
  EXPECT_THAT(errors("columns { name: 'c' category {} } " + y),
              ElementsAre("columns[0].category: needs values, or for whole "
                          "numbers from 0 their count, or computed: true"));
  EXPECT_THAT(
      errors("columns { name: 'c' category { computed: true count: 3 } } "
             "columns { name: 'y' label { computed: true values: 'a' } } "
             "columns { name: 'z' number { computed: true mean: 3 } }"),
      ElementsAre("columns[0].category: needs values, or for whole numbers "
                  "from 0 their count, or computed: true",
                  "columns[1].label.computed: replaces values: leave them out",
                  "columns[2].number.computed: replaces mean and stddev: leave "
                  "them out"));
  EXPECT_THAT(
      errors(x + "columns { name: 'y' label { values: 'a' values: 'a' } }"),
      ElementsAre("columns[1].label.values[1]: \"a\" is listed twice"));
  const auto ids = [&](const std::string& fields) {
    return errors("columns { name: 'u' ids { " + fields + " } } " + y);
  };
  EXPECT_THAT(ids("separator: ','"),
              ElementsAre("columns[0].ids.separator: must be one character "
                          "other than the delimiter of cells, is \",\""));
  EXPECT_THAT(ids("separator: '||'"),
              ElementsAre("columns[0].ids.separator: must be one character "
                          "other than the delimiter of cells, is \"||\""));
  EXPECT_THAT(ids("max_ids: 3"),
              ElementsAre("columns[0].ids.max_ids: needs separator: a cell "
                          "without one is a single id"));
  EXPECT_THAT(ids("separator: '|' max_ids: 0"),
              ElementsAre("columns[0].ids.max_ids: must be at least 1, is 0"));
  EXPECT_THAT(ids("numbers: true group: 'g' missing: OWN"),
              ElementsAre("columns[0].ids.group: is for hashed ids: numbers "
                          "are ids without hashing, the same in all columns",
                          "columns[0].ids.missing: must be REFUSE or NONE with "
                          "numbers: an empty cell has no number of its own"));
  EXPECT_THAT(errors(x + y, "scale: 0.5"),
              ElementsAre("dir/job.textproto:14: data.scale: is for arrays: "
                          "columns of CSV files and numbers of TFRecord files "
                          "have a mean and stddev each"));
}

TEST(ParseJobFileTest, RulesOfTfRecordFiles) {
  // The errors of a job with such a data.train.tfrecord, without their place.
  const auto errors = [](const std::string& tfrecord) {
    std::vector<std::string> lines = ErrorsOf(Changed(
        "train { idx { images: \"train-images\" labels: \"train-labels\" } }",
        absl::StrCat("train { tfrecord { files: 'a*' ", tfrecord, " } }")));
    for (std::string& line : lines) {
      line = absl::StrReplaceAll(
          line, {{"dir/job.textproto:12: data.train.tfrecord.", ""}});
    }
    return lines;
  };
  const std::string x = "features { name: 'x' raw {} } ";
  const std::string y = "features { name: 'y' label {} } ";
  const std::string shape = "shape: 2 ";
  EXPECT_THAT(errors(x + y),
              ElementsAre("features[0].raw: needs data.train.tfrecord.shape"));
  EXPECT_THAT(errors("features { raw {} } " + y + shape),
              ElementsAre("features[0].name: must be set"));
  EXPECT_THAT(errors(x + x + y + shape),
              ElementsAre("features[1].name: \"x\" is listed twice",
                          "features: has more inputs than raw or image, which "
                          "must be the only input"));
  const std::string image =
      "features { name: 'x' image { height: 2 width: 2 channels: 2 } } ";
  EXPECT_THAT(errors(image + y),
              ElementsAre("features[0].image.channels: must be 1 (gray) or 3 "
                          "(red, green and blue), is 2"));
  EXPECT_THAT(
      errors("features { name: 'x' image { height: 2 width: 2 } } " + y +
             shape),
      ElementsAre(
          "shape: is not for images, which have the shape of their `image`"));
  EXPECT_THAT(
      errors(y),
      ElementsAre("features: has no numbers, raw or image, and so no input",
                  "dir/job.textproto:14: data.scale: is for arrays: "
                  "columns of CSV files and numbers of TFRecord files "
                  "have a mean and stddev each"));
  EXPECT_THAT(errors(x + shape +
                     "features { name: 'w' weight {} } "
                     "features { name: 'v' weight {} }"),
              ElementsAre("features: needs one label, or targets: has 0 and 0",
                          "features: takes one weight, has 2"));
  EXPECT_THAT(
      errors(x + shape +
             "features { name: 'y' label { values: 'a' "
             "values: 'a' } }"),
      ElementsAre("features[1].label.values[1]: \"a\" is listed twice"));
}

TEST(ParseJobFileTest, ATestSetHasNothingComputedOfItsOwn) {
  const auto job_of = [](const std::string& train, const std::string& test) {
    return absl::StrReplaceAll(
        Changed("train { idx { images: \"train-images\" labels: "
                "\"train-labels\" } }",
                "train { " + train + " }"),
        {{"test { idx { images: \"/data/test-images\" labels: "
          "\"/data/test-labels\" } }",
          "test { " + test + " }"},
         {"scale: 0.5", ""}});
  };
  const auto is_right = [&](const std::string& train, const std::string& test) {
    return ParseJobFile(job_of(train, test), "job.textproto").status();
  };
  const auto errors = [&](const std::string& train, const std::string& test) {
    return ErrorsOf(job_of(train, test));
  };
  const auto csv = [](const std::string& number) {
    return "csv { files: 'x' columns { name: 'x' number { " + number +
           " } } columns { name: 'c' category { computed: true } } "
           "columns { name: 'y' label { computed: true } } }";
  };
  EXPECT_EQ(is_right(csv("computed: true"), csv("computed: true")),
            absl::OkStatus());
  EXPECT_EQ(is_right(csv("computed: true missing: 0"), csv("mean: 3")),
            absl::OkStatus());
  EXPECT_THAT(errors(csv("mean: 3"), csv("computed: true")),
              ElementsAre(HasSubstr(
                  "data.test.csv.columns[0]: computed values come from the "
                  "training set: data.train must have the same entry")));
  const auto records = [](const std::string& numbers) {
    return "tfrecord { files: 'x' features { name: 'x' numbers { " + numbers +
           " } } features { name: 'y' label { computed: true } } }";
  };
  EXPECT_EQ(is_right(records("computed: true"), records("computed: true")),
            absl::OkStatus());
  EXPECT_THAT(
      errors(records("computed: true size: 2"), records("computed: true")),
      ElementsAre(
          HasSubstr("data.test.tfrecord.features[0]: computed values")));
  const std::string images =
      "images { folder: 'x' picture { height: 1 width: 1 } }";
  EXPECT_EQ(is_right(images, images), absl::OkStatus());
  EXPECT_THAT(errors("csv { files: 'x' columns { name: 'x' number {} } "
                     "columns { name: 'y' label {} } }",
                     images),
              ElementsAre(HasSubstr("data.test.images: needs classes")));
  EXPECT_THAT(ErrorsOf(Changed("scale: 0.5",
                               "normalization { computed: true stddev: 2 }")),
              ElementsAre(HasSubstr("data.normalization.computed: replaces "
                                    "mean and stddev")));
}

TEST(ParseJobFileTest, NothingIsDoneToTheInputsOfARegisteredSource) {
  const auto errors =
      ErrorsOf(Changed("train { idx { images: \"train-images\" labels: "
                       "\"train-labels\" } }",
                       "train { registered { name: 'mine' } }"));
  ASSERT_EQ(errors.size(), 1);
  EXPECT_THAT(errors[0], HasSubstr("data.scale: is for arrays: a registered "
                                   "source makes its inputs"));
}

TEST(ParseJobFileTest, AHoldoutStandsForATestSet) {
  const std::string test =
      "  test { idx { images: \"/data/test-images\" labels: "
      "\"/data/test-labels\" } }\n";
  EXPECT_TRUE(ParseJobFile(Changed(test, "holdout { fraction: 0.2 seed: 3 }"),
                           "job.textproto")
                  .ok());
  EXPECT_THAT(ErrorsOf(Changed("scale: 0.5", "holdout { fraction: 0.2 }")),
              ElementsAre("dir/job.textproto:14: data.holdout: replaces "
                          "data.test, which is also set"));
  EXPECT_THAT(ErrorsOf(Changed(test, "holdout { fraction: 1 }\n")),
              ElementsAre("dir/job.textproto:13: data.holdout.fraction: must "
                          "be below 1, is 1"));
}

TEST(ParseJobFileTest, SaysTheOrderOfExamples) {
  const auto shuffle_of = [](const std::string& fields) {
    const auto job =
        ParseJobFile(Changed("scale: 0.5", fields), "job.textproto");
    EXPECT_TRUE(job.ok()) << job.status();
    return ShuffleOf(job->data());
  };
  EXPECT_EQ(shuffle_of("").kind, Shuffle::Kind::kFull);
  EXPECT_EQ(shuffle_of("shuffle: NONE").kind, Shuffle::Kind::kNone);
  EXPECT_EQ(shuffle_of("shuffle: BLOCKS").kind, Shuffle::Kind::kBlocks);
  EXPECT_EQ(shuffle_of("shuffle: BLOCKS").block, 4096);
  EXPECT_EQ(shuffle_of("shuffle: BLOCKS shuffle_block: 10").block, 10);
  EXPECT_THAT(ErrorsOf(Changed("scale: 0.5", "shuffle_block: 10")),
              ElementsAre("dir/job.textproto:14: data.shuffle_block: is for "
                          "shuffle: BLOCKS"));
  EXPECT_THAT(
      ErrorsOf(Changed("scale: 0.5", "shuffle: BLOCKS shuffle_block: 0")),
      ElementsAre("dir/job.textproto:14: data.shuffle_block: must be at least "
                  "1, is 0"));
  // Workers with another order are rejected; the default is unchanged.
  const auto digest_of = [](const std::string& fields) {
    return JobDigest(
        *ParseJobFile(Changed("scale: 0.5", fields), "job.textproto"));
  };
  EXPECT_EQ(digest_of("shuffle: FULL"), digest_of(""));
  EXPECT_NE(digest_of("shuffle: NONE"), digest_of(""));
  EXPECT_NE(digest_of("shuffle: BLOCKS"), digest_of("shuffle: NONE"));
  EXPECT_NE(digest_of("shuffle: BLOCKS"),
            digest_of("shuffle: BLOCKS shuffle_block: 10"));
}

// Columns by position, in TSV.
TEST(ParseJobFileTest, ReadsCsvFiles) {
  const auto job = ParseJobFile(
      absl::StrReplaceAll(
          Changed(
              "train { idx { images: \"train-images\" labels: \"train-labels\" "
              "} }",
              "train { csv { files: 'a*.csv' files: '/b.csv' header: false "
              "delimiter: '\\t' columns { range { first: 1 last: 4 } category "
              "{ count: 3 } } columns { range { first: 0 } target {} } columns "
              "{ range { first: 9 } weight {} } columns { range { first: 10 } "
              "ids "
              "{} } columns { range { first: 11 } ids { separator: ' ' "
              "max_ids: "
              "3 group: 'g' missing: OWN } } } }"),
          {{"scale: 0.5", ""}}),
      "dir/job.textproto");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->data().train().csv().files(),
              ElementsAre("dir/a*.csv", "/b.csv"));
}

TEST(ParseJobFileTest, ReadsFilesOfIds) {
  for (const char* kind : {"criteo", "libsvm"}) {
    const std::string text = Changed(
        "train { idx { images: \"train-images\" labels: \"train-labels\" } }",
        absl::StrCat("train { ", kind, " { files: 'day*' } }"));
    const auto job = ParseJobFile(
        absl::StrReplaceAll(text, {{"scale: 0.5", ""}}), "dir/job.textproto");
    ASSERT_TRUE(job.ok()) << job.status();
    proto::Dataset train = job->data().train();
    const std::vector<std::string*> paths = DataPaths(&train);
    ASSERT_THAT(paths, SizeIs(1));
    EXPECT_EQ(*paths[0], "dir/day*");
    proto::Job elsewhere = *job;
    *DataPaths(elsewhere.mutable_data()->mutable_train())[0] = "/day*";
    EXPECT_EQ(JobDigest(elsewhere), JobDigest(*job));
    EXPECT_THAT(
        ErrorsOf(text),
        ElementsAre("dir/job.textproto:14: data.scale: is for arrays: "
                    "the format defines how its numbers are transformed"));
  }
}

// Workers must agree on the schema, but not on where the data are.
TEST(JobDigestTest, FilesDoNotMatterAndColumnsDo) {
  const auto digest = [](const std::string& files, const std::string& column) {
    const std::string text = Changed(
        "train { idx { images: \"train-images\" labels: \"train-labels\" } }",
        absl::StrCat("train { csv { ", files, " columns { name: '", column,
                     "' number {} } columns { name: 'y' label {} } } }"));
    const auto job = ParseJobFile(
        absl::StrReplaceAll(text, {{"scale: 0.5", ""}}), "job.textproto");
    EXPECT_TRUE(job.ok()) << job.status();
    return JobDigest(*job);
  };
  EXPECT_EQ(digest("files: 'a'", "x"), digest("files: 'b' files: 'c'", "x"));
  EXPECT_NE(digest("files: 'a'", "x"), digest("files: 'a'", "z"));
}

TEST(JobDigestTest, RecordsFilesDoNotMatter) {
  const auto digest = [](const std::string& files) {
    const auto job = ParseJobFile(
        Changed("train { idx { images: \"train-images\" labels: "
                "\"train-labels\" } }",
                absl::StrCat("train { tfrecord { ", files,
                             " shape: 2 features { name: 'x' raw {} } "
                             "features { name: 'y' label {} } } }")),
        "dir/job.textproto");
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->data().train().tfrecord().files(0), "dir/a");
    return JobDigest(*job);
  };
  EXPECT_EQ(digest("files: 'a'"), digest("files: 'a' files: 'c'"));
}

TEST(JobDigestTest, TheFolderOfImagesDoesNotMatter) {
  const auto digest = [](const std::string& folder, int height) {
    const auto job =
        ParseJobFile(Changed("train { idx { images: \"train-images\" labels: "
                             "\"train-labels\" } }",
                             absl::StrCat("train { images { folder: '", folder,
                                          "' picture { height: ", height,
                                          " width: 2 } } }")),
                     "dir/job.textproto");
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->data().train().images().folder(), "dir/" + folder);
    return JobDigest(*job);
  };
  EXPECT_EQ(digest("a", 1), digest("b", 1));
  EXPECT_NE(digest("a", 1), digest("a", 2));
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
          "dir/job.textproto:1: optimizer.learning_rate: must be above 0, is "
          "-2",
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

TEST(JobDigestTest, TellsJobsApart) {
  const std::string digest = JobDigest(Parse(kJob));
  EXPECT_EQ(digest.size(), 64);
  EXPECT_EQ(JobDigest(Parse(kJob)), digest);
  // The same job in another place, or with data in another place.
  EXPECT_EQ(JobDigest(*ParseJobFile(kJob, "/other/dir/x.textproto")), digest);
  EXPECT_EQ(JobDigest(Parse(Changed("train-images", "images"))), digest);
  EXPECT_EQ(JobDigest(Parse(Changed("/data/test-labels", "labels"))), digest);
  EXPECT_EQ(JobDigest(Parse(Changed("seed: 7", "seed: 7 local { ps: 9 }"))),
            digest);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"seed: 7", "seed: 8"},
           {"batch_size: 100", "batch_size: 99"},
           {"steps: 3000", "steps: 3001"},
           {"sgd {}", "momentum {}"},
           {"units: 8", "units: 9"},
           {"scale: 0.5", "scale: 0.25"},
           {"scale: 0.5", "scale: 0.5 short_last_batch: true"},
           {"seed: 7", "seed: 7 examples: BY_TICKET"},
           {"seed: 7", "seed: 7 checkpoints { every_steps: 5 }"},
           {"seed: 7", "seed: 7 lost_workers { policy: CONTINUE }"},
           {"seed: 7", "seed: 7 micro_batches: 2"}}) {
    EXPECT_NE(JobDigest(Parse(Changed(from, to))), digest) << to;
  }
}

TEST(JobDigestTest, MapsHaveOneOrder) {
  proto::Job a;
  proto::Job b;
  for (int i = 0; i < 100; ++i) {
    (*a.mutable_model()->mutable_registered()->mutable_options())[absl::StrCat(
        "key", i)] = "value";
    (*b.mutable_model()->mutable_registered()->mutable_options())[absl::StrCat(
        "key", 99 - i)] = "value";
  }
  EXPECT_EQ(JobDigest(a), JobDigest(b));
}

TEST(LayerNamesTest, KindAndCount) {
  proto::Sequential model;
  ASSERT_TRUE(TextFormat::ParseFromString(
      R"(layers { dense { units: 1 } } layers { relu {} }
         layers { name: "x" dense { units: 1 } } layers { dense { units: 1 } }
         layers { relu {} } layers {})",
      &model));
  EXPECT_THAT(LayerNames(model.layers()),
              ElementsAre("dense", "relu", "x", "dense_2", "relu_1", ""));
}

// A job with this length and batch size.
proto::Job JobOf(const std::string& length, uint32_t batch_size) {
  proto::Job job;
  EXPECT_TRUE(TextFormat::ParseFromString(
      absl::StrCat(length, " batch_size: ", batch_size), &job))
      << length;
  return job;
}

constexpr char kShort[] = " data { short_last_batch: true }";

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

TEST(TotalStepsTest, ByStep) {
  const struct {
    std::string length;
    uint32_t batch_size;
    uint64_t examples;
    uint32_t seats;
    uint64_t steps;
  } kCases[] = {
      {"steps: 3000", 100, 60000, 2, 3000},
      {"epochs: 1", 100, 60000, 2, 300},
      {"epochs: 10", 100, 60000, 2, 3000},
      {"epochs: 1", 100, 60001, 2, 301},
      {"epochs: 1", 100, 59999, 2, 300},
      {"epochs: 0.5", 100, 60000, 1, 300},
      {"epochs: 1", 7, 100, 3, 5},   // 100 / 21 = 4.76
      {"epochs: 5", 7, 100, 3, 24},  // 500 / 21 = 23.81
      {"epochs: 0.1", 1, 30, 3, 1},  // 0.1 * 30 = 3.0000000000000004
      {"epochs: 0.001", 100, 100, 1, 1},
      {"epochs: 1", 100, 0, 1, 1},
      {"epochs: 1e9", 1, 1000000000, 1, 1000000000000000},
      // Each epoch is rounded separately: 100 / 21 are 5 steps.
      {absl::StrCat("steps: 3000", kShort), 7, 100, 3, 3000},
      {absl::StrCat("epochs: 1", kShort), 7, 100, 3, 5},
      {absl::StrCat("epochs: 5", kShort), 7, 100, 3, 25},
      {absl::StrCat("epochs: 3", kShort), 7, 105, 3, 15},
      {absl::StrCat("epochs: 3", kShort), 7, 106, 3, 18},
      // In the last epoch, 25 examples are 2 steps, and 21 are one.
      {absl::StrCat("epochs: 2.25", kShort), 7, 100, 3, 12},
      {absl::StrCat("epochs: 2.21", kShort), 7, 100, 3, 11},
      {absl::StrCat("epochs: 0.01", kShort), 7, 100, 3, 1},
      // A rounding error does not add a step: 3.1 - 3 = 0.10000000000000009;
      // for 30 examples, 3.0000000000000027.
      {absl::StrCat("epochs: 3.1", kShort), 1, 30, 3, 31},
      {absl::StrCat("epochs: 2.9999999999999996", kShort), 1, 30, 3, 30},
      {absl::StrCat("epochs: 3.0000000000000004", kShort), 1, 30, 3, 30},
      // A batch or a step larger than the data.
      {absl::StrCat("epochs: 4", kShort), 7, 5, 1, 4},
      {absl::StrCat("epochs: 4", kShort), 2, 5, 3, 4},
      {absl::StrCat("epochs: 1", kShort), 100, 0, 1, 1},
      {absl::StrCat("epochs: 1e9", kShort), 1, 1000000001, 1, 1000000000000000},
  };
  for (const auto& test : kCases) {
    // Backup replicas have seats too.
    const Replicas replicas = {.to_aggregate = 1, .total = test.seats};
    const proto::Job job = JobOf(test.length, test.batch_size);
    EXPECT_EQ(TotalSteps(job, test.examples, replicas), test.steps)
        << test.length << " of " << test.examples;
    EXPECT_EQ(TotalTickets(job, test.examples, replicas), 0);
  }
}

TEST(TotalTicketsTest, Table) {
  const struct {
    std::string length;
    uint32_t batch_size;
    uint64_t examples;
    // N, or 0 for asynchronous.
    uint32_t to_aggregate;
    uint64_t tickets;
    uint64_t steps;
  } kCases[] = {
      {"steps: 3000", 100, 60000, 0, 3000, 3000},
      {"epochs: 1", 100, 60000, 0, 600, 600},
      {"epochs: 2", 7, 100, 0, 29, 29},  // 200 / 7 = 28.57
      {"epochs: 0.1", 1, 30, 0, 3, 3},
      {"epochs: 0.001", 100, 100, 0, 1, 1},
      {"epochs: 1", 100, 0, 0, 1, 1},
      {"epochs: 1e9", 1, 1000000001, 0, 1000000000000000, 1000000000000000},
      {"steps: 1000000000000000", 1, 10, 0, 1000000000000000, 1000000000000000},
      // Each epoch is rounded separately: 100 / 7 are 15 batches, and 25
      // examples are 4.
      {absl::StrCat("epochs: 2", kShort), 7, 100, 0, 30, 30},
      {absl::StrCat("epochs: 2.25", kShort), 7, 100, 0, 34, 34},
      {absl::StrCat("epochs: 2", kShort), 200, 100, 0, 2, 2},
      // N per step, except in the last.
      {"steps: 3000", 100, 60000, 2, 6000, 3000},
      {"epochs: 1", 100, 60000, 2, 600, 300},
      {"epochs: 2", 7, 100, 3, 29, 10},
      {"epochs: 2", 7, 100, 1, 29, 29},
      {absl::StrCat("epochs: 2.25", kShort), 7, 100, 3, 34, 12},
      // At most 1e18 tickets and 1e15 steps.
      {"steps: 1000000000000000", 1, 10, 3, 3000000000000000, 1000000000000000},
      {"steps: 1000000000000000", 1, 10, 999, 999000000000000000,
       1000000000000000},
      {"steps: 1000000000000000", 1, 10, 65536, 1000000000000000000,
       15258789062500},
      {"epochs: 1e9", 1, 10000000000, 3, 3000000000000000, 1000000000000000},
      {"epochs: 1e9", 1, 10000000000, 65536, 1000000000000000000,
       15258789062500},
  };
  for (const auto& test : kCases) {
    Replicas replicas;
    replicas.to_aggregate = test.to_aggregate;
    // Backup replicas need no tickets of their own.
    replicas.total = 5;
    replicas.asynchronous = test.to_aggregate == 0;
    replicas.examples = proto::BY_TICKET;
    const proto::Job job = JobOf(test.length, test.batch_size);
    EXPECT_EQ(TotalTickets(job, test.examples, replicas), test.tickets)
        << test.length << " of " << test.examples;
    EXPECT_EQ(TotalSteps(job, test.examples, replicas), test.steps)
        << test.length << " of " << test.examples;
  }
}

TEST(ResolveConsistencyTest, ShortLastBatchesNeedTicketsWithBackupReplicas) {
  proto::Job job;
  job.mutable_data()->set_short_last_batch(true);
  auto& sync = *job.mutable_consistency()->mutable_synchronous();
  EXPECT_TRUE(ResolveConsistency(job, 3).ok());
  sync.set_replicas_to_aggregate(2);
  EXPECT_THAT(std::string(ResolveConsistency(job, 3).status().message()),
              HasSubstr("short_last_batch"));
  job.set_examples(proto::BY_TICKET);
  EXPECT_TRUE(ResolveConsistency(job, 3).ok());
}

// A job with a click model.
std::string ClickJob(const std::string& model, const std::string& optimizer) {
  return absl::StrCat("name: 'clicks' model { ", model,
                      " } data { train { criteo { files: 'a.tsv' } } } "
                      "batch_size: 10 steps: 5 optimizer { learning_rate: 0.1 ",
                      optimizer, " {} }");
}

TEST(ClickModelRulesTest, HoldForTablesAndLayers) {
  const auto error = [](const std::string& model,
                        const std::string& optimizer) {
    return std::string(
        ParseJobFile(ClickJob(model, optimizer), "job").status().message());
  };
  EXPECT_EQ(error("logistic_regression {}", "ftrl"), "");
  EXPECT_EQ(error("dlrm { embedding { row_length: 8 table { optimizer { "
                  "learning_rate: 0.1 adagrad {} } row_wise: true } } bottom { "
                  "dense { units: 8 } } top { relu {} } }",
                  "adamw"),
            "");
  EXPECT_THAT(
      error("logistic_regression {}", "adamw"),
      AllOf(HasSubstr("model.logistic_regression.linear.optimizer"),
            HasSubstr("sgd, momentum, adagrad, adam or ftrl, which can update "
                      "single rows; without its own optimizer")));
  EXPECT_THAT(error("factorization_machine {}", "sgd"),
              HasSubstr("model.factorization_machine.embedding: "));
  EXPECT_THAT(error("factorization_machine { embedding {} }", "sgd"),
              HasSubstr("embedding.row_length"));
  EXPECT_THAT(
      error("deep_fm { embedding { row_length: 4 table { row_wise: true "
            "initializer { he {} } } } layers { relu {} } }",
            "sgd"),
      AllOf(HasSubstr("table.row_wise: is only for adagrad"),
            HasSubstr("depends on the number of rows")));
  EXPECT_THAT(
      error("wide_and_deep { embedding { row_length: 4 } layers { name: "
            "'a' relu {} } layers { name: 'a' relu {} } }",
            "sgd"),
      HasSubstr("model.wide_and_deep.layers[1]"));
  EXPECT_THAT(
      error("dlrm { embedding { row_length: 4 } bottom { dense { units: "
            "4 } } }",
            "sgd"),
      HasSubstr("model.dlrm.top"));
}

}  // namespace
}  // namespace holdfast
