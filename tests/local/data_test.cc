// SPDX-License-Identifier: Apache-2.0

// Jobs on the formats of docs/data.md: the trained model depends only on the
// examples, and not on how they are stored or which task reads them.

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/random.h"
#include "common/data/tfrecord_frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/tf_example.pb.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRows = 240;
constexpr int kFeatures = 3;

// Multiples of 1/64, which are as exact in text as in float32.
float Feature(uint32_t row, uint32_t feature) {
  return static_cast<float>(Philox4x32({row, feature}, {3})[0] % 129) / 64 - 1;
}

// The class is the quadrant of the first two features.
int Label(uint32_t row) {
  return (Feature(row, 0) > 0 ? 1 : 0) + (Feature(row, 1) > 0 ? 2 : 0);
}

float Target(uint32_t row) {
  return 3 * Feature(row, 0) - 2 * Feature(row, 1) + 0.5f;
}

constexpr char kHeader[] = "id,a,b,c,class,target,weight\n";

std::string Row(int row) {
  return absl::StrCat("row-", row, ",", Feature(row, 0), ",", Feature(row, 1),
                      ",", Feature(row, 2), ",c", Label(row), ",", Target(row),
                      ",", row % 3, "\n");
}

std::string Table(int begin, int end) {
  std::string text = kHeader;
  for (int row = begin; row < end; ++row) text += Row(row);
  return text;
}

template <typename T>
std::string Npy(const std::string& descr, const std::string& shape,
                const std::vector<T>& values) {
  const std::string header =
      absl::StrCat("{'descr': '", descr,
                   "', 'fortran_order': False, 'shape': ", shape, ", }\n");
  std::string file("\x93NUMPY\1\0", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()),
              values.size() * sizeof(T));
  return file;
}

// The record of a row: an Example with one feature per column.
std::string RecordOf(int row) {
  proto::tensorflow::Example example;
  const auto add = [&example](const std::string& name) {
    auto* const entry = example.mutable_features()->add_feature();
    entry->set_key(name);
    return entry->mutable_value();
  };
  add("class")->mutable_int64_list()->add_value(Label(row));
  add("id")->mutable_bytes_list()->add_value(absl::StrCat("row-", row));
  auto* const ab = add("ab")->mutable_float_list();
  ab->add_value(Feature(row, 0));
  ab->add_value(Feature(row, 1));
  add("c")->mutable_float_list()->add_value(Feature(row, 2));
  return example.SerializeAsString();
}

constexpr char kColumns[] =
    "columns { name: 'a' name: 'b' name: 'c' number {} } "
    "columns { name: 'class' "
    "          label { values: 'c0' values: 'c1' values: 'c2' values: 'c3' } }";

