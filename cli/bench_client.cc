// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_client.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/bench_limits.h"
#include "cli/bench_report.h"
#include "cli/bench_row_worker.h"
#include "cli/bench_samples.h"
#include "cli/bench_worker.h"
#include "cli/certificate_folder.h"
#include "cli/flag_set.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"
#include "common/process/daemon.h"
#include "common/rpc/credentials.h"
#include "common/rpc/identity.h"
#include "proto/benchmark.pb.h"

namespace holdfast {
namespace {

// Rounds that do not count, until connections, buffers and the ps's versions
// have their final size.
constexpr int kWarmUpRounds = 3;
// The minimum number of rounds, however long they take.
constexpr int kRounds = 5;

struct Flags {
  std::string role;
  std::string cluster_spec;
  int task_index = 0;
  BenchJob job;
  BenchRowJob row_job;
  std::string mode = "asynchronous";
  std::string ops;
  double seconds = 1;
  std::string same_host = "auto";
  std::string result_file;
  // Folder with the certificate folders of all tasks. Empty: no encryption.
  std::string tls_dir;
};

// Decides how long a measurement continues: for `seconds` and at least kRounds.
// A warm-up of a tenth of this time and at least kWarmUpRounds comes first and
// does not count.
class Schedule {
 public:
  explicit Schedule(double seconds) : begun_(Clock::now()), seconds_(seconds) {}

  // Called before each round.
  bool GoOn() {
    ++round_;
    const double at = Seconds(Clock::now() - begun_).count();
    if (!counts_) {
      counts_ = round_ > kWarmUpRounds && at >= seconds_ / 10;
      if (counts_) {
        begun_ = Clock::now();
        round_ = 1;
      }
      return true;
    }
    return round_ <= kRounds || at < seconds_;
  }
  bool counts() const { return counts_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  Clock::time_point begun_;
  const double seconds_;
  int round_ = 0;
  bool counts_ = false;
};

absl::Status WriteResults(const std::vector<proto::BenchmarkResult>& results,
                          const std::string& path) {
  std::ofstream file(path, std::ios::trunc);
  for (const proto::BenchmarkResult& result : results) {
    file << BenchJson(result) << "\n";
  }
  file.close();
  if (file) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path));
}

// This process and all ps, whose PID files are next to `cluster_spec`. Errors:
// INTERNAL when one is missing.
absl::StatusOr<std::vector<pid_t>> Processes(const std::string& cluster_spec,
                                             uint32_t num_ps) {
  std::vector<pid_t> pids = {getpid()};
  const auto folder = std::filesystem::path(cluster_spec).parent_path();
  for (uint32_t ps = 0; ps < num_ps; ++ps) {
    const auto path = folder / absl::StrCat("ps-", ps, ".pid");
    std::ifstream file(path);
    if (!(file >> pids.emplace_back())) {
      return absl::InternalError(absl::StrCat("cannot read ", path.string()));
    }
  }
  return pids;
}

// An operation to measure.
struct Op {
  std::string name;
  std::function<absl::Status()> run;
  // Runs before the clock starts. May be empty.
  std::function<absl::Status()> prepare = nullptr;
};

// The durations of an operation in each round, and the total CPU time of client
// and ps.
struct Costs {
  std::vector<absl::Duration> samples;
  absl::Duration cpu;
};

// Runs the operations of a round in turn, so that disturbances of the machine
// affect all of them equally, until they have been measured for `seconds` in
// total. Returns the costs by name. Errors: those of the operations; INTERNAL
// when a ps is missing.
absl::StatusOr<std::map<std::string, Costs>> MeasureInTurn(
    const std::vector<Op>& round, const Flags& flags, double seconds) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto pids,
                            Processes(flags.cluster_spec, flags.job.shards));
  std::map<std::string, Costs> costs;
  Schedule schedule(seconds);
  while (schedule.GoOn()) {
    for (const Op& op : round) {
      absl::Status status = op.prepare ? op.prepare() : absl::OkStatus();
      if (!status.ok()) return status;
      HOLDFAST_ASSIGN_OR_RETURN(const auto before, CpuTimeOf(pids));
      status =
          Timed(op.run, schedule.counts() ? &costs[op.name].samples : nullptr);
      if (!status.ok()) return status;
      HOLDFAST_ASSIGN_OR_RETURN(const auto after, CpuTimeOf(pids));
      if (schedule.counts()) costs[op.name].cpu += after - before;
    }
  }
  return costs;
}

