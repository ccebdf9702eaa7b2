// SPDX-License-Identifier: Apache-2.0

// A worker that trains jobs with embedding tables (rows_job.h) with a
// TrainingLoop. Its job file is the declaration.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/background_calls.h"
#include "client/cluster.h"
#include "client/failure.h"
#include "client/training_loop.h"
#include "common/base/clock.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/job/job_phase.h"
#include "common/process/daemon.h"
#include "common/rpc/timeouts.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "tests/faults/rows_job.h"
#include "tests/local/small_job.h"
#include "tests/slow_worker/step_delay.h"
#include "worker/leaver.h"

ABSL_FLAG(std::string, job, "", "Path of the declaration (textproto).");
ABSL_FLAG(std::string, result_file, "",
          "Ignored: the last checkpoint has the result.");
ABSL_FLAG(double, slow_step_ms_max, 0,
          "Sleep in each turn for a random time below this, in milliseconds. "
          "The time depends on seed, worker and batch alone.");

namespace holdfast {
namespace {

constexpr char kDescription[] = "trains a job with embedding tables, for tests";

class RowsWorker {
 public:
  RowsWorker(Cluster* cluster, const proto::Declaration& declaration,
             uint32_t replica)
      : cluster_(*cluster), declaration_(declaration), replica_(replica) {
    for (const proto::EmbeddingTable& table : declaration.tables()) {
      row_lengths_.push_back(table.row_length());
    }
    dense_.resize(declaration.variables(0).shape(0));
  }

  // Trains until the job is DONE or STOPPED.
  absl::Status Run() {
    absl::Status status = Enter();
    while (!status.ok() && cluster_.rolled_back()) status = Enter();
    if (status.ok()) status = Train();
    // A straggler may find that the job has ended without it.
    if (IsOrderlyEnd(cluster_.state().phase())) return absl::OkStatus();
    return status;
  }

 private:
  absl::Status Enter() {
    if (replica_ == 0) {
      HOLDFAST_RETURN_IF_ERROR(cluster_.Declare(
          declaration_, SteadyNow() + StartTimeout(declaration_.timeouts()) +
                            RecoveryTimeout(declaration_.timeouts())));
    }
    return cluster_.AwaitVariables(absl::InfiniteFuture());
  }

  absl::Status Train() {
    TrainingLoop::Options options;
    options.replica = replica_;
    options.enter = [this] { return Enter(); };
    const SteadyClock clock;
    BackgroundCalls calls;
    TrainingLoop loop(&cluster_, &calls, &clock, options);
    for (;;) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto turn,
                                loop.Next(absl::InfiniteFuture()));
      if (turn->done) return absl::OkStatus();
      const absl::Status status = Take(*turn, &loop);
      // Next decides what follows.
      LOG_IF(INFO, !status.ok()) << "the turn has ended: " << status.message();
      if (absl::IsInvalidArgument(status)) return status;
    }
  }

  absl::Status Take(const TrainingLoop::Turn& turn, TrainingLoop* loop) {
    absl::SleepFor(
        StepDelay(absl::Milliseconds(absl::GetFlag(FLAGS_slow_step_ms_max)),
                  declaration_.seed(), replica_, GlobalStep(turn.batch)));
    std::vector<std::vector<uint64_t>> ids = RowsOfBatch(turn.batch);
    std::vector<std::vector<float>> values;
    std::vector<absl::Span<float>> into;
    for (size_t table = 0; table < ids.size(); ++table) {
      values.emplace_back(ids[table].size() * row_lengths_[table]);
    }
    for (std::vector<float>& rows : values)
      into.push_back(absl::MakeSpan(rows));
    const absl::StatusOr<bool> read =
        loop->ReadRows(UsesOf(ids), into, absl::InfiniteFuture());
    if (!read.ok()) return read.status();

    absl::Status status = AddDense(turn, loop);
    for (size_t table = 0; status.ok() && table < ids.size(); ++table) {
      const std::vector<float> gradients =
          counts() ? std::vector<float>(values[table].size(), kRowsUnit)
                   : RowGradients(ids[table], turn.batch, values[table]);
      status = loop->AddRows(table, ids[table], gradients);
    }
    if (!status.ok()) return status;
    // The next batch of this worker in a job by step. By ticket, it is
    // sometimes another batch, and ReadRows has to pull.
    ids = RowsOfBatch(turn.batch + 2);
    status = loop->WantRows(UsesOf(ids));
    if (!status.ok()) return status;
    return loop->Contribute({.examples = kRowsBatch});
  }

