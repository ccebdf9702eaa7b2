#include "cli/local_run.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "cli/free_ports.h"
#include "cli/local_cluster.h"
#include "cli/progress.h"
#include "cli/run_directory.h"
#include "cli/signal_watch.h"
#include "cli/status_watch.h"
#include "cli/summary.h"
#include "common/cluster_spec.h"
#include "common/daemon.h"
#include "common/task_id.h"

namespace holdfast {
namespace {

constexpr int kExitInterrupted = 128 + SIGINT;
constexpr int kLogLinesShown = 20;

std::string DaemonName(const TaskId& task) {
  return absl::StrCat(task.job, "-", task.index);
}

// The worker that evaluates, and ends last among the workers.
const TaskId kChief = {kWorkerJob, 0};

absl::StatusOr<ClusterSpec> ChooseCluster(int ps, int workers) {
  const auto random_start = static_cast<uint16_t>(
      kFirstPort + std::random_device()() % (kLastPort - kFirstPort + 1));
  const auto ports =
      FindFreePorts(ps + workers, random_start, LoopbackPortIsFree);
  if (!ports.ok()) return ports.status();
  std::vector<std::string> addresses;
  for (const uint16_t port : *ports) {
    addresses.push_back(absl::StrCat("127.0.0.1:", port));
  }
  const auto first_worker = addresses.begin() + ps;
  return ClusterSpec::FromHosts(
      absl::StrJoin(addresses.begin(), first_worker, ","),
      absl::StrJoin(first_worker, addresses.end(), ","), "");
}

LocalCluster::Program ProgramFor(const TaskId& task,
                                 const LocalRunOptions& options,
                                 const RunDirectory& directory) {
  const bool is_ps = task.job == kPsJob;
  LocalCluster::Program program;
  program.name = DaemonName(task);
  program.binary = is_ps ? options.ps_binary : options.worker_binary;
  program.args = {
      absl::StrCat("--job_name=", task.job),
      absl::StrCat("--task_index=", task.index),
      absl::StrCat("--cluster_spec=", directory.cluster_spec_path())};
  if (!is_ps) program.args.push_back(absl::StrCat("--job=", options.job_file));
  if (task == kChief) {
    program.args.push_back(
        absl::StrCat("--result_file=", directory.result_path()));
  }
  const auto& flags = is_ps ? options.ps_flags : options.worker_flags;
  program.args.insert(program.args.end(), flags.begin(), flags.end());
  return program;
}

Progress::Options ProgressOptions() {
  Progress::Options options;
  options.terminal = isatty(STDOUT_FILENO);
  winsize size = {};
  if (options.terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
      size.ws_col > 0) {
    options.width = size.ws_col;
  }
  return options;
}

// One run, from its first daemon to the end of its last.
class LocalRun {
 public:
  LocalRun(const LocalRunOptions& options, RunDirectory* directory,
           SignalWatch* signals, LocalCluster* cluster, StatusWatch* status)
      : options_(options),
        directory_(*directory),
        signals_(*signals),
        cluster_(*cluster),
        status_(*status),
        progress_(ProgressOptions()) {}

  int Run() {
    while (!cluster_.Running().empty()) {
      const std::set<int> signals = signals_.Wait(status_.fd(), drain_until_);
      ShowProgress();
      if (signals.count(SIGINT) + signals.count(SIGTERM) +
          signals.count(SIGHUP)) {
        return Interrupted();
      }
      for (const LocalCluster::Daemon* daemon : cluster_.Reap()) {
        if (!daemon->ended->ok()) return DaemonDied(*daemon);
        if (daemon->name == DaemonName(kChief)) {
          drain_until_ = absl::Now() + options_.drain_timeout;
        }
      }
      if (absl::Now() >= drain_until_ && !cluster_.Running().empty()) {
        return DaemonsStay();
      }
    }
    return Done();
  }

 private:
  void ShowProgress() {
    if (auto status = status_.Take()) {
      last_status_ = *std::move(status);
      std::cout << progress_.Update(last_status_, absl::Now()) << std::flush;
    }
  }