class DataTest : public ::testing::Test {
 protected:
  DataTest() : folder_(FreshFolder()) {
    WriteText(folder_ + "/table.csv", Table(0, kRows));
    WriteText(folder_ + "/part-1.csv", Table(0, 100));
    WriteText(folder_ + "/part-2.csv", Table(100, 101));
    WriteText(folder_ + "/part-3.csv", Table(101, kRows));
    const std::string table = Table(0, kRows);
    const gzFile file = gzopen((folder_ + "/table.csv.gz").c_str(), "wb");
    gzwrite(file, table.data(), table.size());
    gzclose(file);
    std::string records;
    for (int row = 0; row < kRows; ++row) {
      AppendTfRecord(RecordOf(row), &records);
    }
    WriteText(folder_ + "/rows.tfrecord", records);
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int row = 0; row < kRows; ++row) {
      for (int f = 0; f < kFeatures; ++f) x.push_back(Feature(row, f));
      y.push_back(Label(row));
    }
    WriteText(folder_ + "/x.npy",
              Npy("<f4", absl::StrCat("(", kRows, ", 3)"), x));
    WriteText(folder_ + "/y.npy",
              Npy("<i8", absl::StrCat("(", kRows, ",)"), y));
  }

  // Trains on `data`, a Dataset, and returns the exit code.
  int Train(const std::string& data, const std::string& more = "",
            std::vector<std::string> flags = {"--ps=2", "--workers=2"}) {
    constexpr char kJob[] = R"(
name: "table"
model {
  sequential {
    layers { dense { units: 16 } }
    layers { tanh {} }
    layers { dense { units: UNITS } }
    loss { LOSS {} }
  }
}
data { WHERE }
batch_size: 20
steps: 100
optimizer { learning_rate: RATE momentum { momentum: 0.9 } }
seed: 1
)";
    const std::string where =
        data_.empty() ? absl::StrCat("train { ", data, " } test { ", data, " }")
                      : data_;
    const std::string path = folder_ + "/job.textproto";
    WriteText(path, absl::StrReplaceAll(kJob, {{"UNITS", units_},
                                               {"LOSS", loss_},
                                               {"RATE", rate_},
                                               {"WHERE", where}}) +
                        more);
    run_dir_ = absl::StrCat(folder_, "/run-", runs_++);
    std::vector<std::string> args = {kHoldfast, "local",
                                     absl::StrCat("--job=", path),
                                     absl::StrCat("--run_dir=", run_dir_)};
    args.insert(args.end(), flags.begin(), flags.end());
    Program program(args);
    const int code = program.Wait();
    output_ = program.output();
    return code;
  }
  std::string DigestOf(const std::string& data, const std::string& more = "",
                       std::vector<std::string> flags = {"--ps=2",
                                                         "--workers=2"}) {
    EXPECT_EQ(Train(data, more, flags), 0) << output_;
    return StringIn(Result(), "digest");
  }
  google::protobuf::Struct Result() {
    return ReadResult(run_dir_ + "/result.json");
  }

  const std::string folder_;
  // Used instead of one Dataset for training and evaluation.
  std::string data_;
  std::string units_ = "4";
  std::string loss_ = "softmax_cross_entropy";
  std::string rate_ = "0.2";
  int runs_ = 0;
  std::string run_dir_;
  std::string output_;
};

TEST_F(DataTest, HowExamplesAreStoredDoesNotMatter) {
  const auto csv = [](const std::string& files) {
    return absl::StrCat("csv { files: '", files, "' ", kColumns, " }");
  };
  const std::string digest = DigestOf(csv("table.csv"));
  EXPECT_GT(NumberIn(Result(), "test_accuracy"), 0.9);
  EXPECT_EQ(DigestOf(csv("table.csv.gz"), "", {"--ps=1", "--workers=2"}),
            digest);
  EXPECT_EQ(DigestOf(csv("part-*.csv")), digest);
  // Both workers, and the chief's test set, share one file of rows.
  const std::string cache = folder_ + "/cache";
  std::filesystem::create_directory(cache);
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(DigestOf(csv("part-*.csv"), "",
                       {"--ps=2", "--workers=2",
                        "--worker_flags=--data_cache_dir=" + cache}),
              digest);
    EXPECT_THAT(ReadText(run_dir_ + "/worker-0.log"),
                HasSubstr("240 examples to train on: 0 B in memory, 3.8 kB in "
                          "mapped files"));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache), {}), 1);
  }
  EXPECT_EQ(
      DigestOf("npy { inputs: 'x.npy' labels: 'y.npy' }", "",
               {"--ps=3", "--workers=2", "--worker_flags=--input_threads=3"}),
      digest);
  EXPECT_EQ(DigestOf("tfrecord { files: '*.tfrecord' "
                     "features { name: 'ab' numbers { size: 2 } } "
                     "features { name: 'c' numbers {} } "
                     "features { name: 'class' label {} } }"),
            digest);
}

TEST_F(DataTest, ByTicketEveryRowCountsOnce) {
  for (const std::string& data :
       {absl::StrCat("csv { files: 'part-*.csv' ", kColumns, " }"),
        std::string("npy { inputs: 'x.npy' labels: 'y.npy' }"),
        std::string("tfrecord { files: 'rows.tfrecord' "
                    "features { name: 'ab' numbers { size: 2 } } "
                    "features { name: 'c' numbers {} } "
                    "features { name: 'class' label {} } }")}) {
    ASSERT_EQ(Train(data, "consistency { asynchronous {} }"), 0) << output_;
    // 100 pushes of 20 rows.
    EXPECT_EQ(NumberIn(Result(), "examples"), 2000) << data;
    EXPECT_GT(NumberIn(Result(), "test_accuracy"), 0.9) << data;
  }
}

