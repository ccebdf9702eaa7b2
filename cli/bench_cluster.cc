// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_cluster.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/bench_report.h"
#include "cli/bench_samples.h"
#include "cli/certificate_folder.h"
#include "cli/find_program.h"
#include "cli/loopback_cluster.h"
#include "common/base/status_macros.h"
#include "common/job/task_id.h"
#include "common/rpc/identity.h"

namespace holdfast {
namespace {

constexpr int kLogLinesShown = 20;

std::string ClientName(int index) { return absl::StrCat("client-", index); }

std::string ResultPath(const RunDirectory& directory, int index) {
  return absl::StrCat(directory.path(), "/", ClientName(index), ".json");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchFolder>> ScratchFolder::Make() {
  const char* const parent = getenv("TMPDIR");
  std::string path = absl::StrCat(parent == nullptr ? "/tmp" : parent,
                                  "/holdfast-bench.XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
  }
  return std::unique_ptr<ScratchFolder>(new ScratchFolder(path));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<std::unique_ptr<BenchProcesses>> BenchProcesses::Start(
    const std::vector<LocalCluster::Program>& programs,
    const RunDirectory& directory, SignalWatch* signals) {
  HOLDFAST_ASSIGN_OR_RETURN(auto cluster,
                            LocalCluster::Start(programs, directory));
  return std::unique_ptr<BenchProcesses>(
      new BenchProcesses(std::move(cluster), directory, signals));
}

absl::Status BenchProcesses::Wait(int fd, absl::Time deadline) {
  const std::set<int> signals = signals_.Wait(fd, deadline);
  if (signals.count(SIGINT) + signals.count(SIGTERM) + signals.count(SIGHUP)) {
    return absl::CancelledError("interrupted");
  }
  for (const LocalCluster::Daemon* daemon : cluster_->Reap()) {
    if (daemon->ended->ok()) continue;
    return absl::InternalError(absl::StrCat(
        daemon->name(), " ended with ", daemon->ended->ToString(),
        ". The end of its log:\n  ",
        absl::StrReplaceAll(
            LastLines(directory_.LogPath(daemon->name()), kLogLinesShown),
            {{"\n", "\n  "}})));
  }
  return absl::OkStatus();
}

absl::Status BenchProcesses::AwaitEnd(const std::string& name) {
  const auto runs = [&] {
    for (const std::string& running : cluster_->Running()) {
      if (running == name) return true;
    }
    return false;
  };
  while (runs()) {
    HOLDFAST_RETURN_IF_ERROR(Wait(-1, absl::InfiniteFuture()));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> BenchProcesses::CpuTime() const {
  std::vector<pid_t> pids;
  for (const LocalCluster::Daemon& daemon : cluster_->daemons()) {
    if (!daemon.ended.has_value()) pids.push_back(daemon.process->pid());
  }
  return CpuTimeOf(pids);
}

void BenchPs::AddTo(FlagSet* set) {
  set->Add("ps_binary", "FILE", &binary,
           "The ps daemon. Default: ps_server next to this program, or in\n"
           "the build's output.");
  set->Add("ps_flags", "FLAGS", &flags,
           "Additional flags for each ps, separated by spaces.");
  set->Add("tls", "", &tls, "Encrypt all connections of the cluster.");
}

absl::StatusOr<std::unique_ptr<BenchCluster>> BenchCluster::Start(
    const BenchPs& ps, int num_ps, int num_workers,
    const std::vector<Client>& clients, const std::string& folder,
    SignalWatch* signals) {
  const auto binary =
      FindProgram("ps_binary", ps.binary, "ps_server", "ps_server");
  if (!binary.ok()) {
    return absl::InvalidArgumentError(binary.status().message());
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto directory, RunDirectory::Open(folder));
  auto ports = std::make_unique<HeldPorts>();
  HOLDFAST_ASSIGN_OR_RETURN(
      auto spec, ChooseLoopbackCluster(num_ps, num_workers, /*evaluator=*/false,
                                       ports.get()));
  absl::Status status = directory->WriteClusterSpec(spec.ToJson());
  if (!status.ok()) return status;
  const std::string spec_flag =
      absl::StrCat("--cluster_spec=", directory->cluster_spec_path());

  const std::string tls_path = directory->tls_path();
  absl::StatusOr<Credentials> credentials = Credentials();
  if (ps.tls) {
    CertificateFolderOptions options;
    options.path = tls_path;
    options.training = "bench";
    options.tasks = TasksWithOperator(spec);
    const auto made = MakeCertificateFolder(options);
    if (!made.ok()) return made.status();
    credentials = Credentials::FromFolder(
        CertificateFolderOf(tls_path, {kOperatorJob, 0}));
    if (!credentials.ok()) return credentials.status();
  }

  std::vector<LocalCluster::Program> programs;
  for (int i = 0; i < num_ps; ++i) {
    LocalCluster::Program& program = programs.emplace_back();
    program.name = absl::StrCat("ps-", i);
    program.binary = *binary;
    program.args = {absl::StrCat("--job_name=", kPsJob),
                    absl::StrCat("--task_index=", i), spec_flag};
    if (ps.tls) {
      const uint32_t index = i;
      program.args.push_back(absl::StrCat(
          "--tls_dir=", CertificateFolderOf(tls_path, {kPsJob, index})));
    }
    for (auto& flag : absl::StrSplit(ps.flags, ' ', absl::SkipWhitespace())) {
      program.args.emplace_back(flag);
    }
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    LocalCluster::Program& program = programs.emplace_back();
    program.name = ClientName(i);
    program.binary = ThisProgram();
    const std::string result = ResultPath(*directory, i);
    program.args = {"bench", "client", spec_flag,
                    absl::StrCat("--result_file=", result)};
    if (ps.tls) program.args.push_back(absl::StrCat("--tls_dir=", tls_path));
    program.args.insert(program.args.end(), clients[i].begin(),
                        clients[i].end());
    // Removes the result of the previous run.
    unlink(result.c_str());
  }
  std::unique_ptr<BenchCluster> cluster(
      new BenchCluster(std::move(spec), *std::move(credentials),
                       std::move(directory), std::move(ports)));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto processes,
      BenchProcesses::Start(programs, *cluster->directory_, signals));
  cluster->processes_ = std::move(processes);
  return cluster;
}

absl::StatusOr<std::vector<proto::BenchmarkResult>> BenchCluster::AwaitResults(
    int index) {
  absl::Status status = processes_->AwaitEnd(ClientName(index));
  if (!status.ok()) return status;
  const std::string path = ResultPath(*directory_, index);
  std::ifstream file(path);
  std::vector<proto::BenchmarkResult> results;
  for (std::string line; std::getline(file, line);) {
    HOLDFAST_ASSIGN_OR_RETURN(auto result, ParseBenchJson(line));
    results.push_back(std::move(result));
  }
  if (!results.empty()) return results;
  return absl::InternalError(absl::StrCat(path, " has no results"));
}

}  // namespace holdfast
