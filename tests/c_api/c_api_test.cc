// SPDX-License-Identifier: Apache-2.0

// The C API against real ps servers, over loopback.

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/c_api/holdfast.h"
#include "common/base/clock.h"
#include "common/job/example_order.h"
#include "common/process/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"
#include "tests/c_api/calls.h"

// Called by LeakSanitizer, if it is linked. In a forked child it would report
// the memory of the parent's threads as leaked.
static bool is_forked_child = false;
extern "C" int __lsan_is_turned_off() { return is_forked_child ? 1 : 0; }

namespace holdfast {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// ---- Without a cluster ----

TEST(CApiTest, TellsItsVersion) {
  EXPECT_EQ(holdfast_api_version(), HOLDFAST_API_VERSION);
  EXPECT_STREQ(holdfast_version(), kVersion);
}

TEST(CApiTest, NullIsNoHandle) {
  EXPECT_STREQ(CallAllWith(nullptr, nullptr, nullptr), nullptr);
  holdfast_error_free(nullptr);
  holdfast_text_free(nullptr);
  EXPECT_STREQ(holdfast_error_message(nullptr), "");
  EXPECT_STREQ(holdfast_error_task(nullptr), "");
  EXPECT_EQ(holdfast_error_kind(nullptr), HOLDFAST_OK);
  EXPECT_EQ(holdfast_error_exit_code(nullptr), 0);
}

TEST(CApiTest, ErrorsNeedNotBeLookedAt) {
  EXPECT_EQ(holdfast_leave(nullptr, nullptr, -1, nullptr), HOLDFAST_BAD_HANDLE);
}

TEST(CApiTest, WrongOptionsAreNamed) {
  const ClusterSpec spec =
      *ClusterSpec::FromHosts("127.0.0.1:1", "127.0.0.1:2", "");
  const auto message = [](const Options& options) {
    holdfast_cluster* cluster = nullptr;
    const std::vector<holdfast_option> list = options.Get();
    const Result result =
        Call(holdfast_connect, list.data(), list.size(), &cluster);
    EXPECT_EQ(result.kind, HOLDFAST_INVALID);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(cluster, nullptr);
    return result.message;
  };
  const Options good(spec, "worker", 0);
  EXPECT_THAT(message(Options(good).Set("taks_index", "1")),
              HasSubstr("no option \"taks_index\"; there are: chief_hosts, "));
  EXPECT_THAT(message(Options(good).Set("task_index", "one")),
              HasSubstr("option task_index: \"one\""));
  EXPECT_THAT(message(Options(good).Set("task_index", "3")),
              HasSubstr("/job:worker/task:3"));
  EXPECT_THAT(message(Options(good).Set("connect_timeout", "soon")),
              HasSubstr("option connect_timeout: \"soon\""));
  EXPECT_THAT(message(Options(good).Set("insecure", "yes")),
              HasSubstr("option insecure: \"yes\""));
  EXPECT_THAT(message(Options(good).Set("same_host", "on")),
              HasSubstr("option same_host: \"on\""));
  EXPECT_THAT(message(Options(good).Set("job_name", "ps")),
              HasSubstr("/job:ps/task:0 does not train"));
  const ClusterSpec far = *ClusterSpec::FromHosts("a.net:1", "b.net:2", "");
  EXPECT_THAT(message(Options(far, "worker", 0).Set("insecure", "false")),
              HasSubstr("/job:ps/task:0 is at a.net:1, which is not this "
                        "machine; encrypt with tls_dir"));
  EXPECT_EQ(Call(holdfast_connect, nullptr, size_t{0}, nullptr).kind,
            HOLDFAST_INVALID);
  const holdfast_option null_value = {"job_name", nullptr};
  holdfast_cluster* cluster;
  EXPECT_EQ(Call(holdfast_connect, &null_value, size_t{1}, &cluster).kind,
            HOLDFAST_INVALID);
}

TEST(CApiTest, MissingFilesAreNotFound) {
  const ClusterSpec spec =
      *ClusterSpec::FromHosts("127.0.0.1:1", "127.0.0.1:2", "");
  Options options(spec, "worker", 0);
  const auto list = options.Set("tls_dir", "/nowhere").Get();
  holdfast_cluster* cluster = nullptr;
  const Result no_folder =
      Call(holdfast_connect, list.data(), list.size(), &cluster);
  EXPECT_EQ(no_folder.kind, HOLDFAST_NOT_FOUND) << no_folder.message;
  EXPECT_THAT(no_folder.message, HasSubstr("option tls_dir: /nowhere"));
  holdfast_values* values = nullptr;
  const Result result = Call(holdfast_load_checkpoint, "/nowhere", &values);
  EXPECT_EQ(result.kind, HOLDFAST_NOT_FOUND);
  EXPECT_THAT(result.message, HasSubstr("/nowhere"));
}

TEST(CApiTest, ReadsACheckpointWithoutACluster) {
  const std::string kGolden = "common/checkpoint/testdata/golden";
  for (const std::string& path : {kGolden, kGolden + "/g0003-step00001000/"}) {
    holdfast_values* values = nullptr;
    ASSERT_OK(Call(holdfast_load_checkpoint, path.c_str(), &values));
    EXPECT_OK(Call(holdfast_values_wait, values, int64_t{0}));
    uint64_t step = 0;
    EXPECT_OK(Call(holdfast_values_get_step, values, &step));
    EXPECT_EQ(step, 1000);
    size_t count = 0;
    EXPECT_OK(Call(holdfast_values_get_count, values, &count));
    ASSERT_GT(count, 0);
    holdfast_variable variable;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_OK(Call(holdfast_values_get_variable, values, i, &variable));
      EXPECT_EQ(variable.data == nullptr, variable.elements == 0);
      size_t elements = 1;
      for (size_t d = 0; d < variable.rank; ++d) elements *= variable.shape[d];
      EXPECT_EQ(variable.elements, elements) << variable.name;
    }
    EXPECT_EQ(Call(holdfast_values_get_variable, values, count, &variable).kind,
              HOLDFAST_INVALID);
    char* digest = nullptr;
    EXPECT_OK(Call(holdfast_values_get_digest, values, &digest));
    EXPECT_EQ(Take(digest).size(), 64);
    holdfast_values_free(values);
    EXPECT_EQ(Call(holdfast_values_get_step, values, &step).kind,
              HOLDFAST_BAD_HANDLE);
  }
}

