#include "cli/local_run.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/certificate_folder.h"
#include "cli/local_cluster.h"
#include "cli/loopback_cluster.h"
#include "cli/progress.h"
#include "cli/restarts.h"
#include "cli/run_directory.h"
#include "cli/signal_watch.h"
#include "cli/status_watch.h"
#include "cli/summary.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/clock.h"
#include "common/cluster_spec.h"
#include "common/daemon.h"
#include "common/rpc/credentials.h"
#include "common/rpc/identity.h"
#include "common/task_id.h"

namespace holdfast {
namespace {

constexpr int kLogLinesShown = 20;
// When those that are told to stop have taken so long, those that they may wait
// for are told as well.
constexpr absl::Duration kStagePatience = absl::Seconds(3);

std::string DaemonName(const TaskId& task) {
  return absl::StrCat(task.job, "-", task.index);
}

// The worker that evaluates, and ends last among the workers.
const TaskId kChief = {kWorkerJob, 0};

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
  if (options.tls) {
    program.args.push_back(absl::StrCat(
        "--tls_dir=", CertificateFolderOf(directory.tls_path(), task)));
  }
  if (!is_ps) {
    program.args.push_back(absl::StrCat("--job=", options.job_file));
    // The chief's to write, or another's in its place.
    program.args.push_back(
        absl::StrCat("--result_file=", directory.result_path()));
  } else if (!options.checkpoint_dir.empty()) {
    program.args.push_back(
        absl::StrCat("--checkpoint_dir=", options.checkpoint_dir));
  }
  const auto& flags = is_ps ? options.ps_flags : options.worker_flags;
  program.args.insert(program.args.end(), flags.begin(), flags.end());
  return program;
}

ProgressDisplay::Options ProgressOptions() {
  ProgressDisplay::Options options;
  options.terminal = isatty(STDOUT_FILENO);
  winsize size = {};
  if (options.terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
      size.ws_col > 0) {
    options.width = size.ws_col;
  }
  return options;
}

// Errors: NOT_FOUND where nothing was saved; those of ReadJournal.
absl::StatusOr<proto::Journal> JournalOf(const LocalRunOptions& options) {
  if (options.checkpoint_dir.empty()) {
    return absl::NotFoundError("there are no checkpoints");
  }
  const auto directory = CheckpointDirectory::OpenToRead(options.checkpoint_dir,
                                                         PosixFileSystem());
  if (!directory.ok()) return directory.status();
  return directory->ReadJournal();
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
    while (!cluster_.Running().empty() || !restart_at_.empty()) {
      const std::set<int> signals = signals_.Wait(status_.fd(), NextDeadline());
      ShowProgress();
      if (signals.count(SIGINT) + signals.count(SIGTERM) +
          signals.count(SIGHUP)) {
        return Interrupted();
      }
      for (const LocalCluster::Daemon* daemon : cluster_.Reap()) {
        if (const auto code = DaemonEnded(*daemon)) return *code;
      }
      if (const auto code = RestartDaemons()) return *code;
      if (SteadyNow() >= drain_until_ && !cluster_.Running().empty()) {
        return DaemonsStay();
      }
    }
    return TellResult();
  }

 private:
  bool JobIsDone() const { return drain_until_ < absl::InfiniteFuture(); }

  absl::Time NextDeadline() const {
    absl::Time next = drain_until_;
    for (const auto& [name, when] : restart_at_) next = std::min(next, when);
    return next;
  }

  // A line of its own.
  void Say(const std::string& line) {
    std::cout << progress_.Finish() << line << std::endl;
  }

  // The exit code, where this ends the run.
  std::optional<int> DaemonEnded(const LocalCluster::Daemon& daemon) {
    const std::string& name = daemon.name();
    if (daemon.ended->ok()) {
      if (name != DaemonName(kChief)) return std::nullopt;
      drain_until_ = SteadyNow() + options_.drain_timeout;
      restart_at_.clear();
      return std::nullopt;
    }
    if (!options_.restarts.has_value() || !WorthRestarting(*daemon.ended)) {
      return DaemonDied(daemon);
    }
    const std::string ended =
        absl::StrCat(name, " (pid ", daemon.process->pid(), ") ended with ",
                     daemon.ended->ToString());
    if (JobIsDone()) {
      Say(absl::StrCat(ended, ", when the job was done"));
      return std::nullopt;
    }
    Restarts& restarts =
        restarts_.try_emplace(name, *options_.restarts).first->second;
    const absl::Time now = SteadyNow();
    const auto when = restarts.Next(daemon.started, now);
    if (!when.has_value()) return DaemonDied(daemon);
    restart_at_[name] = *when;
    Say(absl::StrCat(ended, "; starts again in ",
                     absl::FormatDuration(*when - now), " (", restarts.count(),
                     " of ", options_.restarts->most, ")"));
    return std::nullopt;
  }

