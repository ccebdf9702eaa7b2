// SPDX-License-Identifier: Apache-2.0

// Measures what checkpoints with only the changed rows of an embedding table
// cost: their size compared with checkpoints of all rows, and how fast a job
// trains meanwhile.
//
// One ps and one worker, on this machine. Batches use a part of the table's
// rows; each round trains for a while without checkpoints, and then with
// periodic deltas.
//
//   bazel run //tests/benchmark:table_deltas -- --dir=FOLDER

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/process/flags.h"
#include "common/tensor/row_bucket.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "tests/integration/loopback.h"
#include "tests/integration/process.h"

ABSL_FLAG(std::string, dir, "", "An empty folder for checkpoints.");
ABSL_FLAG(uint64_t, rows, 20'000'000, "The number of rows of the table.");
ABSL_FLAG(uint64_t, changed, 200'000, "The number of rows that batches use.");
ABSL_FLAG(uint32_t, row_length, 16,
          "The number of values of a row; Adagrad adds as many slots.");
ABSL_FLAG(uint32_t, batch, 20'000, "The number of rows of a batch.");
ABSL_FLAG(int, rounds, 5, "The number of rounds; the median is printed.");
ABSL_FLAG(double, seconds, 20, "Time for each half of a round, in seconds.");
ABSL_FLAG(double, every, 10, "Seconds from one delta to the next.");
ABSL_FLAG(std::string, ps_server, "ps_server/ps_server",
          "Path of the ps daemon.");

namespace holdfast {
namespace {

absl::Time Soon() { return SteadyNow() + absl::Minutes(10); }

class DeltaBenchmark {
 public:
  DeltaBenchmark() {
    spec_ = MakeLoopbackCluster(/*num_ps=*/1, /*num_workers=*/1);
    ps_ = std::make_unique<Process>(
        absl::GetFlag(FLAGS_ps_server),
        std::vector<std::string>{
            "--task_index=0", absl::StrCat("--cluster_spec=", spec_->ToJson()),
            absl::StrCat("--checkpoint_dir=", absl::GetFlag(FLAGS_dir))});
    Cluster::Options options{*spec_};
    options.task = *spec_->ReplicaTask(0);
    options.job_digest = "job";
    options.data_digest = "data";
    auto cluster = Cluster::Connect(std::move(options));
    CHECK(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    proto::Declaration declaration;
    CHECK(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat(R"(
          variables {
            name: "w" dtype: FLOAT32 initializer { zeros {} } trainable: false
          }
          optimizers { learning_rate: 0.01 adagrad {} }
          consistency { synchronous {} }
          total_steps: 1000000000
          checkpoints { every_seconds: 0 keep: 2 max_deltas: 1000 }
          tables {
            name: "rows" initializer { zeros {} } max_rows_per_push: 1000000
            row_length: )",
                     absl::GetFlag(FLAGS_row_length), "}"),
        &declaration));
    auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
    mode.set_replicas_to_aggregate(1);
    mode.set_total_num_replicas(1);
    CHECK_EQ(cluster_->Declare(declaration, Soon()), absl::OkStatus());
    CHECK_EQ(cluster_->AwaitVariables(Soon()), absl::OkStatus());
  }

  // Makes one step that changes `count` rows, beginning with row `begin`.
  void Step(uint64_t begin, uint64_t count) {
    ids_.clear();
    for (uint64_t i = 0; i < count; ++i) ids_.push_back(HashRowId(begin + i));
    std::sort(ids_.begin(), ids_.end());
    gradients_.resize(count * absl::GetFlag(FLAGS_row_length), 0.5f);
    const auto push = cluster_->StartPush(GlobalStep(step_++));
    CHECK_EQ(push->AddRows(0, ids_,
                           absl::MakeConstSpan(gradients_)
                               .first(count * absl::GetFlag(FLAGS_row_length))),
             absl::OkStatus());
    Contribution contribution;
    contribution.examples = 1;
    CHECK_EQ(push->Contribute(contribution), absl::OkStatus());
    const auto outcome = push->Await(Soon());
    CHECK(outcome.ok()) << outcome.status();
  }

  // Trains on the rows that change while `go_on` returns true. Returns steps/s.
  template <typename GoOn>
  double Train(GoOn go_on) {
    const uint64_t batch = absl::GetFlag(FLAGS_batch);
    const uint64_t changed = absl::GetFlag(FLAGS_changed);
    const absl::Time begin = SteadyNow();
    uint64_t steps = 0;
    for (; go_on(); ++steps) {
      Step(next_, batch);
      next_ = (next_ + batch) % changed;
    }
    return steps / absl::ToDoubleSeconds(SteadyNow() - begin);
  }

  // Takes a checkpoint; returns the bytes of its files.
  uint64_t Save() {
    CHECK(cluster_->SaveCheckpoint(Soon()).ok());
    const auto directory = CheckpointDirectory::OpenToRead(
        absl::GetFlag(FLAGS_dir), PosixFileSystem());
    CHECK(directory.ok()) << directory.status();
    const auto journal = directory->ReadJournal();
    CHECK(journal.ok()) << journal.status();
    const auto manifest =
        directory->ReadManifest(*journal->checkpoints().rbegin());
    CHECK(manifest.ok()) << manifest.status();
    is_delta_ = !manifest->chain().empty();
    return manifest->files(0).size();
  }
  bool is_delta() const { return is_delta_; }

 private:
  std::optional<ClusterSpec> spec_;
  std::unique_ptr<Process> ps_;
  std::unique_ptr<Cluster> cluster_;
  uint64_t step_ = 0;
  uint64_t next_ = 0;
  bool is_delta_ = false;
  std::vector<uint64_t> ids_;
  std::vector<float> gradients_;
};

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Run() {
  DeltaBenchmark benchmark;
  const uint64_t rows = absl::GetFlag(FLAGS_rows);
  constexpr uint64_t kAtATime = 500'000;
  for (uint64_t i = 0; i < rows; i += kAtATime) {
    benchmark.Step(i, std::min(kAtATime, rows - i));
  }
  absl::Time begin = SteadyNow();
  const uint64_t all = benchmark.Save();
  absl::PrintF("all %d rows: %d bytes in %.1f s\n", rows, all,
               absl::ToDoubleSeconds(SteadyNow() - begin));

  const absl::Duration part = absl::Seconds(absl::GetFlag(FLAGS_seconds));
  const absl::Duration every = absl::Seconds(absl::GetFlag(FLAGS_every));
  std::vector<double> ratios;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const auto for_a_while = [until = SteadyNow() + part] {
      return SteadyNow() < until;
    };
    const double without = benchmark.Train(for_a_while);
    absl::Notification over;
    uint64_t bytes = 0;
    int saves = 0;
    absl::Duration saving;
    std::thread saver([&] {
      do {
        const absl::Time begun = SteadyNow();
        bytes = benchmark.Save();
        CHECK(benchmark.is_delta()) << "the checkpoint is not a delta";
        saving += SteadyNow() - begun;
        ++saves;
      } while (!over.WaitForNotificationWithTimeout(every));
    });
    const double with = benchmark.Train(
        [until = SteadyNow() + part] { return SteadyNow() < until; });
    over.Notify();
    saver.join();
    ratios.push_back(with / without);
    absl::PrintF(
        "%.1f steps/s without, %.1f (%.3f) with %d deltas of %d bytes (%.4f of "
        "all), %.2f s each\n",
        without, with, with / without, saves, bytes, 1.0 * bytes / all,
        absl::ToDoubleSeconds(saving) / saves);
    std::fflush(stdout);
  }
  absl::PrintF("median of the ratio of speeds: %.3f\n", MedianOf(ratios));
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  const auto line = holdfast::ParseFlags(
      std::vector<std::string>(argv + (argc > 0), argv + argc));
  google::InitGoogleLogging(argv[0]);
  if (!line.ok() || absl::GetFlag(FLAGS_dir).empty()) {
    std::cerr << (line.ok() ? "--dir is required" : line.status().message())
              << std::endl;
    return 2;
  }
  holdfast::Run();
}