  int Done() {
    std::cout << progress_.Finish() << std::flush;
    std::ifstream file(directory_.result_path());
    std::stringstream content;
    content << file.rdbuf();
    const absl::StatusOr<std::string> summary = SummaryOf(content.str());
    if (!file || !summary.ok()) {
      std::cerr << "holdfast: all daemons have ended well, but "
                << directory_.result_path() << " is not there, or wrong"
                << std::endl;
      return kExitFailed;
    }
    std::cout << *summary << "  result         " << directory_.result_path()
              << std::endl;
    return kExitDone;
  }

  int Interrupted() {
    std::cout << progress_.Finish() << std::flush;
    std::cerr << "holdfast: interrupted; ending "
              << absl::StrJoin(cluster_.Running(), ", ") << std::endl;
    StopAll();
    return kExitInterrupted;
  }

  int DaemonDied(const LocalCluster::Daemon& daemon) {
    std::cout << progress_.Finish() << std::flush;
    const std::string log = directory_.LogPath(daemon.name);
    std::cerr << "holdfast: " << daemon.name << " (pid "
              << daemon.process->pid() << ") ended with "
              << daemon.ended->ToString() << ". Its last words, of " << log
              << ":\n  "
              << absl::StrReplaceAll(LastLines(log, kLogLinesShown),
                                     {{"\n", "\n  "}})
              << std::endl;
    StopAll();
    return kExitFailed;
  }

  int DaemonsStay() {
    std::cout << progress_.Finish() << std::flush;
    std::cerr << "holdfast: the job is done, but "
              << absl::StrJoin(cluster_.Running(), ", ") << " did not end in "
              << options_.drain_timeout << "; see the logs in "
              << directory_.path() << std::endl;
    cluster_.Signal(SIGKILL);
    StopAll();
    return kExitFailed;
  }

  // Asks all to end, kills those that do not (at once when the user insists),
  // and waits until they have gone.
  void StopAll() {
    cluster_.Signal(SIGTERM);
    absl::Time kill_at = absl::Now() + options_.stop_timeout;
    for (cluster_.Reap(); !cluster_.Running().empty(); cluster_.Reap()) {
      const std::set<int> signals = signals_.Wait(-1, kill_at);
      if (signals.count(SIGINT) != 0) kill_at = absl::Now();
      if (absl::Now() >= kill_at) {
        cluster_.Signal(SIGKILL);
        kill_at = absl::InfiniteFuture();
      }
    }
  }

  const LocalRunOptions& options_;
  const RunDirectory& directory_;
  SignalWatch& signals_;
  LocalCluster& cluster_;
  StatusWatch& status_;
  Progress progress_;
  proto::GetStatusResponse last_status_;
  // When the daemons that still run must have ended.
  absl::Time drain_until_ = absl::InfiniteFuture();
};

int Refuse(const absl::Status& status, int exit_code) {
  std::cerr << "holdfast: " << status.message() << std::endl;
  return exit_code;
}

}  // namespace

int RunLocally(const LocalRunOptions& options) {
  // Before there is a child to tell of, or a second thread.
  SignalWatch signals;
  const auto directory = RunDirectory::Open(options.run_dir);
  if (!directory.ok()) return Refuse(directory.status(), kExitUsage);
  const absl::StatusOr<ClusterSpec> spec =
      ChooseCluster(options.ps, options.workers);
  if (!spec.ok()) return Refuse(spec.status(), kExitFailed);
  absl::Status status = (*directory)->WriteClusterSpec(spec->ToJson());
  if (!status.ok()) return Refuse(status, kExitFailed);

  std::vector<LocalCluster::Program> programs;
  for (const auto& [job, tasks] : spec->jobs()) {
    for (const auto& [index, address] : tasks) {
      programs.push_back(ProgramFor({job, index}, options, **directory));
    }
  }
  std::cout << options.job_name << ": " << options.ps << " ps and "
            << options.workers << " workers; logs and result are in "
            << options.run_dir << std::endl;

  const auto cluster = LocalCluster::Start(programs, **directory);
  if (!cluster.ok()) return Refuse(cluster.status(), kExitFailed);
  // Has a thread, so not before the children have been started.
  StatusWatch watch(*spec, options.status_period);
  return LocalRun(options, directory->get(), &signals, cluster->get(), &watch)
      .Run();
}

}  // namespace holdfast