  // Those whose time has come.
  std::optional<int> RestartDaemons() {
    for (auto next = restart_at_.begin(); next != restart_at_.end();) {
      if (SteadyNow() < next->second) {
        ++next;
        continue;
      }
      if (absl::Status status = cluster_.Restart(next->first); !status.ok()) {
        std::cerr << progress_.Finish() << "holdfast: " << status.message()
                  << std::endl;
        StopAll();
        return kExitFailed;
      }
      next = restart_at_.erase(next);
    }
    return std::nullopt;
  }

  void ShowProgress() {
    if (auto status = status_.Take()) {
      last_status_ = *std::move(status);
      std::cout << progress_.Update(last_status_, SteadyNow()) << std::flush;
    }
  }

  int TellResult() {
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
    SayHowToGoOn();
    return kExitInterrupted;
  }

  // Of a job that was stopped before its end, once all daemons have ended.
  void SayHowToGoOn() const {
    const absl::StatusOr<proto::Journal> journal = JournalOf(options_);
    if (!journal.ok()) {
      std::cerr << "holdfast: nothing was saved ("
                << (options_.checkpoint_dir.empty() ? "--checkpoint_dir=none"
                                                    : "the job had not begun")
                << "); to begin again:";
    } else if (journal->checkpoints().empty()) {
      std::cerr << "holdfast: no step was saved; to begin again:";
    } else {
      std::cerr << "holdfast: step " << journal->checkpoints().rbegin()->step()
                << " is saved; to go on from there:";
    }
    std::cerr << "\n  " << options_.resume_command << std::endl;
  }

  int DaemonDied(const LocalCluster::Daemon& daemon) {
    std::cout << progress_.Finish() << std::flush;
    const std::string log = directory_.LogPath(daemon.name());
    const auto restarts = restarts_.find(daemon.name());
    std::cerr << "holdfast: " << daemon.name() << " (pid "
              << daemon.process->pid() << ") ended with "
              << daemon.ended->ToString();
    if (restarts != restarts_.end()) {
      std::cerr << ", after " << restarts->second.count() << " restarts";
    }
    std::cerr << ". Its last words, of " << log << ":\n  "
              << absl::StrReplaceAll(LastLines(log, kLogLinesShown),
                                     {{"\n", "\n  "}})
              << std::endl;
    StopAll();
    if (daemon.ended->code == kExitUsage) return kExitUsage;
    if (WorthRestarting(*daemon.ended)) SayHowToGoOn();
    return kExitFailed;
  }

  int DaemonsStay() {
    std::cout << progress_.Finish() << std::flush;
    std::cerr << "holdfast: the job is done, but "
              << absl::StrJoin(cluster_.Running(), ", ") << " did not end in "
              << options_.drain_timeout << "; see the logs in "
              << directory_.path() << std::endl;
    cluster_.Signal(SIGKILL, cluster_.Running());
    StopAll();
    return kExitFailed;
  }

  // Asks all to end, kills those that do not (at once when the user insists),
  // and waits until they have gone. The workers are asked first, and the
  // coordinator last: whoever leaves says so to it.
  void StopAll() {
    // Without one ps the others cannot save the job.
    absl::Time kill_at =
        SteadyNow() + (APsHasEnded()
                           ? std::min(options_.stop_timeout, kStagePatience)
                           : options_.stop_timeout);
    std::vector<std::string> workers, ps, coordinator;
    for (const std::string& name : cluster_.Running()) {
      const bool is_ps = absl::StartsWith(name, kPsJob);
      (name == DaemonName({kPsJob, 0}) ? coordinator
       : is_ps                         ? ps
                                       : workers)
          .push_back(name);
    }
    for (const auto& stage : {workers, ps, coordinator}) {
      cluster_.Signal(SIGTERM, stage);
      const absl::Time next_at = SteadyNow() + kStagePatience;
      while (AnyRuns(stage) && SteadyNow() < std::min(next_at, kill_at)) {
        AwaitEnds(std::min(next_at, kill_at), &kill_at);
      }
    }
    while (!cluster_.Running().empty() && SteadyNow() < kill_at) {
      AwaitEnds(kill_at, &kill_at);
    }
    cluster_.Signal(SIGKILL, cluster_.Running());
    while (!cluster_.Running().empty()) {
      AwaitEnds(absl::InfiniteFuture(), &kill_at);
    }
  }