TEST(CApiTest, BatchesAreThoseOfTheWorker) {
  const ExampleOrder order(7, 10);
  std::vector<int64_t> examples(4), expected;
  ASSERT_OK(Call(holdfast_batch_examples, uint64_t{7}, int64_t{10}, int64_t{4},
                 uint64_t{2}, examples.data()));
  for (int64_t position = 8; position < 12; ++position) {
    expected.push_back(order.At(position));
  }
  EXPECT_EQ(examples, expected);
  EXPECT_EQ(Call(holdfast_batch_examples, uint64_t{7}, int64_t{0}, int64_t{4},
                 uint64_t{2}, examples.data())
                .kind,
            HOLDFAST_INVALID);
  EXPECT_EQ(Call(holdfast_batch_examples, uint64_t{7}, int64_t{10}, int64_t{4},
                 ~uint64_t{0}, examples.data())
                .kind,
            HOLDFAST_INVALID);
}

TEST(CApiTest, BatchesMayBeShuffledLess) {
  const auto batch = [](int32_t shuffle, int64_t block) {
    std::vector<int64_t> examples(4);
    EXPECT_OK(Call(holdfast_batch_examples_shuffled, uint64_t{7}, shuffle,
                   block, int64_t{10}, int64_t{4}, uint64_t{2},
                   examples.data()));
    return examples;
  };
  const auto expected = [](const Shuffle& shuffle) {
    const ExampleOrder order(7, 10, shuffle);
    std::vector<int64_t> examples;
    for (int64_t position = 8; position < 12; ++position) {
      examples.push_back(order.At(position));
    }
    return examples;
  };
  EXPECT_EQ(batch(HOLDFAST_SHUFFLE_FULL, 0), expected({}));
  EXPECT_EQ(batch(HOLDFAST_SHUFFLE_BLOCKS, 3),
            expected({Shuffle::Kind::kBlocks, 3}));
  EXPECT_EQ(batch(HOLDFAST_SHUFFLE_BLOCKS, 0),
            expected({Shuffle::Kind::kBlocks, 4096}));
  EXPECT_EQ(batch(HOLDFAST_SHUFFLE_NONE, 0),
            (std::vector<int64_t>{8, 9, 0, 1}));
  int64_t example = 0;
  for (const auto& [shuffle, block] : {std::pair(3, 1), std::pair(1, -1)}) {
    EXPECT_EQ(
        Call(holdfast_batch_examples_shuffled, uint64_t{7}, shuffle,
             int64_t{block}, int64_t{10}, int64_t{1}, uint64_t{2}, &example)
            .kind,
        HOLDFAST_INVALID);
  }
}

// ---- With a cluster ----

TEST_F(CApiClusterTest, TrainsFromC) {
  for (const bool asynchronous : {false, true}) {
    for (const uint32_t num_ps : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(num_ps, " ps, asynchronous ", asynchronous));
      Start(num_ps, /*num_workers=*/2);
      const std::string text =
          asynchronous
              ? absl::StrCat(kVariables,
                             "consistency { asynchronous { pipeline_depth: 2 } "
                             "} total_steps: 6 total_tickets: 6")
              : Synchronous(6);
      std::vector<std::future<std::string>> workers;
      std::vector<double> sums(2);
      for (int index = 0; index < 2; ++index) {
        workers.push_back(std::async(std::launch::async, [&, index] {
          const Options worker = Worker(index);
          const auto options = worker.Get();
          char* const error = TrainInC(options.data(), options.size(),
                                       text.c_str(), 1, &sums[index]);
          const std::string copy = error == nullptr ? "" : error;
          std::free(error);
          return copy;
        }));
      }
      for (auto& worker : workers) EXPECT_EQ(worker.get(), "");
      // Six steps of 1: 10 - 6 six times, 7 five times, -6.
      EXPECT_THAT(sums, ElementsAre(53, 53));
      ExpectDone();
      cluster_.reset();
    }
  }
}