TEST_F(DataTest, LearnsTargets) {
  units_ = "1";
  loss_ = "mean_squared_error";
  rate_ = "0.02";
  const std::string columns =
      "columns { name: 'a' name: 'b' name: 'c' number {} } "
      "columns { name: 'target' target {} } ";
  const std::string data = "csv { files: 'table.csv' " + columns;
  const std::string digest = DigestOf(data + "}");
  // The variance of the targets is above 4.
  EXPECT_LT(NumberIn(Result(), "test_loss"), 0.1);
  EXPECT_LT(NumberIn(Result(), "test_mean_absolute_error"), 0.3);
  EXPECT_EQ(DigestOf(data + "}", "micro_batches: 1", {"--ps=1"}), digest);
  // Weights count: two thirds of them are not 1.
  EXPECT_NE(DigestOf(data + "columns { name: 'weight' weight {} } }"), digest);
  EXPECT_LT(NumberIn(Result(), "test_loss"), 0.1);
}

TEST_F(DataTest, LearnsByEveryDistance) {
  units_ = "1";
  const std::string data =
      "csv { files: 'table.csv' "
      "columns { name: 'a' name: 'b' name: 'c' number {} } "
      "columns { name: 'target' target {} } }";
  for (const auto& [loss, rate] :
       {std::pair("mean_absolute_error", "0.01"), std::pair("huber", "0.03")}) {
    loss_ = loss;
    rate_ = rate;
    ASSERT_EQ(Train(data), 0) << output_;
    const double absolute = NumberIn(Result(), "test_mean_absolute_error");
    const double squared = NumberIn(Result(), "test_mean_squared_error");
    EXPECT_LT(absolute, 0.4) << loss;
    EXPECT_GE(squared, absolute * absolute) << loss;
    const double test_loss = NumberIn(Result(), "test_loss");
    if (loss_ == "huber") {
      EXPECT_LE(test_loss, squared / 2 + 1e-9);
    } else {
      EXPECT_DOUBLE_EQ(test_loss, absolute);
    }
  }
}

TEST_F(DataTest, TellsTheScoresThatAreAskedFor) {
  const std::string data =
      absl::StrCat("csv { files: 'table.csv' ", kColumns, " }");
  ASSERT_EQ(Train(data, "evaluation { top_k: 2 confusion_matrix: true }"), 0)
      << output_;
  const google::protobuf::Struct result = Result();
  const double accuracy = NumberIn(result, "test_accuracy");
  EXPECT_GE(NumberIn(result, "test_top_k_accuracy"), accuracy);
  const auto& by_class =
      result.fields().at("test_by_class").list_value().values();
  ASSERT_EQ(by_class.size(), 4);
  double right = 0;
  for (int label = 0; label < 4; ++label) {
    const auto& predicted = by_class.Get(label)
                                .struct_value()
                                .fields()
                                .at("predicted")
                                .list_value()
                                .values();
    ASSERT_EQ(predicted.size(), 4);
    right += predicted.Get(label).number_value();
  }
  EXPECT_DOUBLE_EQ(right / kRows, accuracy);
  // Mismatches are reported before training.
  EXPECT_EQ(Train(data, "evaluation { auc: true }"), 2);
  EXPECT_THAT(output_, HasSubstr("evaluation.auc: the model has 4 outputs; the "
                                 "area under the curve is defined for two"));
}

// Index and seed alone determine the examples, whichever task trains.
TEST_F(DataTest, ASourceOfTheUsersOwnIsLearned) {
  const auto train = [&](std::vector<std::string> more) {
    run_dir_ = absl::StrCat(folder_, "/run-", runs_++);
    std::vector<std::string> args = {
        kHoldfast, "local", "--job=examples/custom_data/rings.textproto",
        absl::StrCat("--run_dir=", run_dir_)};
    args.insert(args.end(), more.begin(), more.end());
    Program program(args);
    const int code = program.Wait();
    output_ = program.output();
    return code;
  };
  const std::string worker =
      "--worker_binary=examples/custom_data/rings_worker";
  ASSERT_EQ(train({worker}), 0) << output_;
  EXPECT_GT(NumberIn(Result(), "test_accuracy"), 0.98);
  EXPECT_GT(NumberIn(Result(), "test_auc"), 0.99);
  const std::string digest = StringIn(Result(), "digest");
  ASSERT_EQ(train({worker, "--ps=2", "--worker_flags=--input_threads=3"}), 0)
      << output_;
  EXPECT_EQ(StringIn(Result(), "digest"), digest);
  // ps_worker does not have this source.
  EXPECT_EQ(train({}), 2);
  EXPECT_THAT(output_, HasSubstr("no data source is registered as \"rings\" in "
                                 "this binary; it has none of the user's own"));
}