// Sets the fields for an operation's costs.
void SetCosts(const Costs& costs, proto::BenchmarkResult* result) {
  Summarize(costs.samples, result);
  result->set_cpu_us(absl::ToDoubleMicroseconds(costs.cpu) / result->rounds());
}

// Writes the results, and leaves properly: the ps then wait for a successor,
// and are not disturbed before the results are read.
absl::Status Finish(const std::vector<proto::BenchmarkResult>& results,
                    const Flags& flags, Cluster* cluster) {
  HOLDFAST_RETURN_IF_ERROR(WriteResults(results, flags.result_file));
  return cluster->Leave("", SteadyNow() + absl::Seconds(60));
}

absl::Status Wire(const Flags& flags, BenchWorker* worker) {
  const std::vector<std::string> ops = absl::StrSplit(flags.ops, ',');
  const auto wants = [&](const char* op) {
    return std::count(ops.begin(), ops.end(), op) > 0;
  };
  std::vector<char> from(wants("tcp") || wants("memcpy") ? flags.job.bytes : 0);
  const std::vector<float> values(
      wants("read") ? flags.job.bytes / sizeof(float) : 0);
  uint64_t sum = 0;
  std::vector<char> to(wants("memcpy") ? flags.job.bytes : 0);
  HOLDFAST_ASSIGN_OR_RETURN(const auto tcp, TcpLimit::Start(flags.job.bytes));

  const Op ticket = {"ticket", [&] { return worker->TakeTicket(); }};
  std::vector<Op> round;
  if (wants("push") || (wants("ticket") && !wants("pushpull"))) {
    round.push_back(ticket);
    round.push_back({"push", [&] { return worker->Push(); }});
  }
  if (wants("push_in_place")) {
    round.push_back(ticket);
    round.push_back({"push_in_place", [&] { return worker->PushWritten(); },
                     [&] { return worker->WriteInPlace(); }});
  }
  if (wants("pull")) round.push_back({"pull", [&] { return worker->Pull(); }});
  if (wants("pull_in_place")) {
    round.push_back({"pull_in_place", [&] { return worker->ReadInPlace(); }});
  }
  if (wants("pushpull")) {
    round.push_back(ticket);
    round.push_back({"pushpull", [&] { return worker->PushPull(); }});
  }
  if (wants("tcp")) {
    round.push_back({"tcp", [&] { return tcp->Exchange(from); }});
  }
  if (wants("memcpy")) {
    round.push_back({"memcpy", [&] {
                       memcpy(to.data(), from.data(), from.size());
                       return absl::OkStatus();
                     }});
  }

  if (wants("read")) {
    round.push_back({"read", [&] {
                       sum += SumOf(values);
                       return absl::OkStatus();
                     }});
  }
  worker->CopyValues();

  HOLDFAST_ASSIGN_OR_RETURN(
      auto costs, MeasureInTurn(round, flags, flags.seconds * ops.size()));
  std::vector<proto::BenchmarkResult> results;
  for (const std::string& op : ops) {
    proto::BenchmarkResult& result = results.emplace_back();
    result.set_benchmark("wire");
    result.set_op(op);
    result.set_codec(flags.job.codec);
    result.set_bytes(flags.job.bytes);
    result.set_shards(flags.job.shards);
    SetCosts(costs[op], &result);
    if (op != "ticket") SetRate(&result);
  }
  return Finish(results, flags, &worker->cluster());
}