TEST_F(CApiClusterTest, TellsOfPlaceVariablesStatusAndOutcome) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  holdfast_place place;
  ASSERT_OK(Call(holdfast_get_place, cluster, &place));
  EXPECT_STREQ(place.job, "worker");
  EXPECT_EQ(place.index, 0);
  EXPECT_EQ(place.replica, 0);
  EXPECT_EQ(place.num_replicas, 1);
  EXPECT_EQ(place.num_ps, 2);
  EXPECT_EQ(place.is_chief, 1);

  // Errors before there are variables.
  size_t count = 0;
  holdfast_loop* loop = nullptr;
  holdfast_values* values = nullptr;
  char* text = nullptr;
  for (const Result& result :
       {Call(holdfast_get_num_variables, cluster, &count),
        Call(holdfast_get_declaration, cluster, &text),
        Call(holdfast_await_variables, cluster, int64_t{-1}),
        Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop),
        Call(holdfast_pull, cluster, uint64_t{0}, &values)}) {
    EXPECT_EQ(result.kind, HOLDFAST_INVALID) << result.message;
    EXPECT_THAT(result.message,
                ::testing::MatchesRegex(
                    ".*: call holdfast_(declare|await_variables) first"));
  }

  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(2).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(2).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  EXPECT_EQ(Call(holdfast_declare, cluster, Synchronous(3).c_str(), nullptr,
                 size_t{0}, int64_t{-1})
                .kind,
            HOLDFAST_REFUSED);
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  ASSERT_OK(Call(holdfast_get_num_variables, cluster, &count));
  ASSERT_EQ(count, 3);
  std::vector<std::string> variables;
  for (size_t i = 0; i < count; ++i) {
    holdfast_variable variable;
    ASSERT_OK(Call(holdfast_get_variable, cluster, i, &variable));
    EXPECT_EQ(variable.data, nullptr);
    variables.push_back(absl::StrCat(variable.name, " ", variable.rank, " ",
                                     variable.elements, " ", variable.trainable,
                                     " ", variable.moving_average));
  }
  EXPECT_THAT(variables,
              ElementsAre("w 2 6 1 0", "frozen 1 5 0 0", "b 0 1 1 0"));
  holdfast_variable variable;
  EXPECT_EQ(Call(holdfast_get_variable, cluster, size_t{3}, &variable).kind,
            HOLDFAST_INVALID);
  ASSERT_OK(Call(holdfast_get_declaration, cluster, &text));
  EXPECT_THAT(Take(text), HasSubstr("total_num_replicas: 1"));

  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_loop* second = nullptr;
  EXPECT_THAT(
      Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &second).message,
      HasSubstr("a loop already exists"));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.done, 0);
  EXPECT_EQ(turn.batch, 0);
  EXPECT_EQ(turn.loss_scale, 1);

  // Into memory of the caller, except for "frozen".
  std::vector<float> w(6), b(1);
  float* const into[] = {w.data(), nullptr, b.data()};
  const size_t sizes[] = {6, 0, 1};
  ASSERT_OK(Call(holdfast_loop_read, loop, into, sizes, size_t{3}));
  EXPECT_EQ(w, std::vector<float>(6, 10));
  const size_t wrong[] = {5, 0, 1};
  EXPECT_THAT(Call(holdfast_loop_read, loop, into, wrong, size_t{3}).message,
              HasSubstr("variable \"w\" has 6 elements, not 5"));
  EXPECT_THAT(Call(holdfast_loop_read, loop, into, sizes, size_t{2}).message,
              HasSubstr("3 variables, not 2"));

  // One by one.
  EXPECT_THAT(
      Call(holdfast_loop_add, loop, size_t{0}, w.data(), size_t{5}).message,
      HasSubstr("gradient has 5 elements"));
  ASSERT_OK(Call(holdfast_loop_add, loop, size_t{2}, b.data(), size_t{1}));
  EXPECT_THAT(
      Call(holdfast_loop_contribute, loop, uint64_t{1}, 0.5, 1.f).message,
      HasSubstr("the first is of \"w\""));
  std::thread hook([&] {
    EXPECT_OK(Call(holdfast_loop_add, loop, size_t{0}, w.data(), size_t{6}));
  });
  hook.join();
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{1}, 0.5, 1.f));
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.step, 1);
  holdfast_outcome outcome;
  ASSERT_OK(Call(holdfast_loop_outcome, loop, &outcome));
  EXPECT_EQ(outcome.verdict, HOLDFAST_ACCEPTED);
  EXPECT_EQ(outcome.accepted, 1);

  ASSERT_OK(Call(holdfast_get_status, cluster, int64_t{-1}, &text));
  EXPECT_THAT(Take(text), HasSubstr("\"global_step\":\"1\""));
  EXPECT_OK(Call(holdfast_report_evaluation, cluster, uint64_t{1}, uint64_t{8},
                 0.5, 0.75, std::nan(""), int64_t{-1}));
  // There is no checkpoint directory.
  uint64_t step = 0;
  EXPECT_NE(Call(holdfast_save_checkpoint, cluster, int64_t{-1}, &step).kind,
            HOLDFAST_OK);

  // All current values, by another call.
  ASSERT_OK(Call(holdfast_pull, cluster, uint64_t{1}, &values));
  EXPECT_OK(Call(holdfast_values_wait, values, int64_t{-1}));
  ASSERT_OK(Call(holdfast_values_get_step, values, &step));
  EXPECT_EQ(step, 1);
  ASSERT_OK(Call(holdfast_values_get_variable, values, size_t{0}, &variable));
  EXPECT_EQ(variable.data[5], 0);
  holdfast_values_free(values);

  const float* const gradients[] = {w.data(), nullptr, b.data()};
  ASSERT_OK(Call(holdfast_loop_push, loop, gradients, sizes, size_t{3},
                 uint64_t{1}, std::nan(""), HOLDFAST_CLIP_AS_DECLARED));
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.done, 1);
  EXPECT_EQ(turn.step, 2);
  ASSERT_OK(Call(holdfast_loop_outcome, loop, &outcome));
  EXPECT_EQ(outcome.not_finite, 1);
  const float* final_values[3];
  ASSERT_OK(Call(holdfast_loop_values, loop, final_values, size_t{3}));
  EXPECT_EQ(final_values[0][5], 0);
  EXPECT_EQ(final_values[1][4], 7);
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  EXPECT_THAT(Call(holdfast_get_status, cluster, int64_t{-1}, &text).message,
              HasSubstr("has left the cluster"));
  holdfast_close(cluster);
  // The memory stays valid; the loop was freed with its cluster.
  EXPECT_EQ(final_values[0][5], 0);
  EXPECT_EQ(Call(holdfast_loop_next, loop, int64_t{-1}, &turn).kind,
            HOLDFAST_BAD_HANDLE);
  holdfast_loop_free(loop);
  ExpectDone();
}