  absl::Status AddDense(const TrainingLoop::Turn& turn, TrainingLoop* loop) {
    // Lent memory, if possible.
    absl::Span<float> gradient = loop->Memory(0);
    if (gradient.empty()) gradient = absl::MakeSpan(dense_);
    HOLDFAST_ASSIGN_OR_RETURN(const auto values, loop->values());
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] =
          counts() ? -1
                   : 0.1f * values->Of(0)[i] + 0.01f * ((i + turn.batch) % 7);
    }
    return loop->Add(0, gradient);
  }

  bool counts() const { return declaration_.examples() == proto::BY_TICKET; }

  static std::vector<std::vector<uint64_t>> RowsOfBatch(uint64_t batch) {
    std::vector<std::vector<uint64_t>> ids;
    for (size_t table = 0; table < kRowsTables; ++table) {
      ids.push_back(RowsOf(table, batch));
    }
    return ids;
  }
  static std::vector<RowUse> UsesOf(
      const std::vector<std::vector<uint64_t>>& ids) {
    std::vector<RowUse> uses;
    for (size_t table = 0; table < ids.size(); ++table) {
      uses.push_back({table, ids[table]});
    }
    return uses;
  }

  Cluster& cluster_;
  const proto::Declaration& declaration_;
  const uint32_t replica_;
  std::vector<size_t> row_lengths_;
  std::vector<float> dense_;
};

int Fail(const absl::Status& status, int exit_code) {
  LOG(ERROR) << status.message();
  return exit_code;
}

int RunWorker(Leaver* leaver) {
  auto resolved = TaskFromFlags(kWorkerJob);
  if (!resolved.ok()) return UsageError(resolved.status());
  const auto replica = resolved->cluster.ReplicaIndex(resolved->task);
  if (!replica.ok()) return UsageError(replica.status());
  const auto connections = ConnectionsFromFlags(resolved->task);
  if (!connections.ok()) return UsageError(connections.status());
  const auto same_host = SameHostFromFlags();
  if (!same_host.ok()) return UsageError(same_host.status());
  const std::string text = ReadText(absl::GetFlag(FLAGS_job));
  proto::Declaration declaration;
  if (!google::protobuf::TextFormat::ParseFromString(text, &declaration) ||
      declaration.tables_size() != kRowsTables) {
    return UsageError(absl::InvalidArgumentError(
        absl::StrCat("--job=", absl::GetFlag(FLAGS_job),
                     ": not the declaration of a job with these tables")));
  }

  Cluster::Options options{.cluster = resolved->cluster};
  options.task = resolved->task;
  options.credentials = connections->credentials;
  options.same_host = same_host->enabled;
  options.same_host_dir = same_host->directory;
  options.job_digest = Sha256::Hex(text);
  options.data_digest = "rows";
  options.declaration = declaration;
  options.connect_timeout = StartTimeout(declaration.timeouts());
  options.recovery_timeout = RecoveryTimeout(declaration.timeouts());
  options.on_waiting = [](const std::string& what) {
    LOG(INFO) << "waiting for " << what;
  };
  auto cluster = Cluster::Connect(std::move(options));
  if (!cluster.ok()) {
    return Fail(cluster.status(), ExitCodeOfJoin(cluster.status()));
  }
  leaver->SetCluster(cluster->get());
  const absl::Status status =
      RowsWorker(cluster->get(), declaration, *replica).Run();
  leaver->EndsByItself();
  const bool workers_own = IsWorkersOwn(status, (*cluster)->state());
  const absl::Status left = (*cluster)->Leave(
      status.ok() || workers_own ? "" : std::string(status.message()),
      SteadyNow() + absl::Seconds(10));
  LOG_IF(WARNING, !left.ok()) << "failed to leave the cluster: " << left;
  if (status.ok()) return kExitDone;
  return Fail(status, workers_own ? kExitRestart : kExitFailed);
}

int Main(int argc, char** argv) {
  const std::optional<int> exit_code =
      BeginDaemon(argc, argv, kDescription, {});
  if (exit_code.has_value()) return *exit_code;
  Leaver leaver;
  const StopSignals signals(
      [&leaver](const std::string& signal) { leaver.Stop(signal); });
  const int code = RunWorker(&leaver);
  leaver.EndsByItself();
  return code;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) { return holdfast::Main(argc, argv); }