absl::Status Rows(const Flags& flags, BenchRowWorker* worker) {
  absl::Status status = worker->Fill();
  if (!status.ok()) return status;

  const auto ticket = [&] { return worker->TakeTicket(); };
  const auto done = [&](void (BenchRowWorker::*call)()) {
    return [worker, call] {
      (worker->*call)();
      return absl::OkStatus();
    };
  };
  const std::vector<Op> all = {
      {"push", [&] { return worker->Push(); }, ticket},
      {"pull", [&] { return worker->Pull(); }},
      {"pushpull", [&] { return worker->PushPull(); }, ticket},
      {"assign", done(&BenchRowWorker::Assign)},
      {"sum", done(&BenchRowWorker::Sum)},
      {"spread", done(&BenchRowWorker::Spread)},
      {"batch", [&] { return worker->TrainBatch(); }, ticket}};
  const std::vector<std::string> ops = absl::StrSplit(flags.ops, ',');
  std::vector<Op> round;
  for (const Op& op : all) {
    if (std::count(ops.begin(), ops.end(), op.name) > 0) round.push_back(op);
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto costs, MeasureInTurn(round, flags, flags.seconds * ops.size()));

  std::vector<proto::BenchmarkResult> results;
  for (const std::string& op : ops) {
    proto::BenchmarkResult& result = results.emplace_back();
    result.set_benchmark("rows");
    result.set_op(op);
    result.set_ps(flags.job.shards);
    result.set_row_length(flags.row_job.row_length);
    result.set_table_rows(static_cast<double>(flags.row_job.rows));
    const bool unique = op == "push" || op == "pull" || op == "pushpull";
    result.set_rows(unique ? worker->unique_ids() : flags.row_job.ids);
    SetCosts(costs[op], &result);
    SetRowCosts(&result);
    if (op == "assign") continue;
    result.set_bytes(result.rows() * flags.row_job.row_length * sizeof(float));
    SetRate(&result);
  }
  return Finish(results, flags, &worker->cluster());
}