TEST_F(CApiClusterTest, AnyFigureMayBeReported) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const cluster = Ready(Worker(0), Synchronous(5));
  const auto report = [&](const std::vector<holdfast_metric>& metrics) {
    return Call(holdfast_report_metrics, cluster,
                static_cast<const holdfast_evaluation*>(nullptr), uint64_t{0},
                uint64_t{8}, metrics.data(), metrics.size(), int64_t{-1});
  };
  ASSERT_OK(report(
      {{"auc", 0.75}, {"loss", 0.5}, {"mean_squared_error", 4}, {"f1", 0.25}}));
  char* text = nullptr;
  ASSERT_OK(Call(holdfast_get_status, cluster, int64_t{-1}, &text));
  const std::string status = Take(text);
  for (const char* figure :
       {"\"auc\":0.75", "\"loss\":0.5", "\"mean_squared_error\":4",
        "\"metrics\":{\"f1\":0.25}", "\"examples\":\"8\""}) {
    EXPECT_THAT(status, HasSubstr(figure));
  }
  const auto refusal = [&](const std::vector<holdfast_metric>& metrics) {
    const Result result = report(metrics);
    EXPECT_EQ(result.kind, HOLDFAST_INVALID);
    return result.message;
  };
  EXPECT_THAT(refusal({{"auc", 1}}), HasSubstr("\"loss\" is missing"));
  EXPECT_THAT(refusal({{"loss", 1}, {"f", 1}, {"f", 1}}),
              HasSubstr("\"f\" is given twice"));
  EXPECT_THAT(refusal({{"loss", 1}, {nullptr, 1}}), HasSubstr("has no name"));
  holdfast_evaluation evaluation;
  const Result next =
      Call(holdfast_next_evaluation, cluster, int64_t{-1}, &evaluation);
  EXPECT_EQ(next.kind, HOLDFAST_INVALID);
  EXPECT_THAT(next.message, HasSubstr("worker/task:0 is not an evaluator"));
  holdfast_close(cluster);
}