// Logistic regression (scikit-learn 1.9) gets 95 % +- 4.4 % right over 20
// splits.
TEST_F(DataTest, TheExampleOfATableIsLearned) {
  run_dir_ = folder_ + "/iris";
  Program program({kHoldfast, "local", "--job=examples/iris.textproto",
                   absl::StrCat("--run_dir=", run_dir_)});
  ASSERT_EQ(program.Wait(), 0) << program.output();
  EXPECT_GT(NumberIn(Result(), "test_accuracy"), 0.86);
}

// Small color images: PNG files in folders, and the same images as records. A
// network that ignored colors, or shapes, would get half of them right.
TEST_F(DataTest, ImagesInColourAreLearnedFromFilesAndRecords) {
  const std::string shapes = folder_ + "/shapes";
  Program draw({"/usr/bin/python3", "examples/shapes.py", shapes});
  ASSERT_EQ(draw.Wait(), 0) << draw.output();
  const std::string job = absl::StrReplaceAll(
      ReadText("examples/shapes.textproto"), {{"/tmp/shapes", shapes}});
  const auto train = [&](const std::string& text,
                         const std::vector<std::string>& flags) {
    const std::string path = folder_ + "/shapes.textproto";
    WriteText(path, text);
    run_dir_ = absl::StrCat(folder_, "/run-", runs_++);
    std::vector<std::string> args = {kHoldfast, "local",
                                     absl::StrCat("--job=", path),
                                     absl::StrCat("--run_dir=", run_dir_)};
    args.insert(args.end(), flags.begin(), flags.end());
    Program program(args);
    EXPECT_EQ(program.Wait(), 0) << program.output();
    return StringIn(Result(), "digest");
  };
  const std::string digest = train(job, {});
  EXPECT_GT(NumberIn(Result(), "test_accuracy"), 0.9);
  const auto records = [&](const std::string& part) {
    return absl::StrCat("tfrecord { files: '", shapes, "/", part,
                        ".tfrecord' features { name: 'image' image { height: "
                        "24 width: 24 } } features { name: 'label' label {} }");
  };
  const auto images = [&](const std::string& part) {
    return absl::StrCat("images { folder: \"", shapes, "/", part,
                        "\" picture { height: 24 width: 24 } ");
  };
  EXPECT_EQ(train(absl::StrReplaceAll(job, {{images("train"), records("train")},
                                            {images("test"), records("test")}}),
                  {"--ps=1", "--worker_flags=--input_threads=3"}),
            digest);
  EXPECT_THAT(ReadText(folder_ + "/shapes.textproto"),
              AllOf(HasSubstr("test.tfrecord"), Not(HasSubstr("folder"))));

  // 20 epochs of 240 images, each once.
  train(job + "consistency { asynchronous {} }", {});
  EXPECT_EQ(NumberIn(Result(), "examples"), 4800);

  // The model predicts the classes of files in one folder, without class
  // folders.
  const std::string checkpoints =
      absl::StrCat("--checkpoint=", folder_, "/run-0/checkpoints");
  const std::string flat = folder_ + "/flat";
  fs::create_directory(flat);
  fs::copy(shapes + "/test/red_disc/0000.png", flat + "/b.png");
  fs::copy(shapes + "/test/blue_square/0000.png", flat + "/a.png");
  const std::string predicted = folder_ + "/predicted.csv";
  Program predict({kHoldfast, "predict", checkpoints,
                   absl::StrCat("--data=", flat),
                   absl::StrCat("--output=", predicted)});
  ASSERT_EQ(predict.Wait(), 0) << predict.output();
  EXPECT_THAT(ReadText(predicted),
              AllOf(HasSubstr("example,file,class,probability_"),
                    HasSubstr("\n0,a.png,blue_square,"),
                    HasSubstr("\n1,b.png,red_disc,")));

  // If the test set lacks a class, labels do not shift.
  const std::string lacking = folder_ + "/lacking";
  fs::copy(shapes + "/test", lacking, fs::copy_options::recursive);
  fs::remove_all(lacking + "/blue_disc");
  Program lacks(
      {kHoldfast, "eval", checkpoints, absl::StrCat("--data=", lacking)});
  EXPECT_EQ(lacks.Wait(), 2);
  EXPECT_THAT(lacks.output(),
              HasSubstr("there is no folder of the class \"blue_disc\""));
  fs::create_directory(lacking + "/blue_disc");
  Program evaluates(
      {kHoldfast, "eval", checkpoints, absl::StrCat("--data=", lacking)});
  EXPECT_EQ(evaluates.Wait(), 0);
  EXPECT_THAT(evaluates.output(),
              ::testing::ContainsRegex("\"accuracy\": (1|0\\.9)"));

  // A file that is no longer an image.
  WriteText(shapes + "/train/red_disc/0003.png", "no image");
  train(absl::StrReplaceAll(
            job, {{images("train"), images("train") + "skip_bad_rows: true "}}),
        {});
  EXPECT_EQ(NumberIn(Result(), "skipped_rows"), 1);
}