// Waits until the job trains and, if there is a load, the first pushes have
// been applied.
absl::Status AwaitLoad(const Flags& flags, Cluster* cluster) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(60);
  const uint64_t pushes = flags.job.bytes > 0 ? 3 : 0;
  for (;;) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto status, cluster->GetStatus(deadline));
    if (status.state().phase() == proto::TRAINING &&
        status.global_step() >= pushes) {
      return absl::OkStatus();
    }
    if (SteadyNow() > deadline) {
      return absl::DeadlineExceededError("the job has not begun within 60 s");
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

absl::StatusOr<Credentials> CredentialsOf(const Flags& flags,
                                          const TaskId& task) {
  if (flags.tls_dir.empty()) return Credentials();
  return Credentials::FromFolder(CertificateFolderOf(flags.tls_dir, task));
}

absl::Status Control(const Flags& flags, const ClusterSpec& spec) {
  Cluster::Options options{spec};
  auto credentials = CredentialsOf(flags, {kOperatorJob, 0});
  if (!credentials.ok()) return credentials.status();
  options.credentials = *std::move(credentials);
  options.connect_timeout = absl::Seconds(60);
  options.same_host = false;
  HOLDFAST_ASSIGN_OR_RETURN(const auto cluster,
                            Cluster::Connect(std::move(options)));
  absl::Status status = AwaitLoad(flags, cluster.get());
  if (!status.ok()) return status;
  std::vector<absl::Duration> samples;
  Schedule schedule(flags.seconds);
  while (schedule.GoOn()) {
    status = Timed(
        [&] {
          return cluster->GetStatus(SteadyNow() + absl::Seconds(60)).status();
        },
        schedule.counts() ? &samples : nullptr);
    if (!status.ok()) return status;
  }
  proto::BenchmarkResult result;
  result.set_benchmark("wire");
  result.set_op("control");
  result.set_codec(flags.job.codec);
  result.set_bytes(flags.job.bytes);
  result.set_shards(flags.job.shards);
  Summarize(std::move(samples), &result);
  return WriteResults({result}, flags.result_file);
}

absl::Status Load(const Flags& flags, BenchWorker* worker) {
  if (flags.job.bytes == 0) {
    return worker->cluster().AwaitDone(absl::InfiniteFuture());
  }
  for (;;) {
    absl::Status status = worker->TakeTicket();
    if (status.ok()) status = worker->Push();
    if (!status.ok()) return status;
  }
}

absl::Status Train(const Flags& flags, BenchWorker* worker) {
  for (;;) {
    absl::Status status;
    if (flags.job.asynchronous) {
      status = worker->TakeTicket();
      worker->PrefetchTicket();
      if (status.ok()) status = worker->PushPull();
    } else {
      status = worker->Step();
    }
    if (!status.ok()) return status;
  }
}

absl::Status Run(Flags flags) {
  flags.job.asynchronous = flags.mode == "asynchronous";
  ClusterFlags cluster;
  cluster.cluster_spec = flags.cluster_spec;
  HOLDFAST_ASSIGN_OR_RETURN(const auto spec, ResolveCluster(cluster, ""));
  if (flags.role == "control") return Control(flags, spec);
  BenchJob job = flags.job;
  job.same_host = flags.same_host != "off";
  job.bytes = std::max<uint64_t>(job.bytes, sizeof(float));
  const TaskId task = {kWorkerJob, static_cast<uint32_t>(flags.task_index)};
  HOLDFAST_ASSIGN_OR_RETURN(const auto credentials, CredentialsOf(flags, task));
  if (flags.role == "rows") {
    const auto worker =
        BenchRowWorker::Start(spec, task, credentials, flags.row_job);
    return worker.ok() ? Rows(flags, worker->get()) : worker.status();
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto worker,
                            BenchWorker::Start(spec, task, credentials, job));
  if (flags.role == "wire") return Wire(flags, worker.get());
  if (flags.role == "load") return Load(flags, worker.get());
  if (flags.role == "train") return Train(flags, worker.get());
  return absl::InvalidArgumentError(
      absl::StrCat("unknown --role=", flags.role));
}

}  // namespace

int BenchClient(const std::vector<std::string>& args) {
  TuneProcess();  // As in a worker, which is what is measured.
  Flags flags;
  FlagSet set;
  set.Add("role", "ROLE", &flags.role, "");
  set.Add("cluster_spec", "FILE", &flags.cluster_spec, "");
  set.Add("task_index", "NUMBER", &flags.task_index, "");
  set.Add("bytes", "NUMBER", &flags.job.bytes, "");
  set.Add("shards", "NUMBER", &flags.job.shards, "");
  set.Add("codec", "CODEC", &flags.job.codec, "");
  set.Add("optimizer", "NAME", &flags.job.optimizer, "");
  set.Add("row_length", "NUMBER", &flags.row_job.row_length, "");
  set.Add("rows", "NUMBER", &flags.row_job.rows, "");
  set.Add("ids", "NUMBER", &flags.row_job.ids, "");
  set.Add("zipf", "NUMBER", &flags.row_job.zipf, "");
  set.Add("mode", "MODE", &flags.mode, "");
  set.Add("ops", "LIST", &flags.ops, "");
  set.Add("seconds", "NUMBER", &flags.seconds, "");
  set.Add("same_host", "auto|off", &flags.same_host, "");
  set.Add("result_file", "FILE", &flags.result_file, "");
  set.Add("tls_dir", "FOLDER", &flags.tls_dir, "");
  absl::Status status = set.Parse(args);
  if (status.ok()) status = Run(std::move(flags));
  if (status.ok()) return kExitDone;
  std::cerr << "holdfast bench client: " << status.message() << std::endl;
  return kExitFailed;
}

}  // namespace holdfast