// The cluster spec does not list the evaluator. It ends without an error when
// it has seen that the job is done.
TEST_F(CApiClusterTest, AnEvaluatorIsGivenCheckpointsUntilTheJobIsDone) {
  StartWithCheckpoints(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const evaluator =
      Connect(Options(cluster_->spec(), "evaluator", 0));
  holdfast_place place;
  ASSERT_OK(Call(holdfast_get_place, evaluator, &place));
  EXPECT_STREQ(place.job, "evaluator");
  EXPECT_EQ(place.is_chief, 0);
  EXPECT_EQ(
      Call(holdfast_declare, evaluator, "", nullptr, size_t{0}, int64_t{-1})
          .kind,
      HOLDFAST_INVALID);
  holdfast_evaluation evaluation;
  EXPECT_EQ(
      Call(holdfast_next_evaluation, evaluator, int64_t{0}, &evaluation).kind,
      HOLDFAST_TIMED_OUT);

  const std::string text =
      absl::StrCat(Synchronous(4), " checkpoints { every_steps: 2 }");
  std::thread worker([&] {
    double sum = 0;
    const Options worker = Worker(0);
    const auto options = worker.Get();
    EXPECT_STREQ(
        TrainInC(options.data(), options.size(), text.c_str(), 1, &sum),
        nullptr);
  });
  uint64_t last = 0;
  for (;;) {
    const Result next =
        Call(holdfast_next_evaluation, evaluator, int64_t{-1}, &evaluation);
    EXPECT_EQ(next.kind, HOLDFAST_OK) << next.message;
    if (next.kind != HOLDFAST_OK || evaluation.done) break;
    EXPECT_GT(evaluation.step, last);
    last = evaluation.step;
    holdfast_values* values = nullptr;
    EXPECT_OK(Call(holdfast_load_checkpoint,
                   absl::StrCat(checkpoints_, "/", evaluation.name).c_str(),
                   &values));
    holdfast_variable w;
    EXPECT_OK(Call(holdfast_values_get_variable, values, size_t{0}, &w));
    EXPECT_EQ(w.data[5], 10.f - last);
    holdfast_values_free(values);
    const holdfast_metric metrics[] = {{"loss", 1. / last}, {"f1", 0.5}};
    EXPECT_OK(Call(holdfast_report_metrics, evaluator, &evaluation, uint64_t{0},
                   uint64_t{8}, metrics, size_t{2}, int64_t{-1}));
  }
  EXPECT_EQ(last, 4);
  worker.join();
  holdfast_close(evaluator);
  ExpectDone();
}

TEST_F(CApiClusterTest, FirstValuesAreTheChiefs) {
  Start(/*num_ps=*/2, /*num_workers=*/2);
  const std::string text = R"(
    variables { name: "w" shape: 3 dtype: FLOAT32 initializer { given {} } }
    variables { name: "b" dtype: FLOAT32 initializer { zeros {} } }
    optimizers { learning_rate: 1 sgd {} }
    consistency { synchronous {} } total_steps: 1)";
  holdfast_cluster* const chief = Connect(Worker(0));
  std::vector<float> w = {1, 2, 3};
  const float* wrong[] = {w.data(), w.data()};
  EXPECT_THAT(
      Call(holdfast_declare, chief, text.c_str(), wrong, size_t{2}, int64_t{-1})
          .message,
      HasSubstr("variable \"b\": first values are given"));
  EXPECT_THAT(Call(holdfast_declare, chief, text.c_str(), nullptr, size_t{0},
                   int64_t{-1})
                  .message,
              HasSubstr("variable \"w\": its initializer is `given`"));
  const float* given[] = {w.data(), nullptr};
  ASSERT_OK(Call(holdfast_declare, chief, text.c_str(), given, size_t{2},
                 int64_t{-1}));
  w = {0, 0, 0};  // The values were copied.
  // Continues in the background.
  const Result begun = Call(holdfast_await_variables, chief, int64_t{0});
  EXPECT_THAT(begun.kind, AnyOf(HOLDFAST_OK, HOLDFAST_TIMED_OUT))
      << begun.message;
  holdfast_cluster* const other = Ready(Worker(1), text);
  ASSERT_OK(Call(holdfast_await_variables, chief, int64_t{-1}));
  holdfast_values* values = nullptr;
  ASSERT_OK(Call(holdfast_pull, other, uint64_t{0}, &values));
  ASSERT_OK(Call(holdfast_values_wait, values, int64_t{-1}));
  holdfast_variable variable;
  ASSERT_OK(Call(holdfast_values_get_variable, values, size_t{0}, &variable));
  EXPECT_THAT(std::vector<float>(variable.data, variable.data + 3),
              ElementsAre(1, 2, 3));
  holdfast_values_free(values);
  EXPECT_OK(Call(holdfast_leave, other, "that is all", int64_t{-1}));
  holdfast_close(other);
  holdfast_close(chief);
}