// Gradient descent with momentum, from zeros, on batches of all 150 rows, so
// that their order does not matter. The expected losses come from JAX 0.10.2
// and Optax 0.2.8: softmax_cross_entropy_with_integer_labels for the species
// from the three other columns, and huber_loss for the petals' width from them,
// with sgd(rate, momentum=0.9).
TEST_F(DataTest, TheLossesOfATableAreJaxs) {
  const auto train = [&](const std::string& layer, const std::string& loss,
                         const std::string& answer, const std::string& rate,
                         int steps) {
    const std::string data = absl::StrCat(
        "{ csv { files: '", fs::absolute("examples/iris.csv").string(),
        "' columns { name: 'sepal_length' "
        "            number { mean: 5.8433 stddev: 0.8253 } } "
        "columns { name: 'sepal_width' "
        "          number { mean: 3.0573 stddev: 0.4344 } } "
        "columns { name: 'petal_length' "
        "          number { mean: 3.758 stddev: 1.7594 } } ",
        answer, " } } ");
    const std::string path = folder_ + "/iris.textproto";
    WriteText(path, absl::StrCat(
                        "name: 'iris' model { sequential { layers { dense { ",
                        layer, " kernel_initializer { zeros {} } } } loss { ",
                        loss, " } } } data { train ", data, "test ", data,
                        "} batch_size: 150 steps: ", steps,
                        " optimizer { learning_rate: ", rate,
                        " momentum { momentum: 0.9 } }"));
    run_dir_ = absl::StrCat(folder_, "/iris-", runs_++);
    Program program({kHoldfast, "local", absl::StrCat("--job=", path),
                     absl::StrCat("--run_dir=", run_dir_), "--ps=2",
                     "--workers=2"});
    EXPECT_EQ(program.Wait(), 0) << program.output();
    return NumberIn(Result(), "test_loss");
  };
  const std::string species =
      "columns { name: 'species' label { "
      "values: 'setosa' values: 'versicolor' values: 'virginica' } }";
  const std::string width = "columns { name: 'petal_width' target {} }";
  for (const auto& [steps, softmax, huber] :
       {std::tuple(5, 0.6130535, 0.2342663),
        std::tuple(20, 0.3441341, 0.03396645),
        std::tuple(80, 0.2059894, 0.01678553)}) {
    EXPECT_NEAR(
        train("units: 3", "softmax_cross_entropy {}", species, "0.1", steps),
        softmax, 2e-5 * softmax)
        << steps;
    EXPECT_NEAR(
        train("units: 1", "huber { delta: 0.25 }", width, "0.05", steps), huber,
        5e-5 * huber)
        << steps;
  }
  EXPECT_NEAR(NumberIn(Result(), "test_mean_absolute_error"), 0.14724033, 1e-5);
  EXPECT_NEAR(NumberIn(Result(), "test_mean_squared_error"), 0.037981912, 1e-5);
}