  // Until some daemon has ended, or `until`. The user's signal is the time to
  // kill.
  void AwaitEnds(absl::Time until, absl::Time* kill_at) {
    if (signals_.Wait(-1, until).count(SIGINT) != 0) *kill_at = SteadyNow();
    cluster_.Reap();
  }

  bool APsHasEnded() const {
    const auto& daemons = cluster_.daemons();
    return std::any_of(daemons.begin(), daemons.end(), [](const auto& daemon) {
      return daemon.ended.has_value() &&
             absl::StartsWith(daemon.name(), kPsJob);
    });
  }

  bool AnyRuns(const std::vector<std::string>& names) const {
    const std::vector<std::string> running = cluster_.Running();
    return std::any_of(
        names.begin(), names.end(), [&](const std::string& name) {
          return std::count(running.begin(), running.end(), name) > 0;
        });
  }

  const LocalRunOptions& options_;
  const RunDirectory& directory_;
  SignalWatch& signals_;
  LocalCluster& cluster_;
  StatusWatch& status_;
  ProgressDisplay progress_;
  proto::GetStatusResponse last_status_;
  // By name, of daemons that have ended once too early.
  std::map<std::string, Restarts> restarts_;
  // Those of them that do not run.
  std::map<std::string, absl::Time> restart_at_;
  // When the daemons that still run must have ended: the job is done.
  absl::Time drain_until_ = absl::InfiniteFuture();
};

// Whether the checkpoints are those of this job's end. Those of another job are
// for the coordinator to refuse.
bool FinishedBefore(const LocalRunOptions& options) {
  const absl::StatusOr<proto::Journal> journal = JournalOf(options);
  return journal.ok() && journal->finished() &&
         journal->job_digest() == options.job_digest;
}

int SayFinished(const LocalRunOptions& options) {
  const std::string result = options.run_dir + "/result.json";
  std::cout << options.job_name << ": was done before, and is not run again. ";
  if (std::ifstream(result).good()) {
    std::cout << "Its result is in " << result << ". ";
  }
  std::cout << "`holdfast checkpoint inspect " << options.checkpoint_dir
            << "` tells of its last checkpoint. To train anew, give another "
            << "--run_dir"
            << (options.checkpoint_dir == options.run_dir + "/checkpoints"
                    ? ""
                    : " and --checkpoint_dir")
            << std::endl;
  return kExitDone;
}

// Errors: ALREADY_EXISTS where a run has left a result, which is kept.
absl::Status CheckHasNoResult(const RunDirectory& directory) {
  if (!std::ifstream(directory.result_path()).good()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      directory.path(), " holds the result of a finished run, ",
      directory.result_path(), ", which is kept: give another --run_dir"));
}

// Those of an operator; makes certificates for all tasks, too.
absl::StatusOr<Credentials> MakeCredentials(const ClusterSpec& cluster,
                                            const RunDirectory& directory) {
  CertificateFolderOptions options;
  options.path = directory.tls_path();
  options.training = "local";
  options.tasks = TasksWithOperator(cluster);
  options.renew = true;
  const auto made = MakeCertificateFolder(options);
  if (!made.ok()) return made.status();
  return Credentials::FromFolder(
      CertificateFolderOf(options.path, {kOperatorJob, 0}));
}

int Refuse(const absl::Status& status, int exit_code) {
  std::cerr << "holdfast: " << status.message() << std::endl;
  return exit_code;
}

}  // namespace

int RunLocally(const LocalRunOptions& options) {
  if (FinishedBefore(options)) return SayFinished(options);
  // Before there is a child to tell of, or a second thread.
  SignalWatch signals;
  const auto directory = RunDirectory::Open(options.run_dir);
  if (!directory.ok()) return Refuse(directory.status(), kExitUsage);
  absl::Status status = CheckHasNoResult(**directory);
  if (!status.ok()) return Refuse(status, kExitUsage);
  const absl::StatusOr<ClusterSpec> spec =
      ChooseLoopbackCluster(options.ps, options.workers);
  if (!spec.ok()) return Refuse(spec.status(), kExitFailed);
  status = (*directory)->WriteClusterSpec(spec->ToJson());
  if (!status.ok()) return Refuse(status, kExitFailed);
  absl::StatusOr<Credentials> credentials = Credentials();
  if (options.tls) credentials = MakeCredentials(*spec, **directory);
  if (!credentials.ok()) return Refuse(credentials.status(), kExitFailed);

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
  StatusWatch watch(*spec, *credentials, options.status_period);
  return LocalRun(options, directory->get(), &signals, cluster->get(), &watch)
      .Run();
}

}  // namespace holdfast