TEST_F(CApiClusterTest, AnotherDeclarationIsRefused) {
  Start(/*num_ps=*/1, /*num_workers=*/2);
  holdfast_cluster* const chief = Ready(Worker(0), Synchronous(5));
  holdfast_cluster* const other = Connect(Worker(1));
  ASSERT_OK(Call(holdfast_declare, other, Synchronous(6).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  const Result result = Call(holdfast_await_variables, other, int64_t{-1});
  EXPECT_EQ(result.kind, HOLDFAST_REFUSED);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.task, "/job:worker/task:1");
  EXPECT_THAT(result.message, HasSubstr("total_steps: 5 -> 6"));

  holdfast_close(other);
  holdfast_close(chief);
}

TEST_F(CApiClusterTest, ATextThatCannotBeReadIsToldWithItsLine) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  const auto declare = [&](const std::string& text) {
    return Call(holdfast_declare, cluster, text.c_str(), nullptr, size_t{0},
                int64_t{-1});
  };
  const Result unread = declare("seed: 1\ntotal_stesp: 3");
  EXPECT_EQ(unread.kind, HOLDFAST_INVALID);
  EXPECT_THAT(unread.message, HasSubstr("line 2"));
  EXPECT_THAT(unread.message, HasSubstr("total_stesp"));
  const Result broken = declare(absl::StrCat(
      kVariables, "consistency { synchronous {} } total_steps: 0"));
  EXPECT_EQ(broken.kind, HOLDFAST_INVALID);
  EXPECT_THAT(broken.message, HasSubstr("total_steps"));
  EXPECT_OK(declare(Synchronous(1)));
  holdfast_close(cluster);
}

TEST_F(CApiClusterTest, AReaderReads) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const worker = Ready(Worker(0), Synchronous(5));
  holdfast_cluster* const reader =
      Connect(Options(cluster_->spec(), "client", 0));
  EXPECT_EQ(
      Call(holdfast_declare, reader, "", nullptr, size_t{0}, int64_t{-1}).kind,
      HOLDFAST_INVALID);
  ASSERT_OK(Call(holdfast_await_variables, reader, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  EXPECT_EQ(Call(holdfast_loop_start, reader, nullptr, size_t{0}, &loop).kind,
            HOLDFAST_INVALID);
  holdfast_values* values = nullptr;
  ASSERT_OK(Call(holdfast_pull, reader, uint64_t{0}, &values));
  ASSERT_OK(Call(holdfast_values_wait, values, int64_t{-1}));
  holdfast_close(reader);
  // Values that have been received belong to the caller.
  holdfast_variable variable;
  ASSERT_OK(Call(holdfast_values_get_variable, values, size_t{1}, &variable));
  EXPECT_EQ(variable.data[0], 7);
  holdfast_values_free(values);
  holdfast_close(worker);
}

TEST_F(CApiClusterTest, WritesValuesToTheCallersMemory) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(2).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  // "frozen" stays in the loop's memory.
  std::vector<float> w(6), b(1);
  float* const memory[] = {w.data(), nullptr, b.data()};
  const size_t sizes[] = {6, 0, 1};
  const size_t wrong[] = {5, 0, 1};
  holdfast_loop* loop = nullptr;
  const auto start = [&](const size_t* elements, size_t count) {
    return Call(holdfast_loop_start_in, cluster, memory, elements, count,
                nullptr, size_t{0}, &loop);
  };
  EXPECT_THAT(start(sizes, 2).message, HasSubstr("3 variables, not 2"));
  EXPECT_THAT(start(wrong, 3).message,
              HasSubstr("variable \"w\" has 6 elements, not 5"));
  ASSERT_OK(start(sizes, 3));

  const std::vector<float> ones(6, 1);
  const float* const gradients[] = {ones.data(), nullptr, ones.data()};
  std::vector<float> before = w;
  holdfast_turn turn;
  for (int turns = 0; turns < 3; ++turns) {
    ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
    EXPECT_NE(w, std::exchange(before, w));
    EXPECT_EQ(w, std::vector<float>(6, w[0]));
    const float* values[3];
    ASSERT_OK(Call(holdfast_loop_values, loop, values, size_t{3}));
    EXPECT_EQ(values[0], w.data());
    EXPECT_EQ(values[2], b.data());
    if (turn.done) break;
    ASSERT_OK(Call(holdfast_loop_push, loop, gradients, sizes, size_t{3},
                   uint64_t{1}, 0.5, 1.f));
  }
  EXPECT_EQ(turn.done, 1);
  holdfast_close(cluster);
  holdfast_loop_free(loop);
}

TEST_F(CApiClusterTest, ValuesThatAreTakenStayAsTheyAre) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster = Connect(Worker(0));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(3).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  const std::vector<float> ones(6, 1);
  const float* const gradients[] = {ones.data(), nullptr, ones.data()};
  const size_t sizes[] = {6, 0, 1};
  holdfast_values* taken[4];
  const float* data[4][3];
  std::vector<float> first;
  for (int turns = 0; turns < 4; ++turns) {
    holdfast_turn turn;
    ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
    EXPECT_EQ(turn.done, turns == 3);
    EXPECT_THAT(Call(holdfast_loop_take_values, loop, data[turns], size_t{2},
                     &taken[turns])
                    .message,
                HasSubstr("3 variables, not 2"));
    ASSERT_OK(Call(holdfast_loop_take_values, loop, data[turns], size_t{3},
                   &taken[turns]));
    first.push_back(data[turns][0][0]);
    // The other call gives the same values.
    const float* values[3];
    ASSERT_OK(Call(holdfast_loop_values, loop, values, size_t{3}));
    EXPECT_EQ(values[0][5], data[turns][0][5]);
    float* memory = nullptr;
    EXPECT_OK(Call(holdfast_loop_memory, loop, size_t{7}, &memory));
    EXPECT_EQ(memory, nullptr);
    if (turn.done) break;
    ASSERT_OK(Call(holdfast_loop_push, loop, gradients, sizes, size_t{3},
                   uint64_t{1}, 0.5, 1.f));
  }
  holdfast_loop_free(loop);
  holdfast_close(cluster);
  for (int turns = 0; turns < 4; ++turns) {
    uint64_t step = 9;
    EXPECT_OK(Call(holdfast_values_get_step, taken[turns], &step));
    EXPECT_EQ(step, turns);
    holdfast_variable variable;
    ASSERT_OK(
        Call(holdfast_values_get_variable, taken[turns], size_t{0}, &variable));
    EXPECT_EQ(variable.data, data[turns][0]);
    EXPECT_EQ(variable.data[0], first[turns]);
    if (turns > 0) {
      EXPECT_NE(first[turns], first[turns - 1]);
    }
    holdfast_values_free(taken[turns]);
  }
}