// A fifth of the rows is kept for evaluation, whichever task reads them.
TEST_F(DataTest, HoldsATestSetOut) {
  data_ = absl::StrCat("train { csv { files: 'table.csv' ", kColumns,
                       " } } holdout { fraction: 0.2 seed: 9 }");
  const std::string digest = DigestOf("");
  EXPECT_THAT(ReadText(run_dir_ + "/worker-0.log"),
              AllOf(HasSubstr("192 examples to train on"),
                    HasSubstr("48 examples to test on")));
  EXPECT_GT(NumberIn(Result(), "test_accuracy"), 0.8);
  EXPECT_EQ(DigestOf("", "", {"--ps=1", "--workers=2"}), digest);
}

// Rows that are held out are not trained on, and the rest come in the requested
// order.
TEST_F(DataTest, HoldsATestSetOutOfEveryOrder) {
  const std::string step =
      "consistency { synchronous { replicas_to_aggregate: 2 } }";
  std::set<std::string> digests;
  for (const std::string shuffle : {"BLOCKS shuffle_block: 50", "NONE"}) {
    data_ = absl::StrCat(
        "train { csv { files: 'table.csv' ", kColumns,
        " } } holdout { fraction: 0.2 seed: 9 } shuffle: ", shuffle);
    const std::string digest = DigestOf("", step, {"--ps=2", "--workers=2"});
    EXPECT_THAT(ReadText(run_dir_ + "/worker-0.log"),
                HasSubstr("48 examples to test on"));
    EXPECT_GT(NumberIn(Result(), "test_accuracy"), 0.8) << shuffle;
    EXPECT_EQ(DigestOf("", step, {"--ps=1", "--workers=1"}), digest);
    digests.insert(digest);
  }
  EXPECT_EQ(digests.size(), 2);
}

// 240 rows in blocks of 50: one block is short, and batches of 2 workers cross
// block boundaries.
TEST_F(DataTest, TheOrderIsTheSameForAnyNumberOfWorkers) {
  const std::string data =
      "train { npy { inputs: 'x.npy' labels: 'y.npy' } } "
      "test { npy { inputs: 'x.npy' labels: 'y.npy' } } ";
  std::set<std::string> digests;
  for (const std::string shuffle :
       {"", "shuffle: BLOCKS shuffle_block: 50", "shuffle: NONE"}) {
    data_ = data + shuffle;
    const std::string step =
        "consistency { synchronous { replicas_to_aggregate: 2 } }";
    const std::string two = DigestOf("", step, {"--ps=2", "--workers=2"});
    EXPECT_GT(NumberIn(Result(), "test_accuracy"), 0.8) << shuffle;
    EXPECT_EQ(DigestOf("", step, {"--ps=1", "--workers=1"}), two);
    digests.insert(two);
  }
  EXPECT_EQ(digests.size(), 3);
}

TEST_F(DataTest, WrongRowsAreToldBeforeTraining) {
  WriteText(folder_ + "/wrong.csv",
            Table(0, 50) + "row,1,none,3,c1,1,1\n" +
                Table(50, 51).substr(sizeof(kHeader) - 1));
  const std::string data = absl::StrCat("csv { files: 'wrong.csv' ", kColumns);
  EXPECT_NE(Train(data + " }"), 0);
  EXPECT_THAT(
      output_,
      AllOf(HasSubstr("wrong.csv\": line 52: column \"b\": \"none\" is not "
                      "a finite number"),
            HasSubstr("add it to `missing`")));
  ASSERT_EQ(Train(data + " skip_bad_rows: true }"), 0) << output_;
  EXPECT_EQ(NumberIn(Result(), "skipped_rows"), 1);
  EXPECT_THAT(ReadText(run_dir_ + "/worker-0.log"),
              AllOf(HasSubstr("51 examples to train on"),
                    HasSubstr("1 rows were skipped"),
                    HasSubstr("line 52: column \"b\"")));
}

}  // namespace
}  // namespace holdfast