TEST_F(CApiClusterTest, WaitsInPortions) {
  Start(/*num_ps=*/1, /*num_workers=*/2);
  // The other worker is missing, so the first step stays open.
  holdfast_cluster* const cluster = Connect(Worker(0));
  // There is no declaration yet.
  holdfast_cluster* const reader =
      Connect(Options(cluster_->spec(), "client", 0));
  EXPECT_EQ(Call(holdfast_await_variables, reader, int64_t{1}).kind,
            HOLDFAST_TIMED_OUT);
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(5).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, reader, int64_t{-1}));
  holdfast_close(reader);
  holdfast_cluster* const other = Connect(Worker(1));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  for (int i = 0; i < 3; ++i) {
    const Result result = Call(holdfast_loop_next, loop, int64_t{1}, &turn);
    EXPECT_EQ(result.kind, HOLDFAST_TIMED_OUT) << result.message;
  }
  holdfast_close(other);
  holdfast_close(cluster);
  holdfast_loop_free(loop);
}

TEST(CApiWaitTest, ConnectingIsWaitedForInPortionsAndClosed) {
  const ClusterSpec spec =
      *ClusterSpec::FromHosts("127.0.0.1:1", "127.0.0.1:2", "");
  const Options options(spec, "worker", 0);
  const auto list = options.Get();
  holdfast_cluster* cluster = nullptr;
  ASSERT_OK(Call(holdfast_connect, list.data(), list.size(), &cluster));
  EXPECT_EQ(Call(holdfast_await_connected, cluster, int64_t{0}).kind,
            HOLDFAST_TIMED_OUT);
  char* text = nullptr;
  EXPECT_THAT(Call(holdfast_get_status, cluster, int64_t{-1}, &text).message,
              HasSubstr("call holdfast_await_connected first"));
  holdfast_close(cluster);
}

TEST(CApiWaitTest, WhoIsOutOfReachIsNamed) {
  const ClusterSpec spec =
      *ClusterSpec::FromHosts("127.0.0.1:1", "127.0.0.1:2", "");
  Options options(spec, "client", 0);
  const auto list = options.Set("fail_fast", "true").Get();
  holdfast_cluster* cluster = nullptr;
  ASSERT_OK(Call(holdfast_connect, list.data(), list.size(), &cluster));
  const Result result = Call(holdfast_await_connected, cluster, int64_t{-1});
  EXPECT_EQ(result.kind, HOLDFAST_UNAVAILABLE);
  EXPECT_EQ(result.task, "/job:ps/task:0");
  EXPECT_EQ(result.exit_code, 138);
  holdfast_close(cluster);
}

TEST_F(CApiClusterTest, WhatIsClosedEndsItsWaits) {
  Start(/*num_ps=*/1, /*num_workers=*/2);
  holdfast_cluster* const cluster = Connect(Worker(0));
  holdfast_cluster* const other = Connect(Worker(1));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(5).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  std::thread waiter([&] {
    holdfast_turn next;
    EXPECT_EQ(Call(holdfast_loop_next, loop, int64_t{-1}, &next).kind,
              HOLDFAST_BAD_HANDLE);
  });
  holdfast_close(cluster);
  waiter.join();
  EXPECT_STREQ(CallAllWith(cluster, nullptr, nullptr), nullptr);
  holdfast_loop_free(loop);
  EXPECT_STREQ(CallAllWith(nullptr, loop, nullptr), nullptr);
  // A handle of another type is refused.
  EXPECT_STREQ(CallAllWith(nullptr, reinterpret_cast<holdfast_loop*>(other),
                           reinterpret_cast<holdfast_values*>(other)),
               nullptr);
  holdfast_close(other);
}

TEST_F(CApiClusterTest, AFreedLoopEndsItsWaits) {
  Start(/*num_ps=*/1, /*num_workers=*/2);
  holdfast_cluster* const cluster = Connect(Worker(0));
  holdfast_cluster* const other = Connect(Worker(1));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(5).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  std::thread waiter([&] {
    holdfast_turn next;
    EXPECT_EQ(Call(holdfast_loop_next, loop, int64_t{-1}, &next).kind,
              HOLDFAST_BAD_HANDLE);
  });
  holdfast_loop_free(loop);
  waiter.join();
  // Another loop may be started.
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_loop_free(loop);
  holdfast_close(other);
  holdfast_close(cluster);
}

TEST_F(CApiClusterTest, AForkedChildHasNoHandlesAndEnds) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const cluster = Ready(Worker(0), Synchronous(5));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  const Options worker = Worker(0);
  const auto options = worker.Get();
  const pid_t child = fork();
  if (child == 0) {
    is_forked_child = true;
    alarm(20);
    int wrong = CallAllWith(cluster, loop, nullptr) != nullptr;
    Caught error;
    const Result result = error(holdfast_leave(cluster, nullptr, -1, error));
    if (result.message.find("forked from") == std::string::npos) wrong += 2;
    holdfast_cluster* another = nullptr;
    if (holdfast_connect(options.data(), options.size(), &another, nullptr) !=
        HOLDFAST_BAD_HANDLE) {
      wrong += 4;
    }
    holdfast_values* values = nullptr;
    if (holdfast_load_checkpoint("common/checkpoint/testdata/golden", &values,
                                 nullptr) != HOLDFAST_BAD_HANDLE) {
      wrong += 8;
    }
    std::exit(wrong);  // With all destructors and handlers.
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // The loop of the parent is not affected.
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.step, 1);
  holdfast_close(cluster);
  holdfast_loop_free(loop);
}

TEST_F(CApiClusterTest, AWaitForInputIsTold) {
  StartWithCheckpoints(/*num_ps=*/1, /*num_workers=*/1);
  const std::string trace = absl::StrCat(testing::TempDir(), "/trace.json");
  holdfast_cluster* const cluster =
      Ready(Worker(0).Set("trace", trace), Synchronous(1));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  ASSERT_OK(Call(holdfast_loop_input, loop, 1));
  // The worker reports the wait with its lease, and its share of the time after
  // a second.
  const absl::Time deadline = SteadyNow() + absl::Seconds(30);
  std::string status;
  do {
    char* json = nullptr;
    ASSERT_OK(Call(holdfast_get_status, cluster, int64_t{-1}, &json));
    status = Take(json);
  } while (status.find("\"input_wait\"") == std::string::npos &&
           SteadyNow() < deadline);
  EXPECT_THAT(status, HasSubstr("\"waiting_for\":\"input\""));
  EXPECT_THAT(status, HasSubstr("\"input_wait\":{\"recent\":0."));
  ASSERT_OK(Call(holdfast_loop_input, loop, 0));
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.done, 1);
  EXPECT_OK(Call(holdfast_loop_input, loop, 1));
  EXPECT_OK(Call(holdfast_leave, cluster, nullptr, int64_t{-1}));
  holdfast_loop_free(loop);
  holdfast_close(cluster);
  std::ifstream file(trace);
  const std::string spans((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(spans, HasSubstr("\"name\":\"input\""));
}

TEST_F(CApiClusterTest, AWorkerLeavesWithAReason) {
  Start(/*num_ps=*/2, /*num_workers=*/1);
  holdfast_cluster* const cluster = Ready(Worker(0), Synchronous(5));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_OK(Call(holdfast_leave, cluster, "no more data", int64_t{-1}));
  EXPECT_EQ(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f).kind,
            HOLDFAST_OK);
  EXPECT_EQ(Call(holdfast_loop_next, loop, int64_t{-1}, &turn).kind,
            HOLDFAST_INVALID);
  EXPECT_THAT(std::string(cluster_->Wait(0).message()),
              HasSubstr("no more data"));
  holdfast_close(cluster);
  holdfast_loop_free(loop);
}

// ---- The log ----

struct Lines {
  absl::Mutex mutex;
  std::vector<std::string> lines;
};

TEST_F(CApiClusterTest, TheLogGoesWhereItIsTold) {
  Lines lines;
  const auto sink = [](void* context, int32_t severity, const char* line) {
    auto* const into = static_cast<Lines*>(context);
    absl::MutexLock lock(&into->mutex);
    into->lines.push_back(absl::StrCat(severity, " ", line));
  };
  const auto run = [&](int32_t least) {
    holdfast_set_log(least, sink, &lines);
    // The ps logs to the same log, because it is in this process.
    Start(/*num_ps=*/1, /*num_workers=*/1);
    holdfast_close(Ready(Worker(0), Synchronous(5)));
    cluster_.reset();
    holdfast_set_log(HOLDFAST_LOG_WARNING, nullptr, nullptr);
  };
  run(HOLDFAST_LOG_NONE);
  EXPECT_THAT(lines.lines, IsEmpty());
  run(HOLDFAST_LOG_INFO);
  EXPECT_THAT(lines.lines, Contains(StartsWith("0 ")));
}

}  // namespace
}  // namespace holdfast
