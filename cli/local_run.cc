// SPDX-License-Identifier: Apache-2.0
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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/certificate_folder.h"
#include "cli/free_ports.h"
#include "cli/local_cluster.h"
#include "cli/local_workers.h"
#include "cli/log_follower.h"
#include "cli/loopback_cluster.h"
#include "cli/printable_output.h"
#include "cli/progress.h"
#include "cli/restarts.h"
#include "cli/run_directory.h"
#include "cli/signal_watch.h"
#include "cli/status_watch.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/job/cluster_spec.h"
#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "common/process/daemon.h"
#include "common/rpc/credentials.h"
#include "common/rpc/identity.h"

namespace holdfast {
namespace {

const TaskId kEvaluator = {kEvaluatorJob, 0};

constexpr int kLogLinesShown = 20;
// When tasks that were told to stop have taken this long, the tasks for which
// they may be waiting are told to stop as well.
constexpr absl::Duration kStagePatience = absl::Seconds(3);
// How long to wait for other daemons when one has failed.
constexpr absl::Duration kCausePatience = absl::Seconds(1);

LocalCluster::Program PsProgram(const TaskId& ps,
                                const LocalRunOptions& options,
                                const LocalWorkers::Folders& folders,
                                const RunDirectory& directory) {
  LocalCluster::Program program;
  program.name = DaemonName(ps);
  program.binary = options.ps_binary;
  program.args = {
      absl::StrCat("--job_name=", ps.job),
      absl::StrCat("--task_index=", ps.index),
      absl::StrCat("--cluster_spec=", directory.cluster_spec_path())};
  if (!folders.tls.empty()) {
    program.args.push_back(absl::StrCat("--tls_dir=", folders.tls));
  }
  if (!folders.same_host.empty()) {
    program.args.push_back(absl::StrCat("--same_host_dir=", folders.same_host));
  }
  if (!options.checkpoint_dir.empty()) {
    program.args.push_back(
        absl::StrCat("--checkpoint_dir=", options.checkpoint_dir));
  }
  if (ps.index == 0 && options.status_port.has_value()) {
    program.args.push_back(
        absl::StrCat("--status_port=", *options.status_port));
  }
  program.args.insert(program.args.end(), options.ps_flags.begin(),
                      options.ps_flags.end());
  return program;
}

LocalCluster::Program ProgramFor(const TaskId& task, const ClusterSpec& cluster,
                                 const LocalRunOptions& options,
                                 const RunDirectory& directory) {
  LocalWorkers::Folders folders;
  if (options.tls)
    folders.tls = CertificateFolderOf(directory.tls_path(), task);
  if (task == kEvaluator) folders.checkpoints = options.checkpoint_dir;
  if (options.collocated && task != kEvaluator)
    folders.same_host = directory.HostPath(task.index);
  return task.job == kPsJob
             ? PsProgram(task, options, folders, directory)
             : options.kind->ProgramFor(task, cluster, folders, directory);
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

// Errors: NOT_FOUND if nothing was saved; those of ReadJournal.
absl::StatusOr<proto::Journal> JournalOf(const LocalRunOptions& options) {
  if (options.checkpoint_dir.empty()) {
    return absl::NotFoundError("there are no checkpoints");
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto directory,
                            CheckpointDirectory::OpenToRead(
                                options.checkpoint_dir, PosixFileSystem()));
  return directory.ReadJournal();
}

// One run, from the start of its first daemon to the end of its last.
class LocalRun {
 public:
  LocalRun(const LocalRunOptions& options, const ClusterSpec& spec,
           RunDirectory* directory, SignalWatch* signals, LocalCluster* cluster,
           std::optional<LogFollower> output, StatusWatch* status)
      : options_(options),
        directory_(*directory),
        signals_(*signals),
        cluster_(*cluster),
        output_(std::move(output)),
        status_(*status),
        progress_(ProgressOptions()) {
    for (const TaskId& worker : options.kind->Awaited(spec)) {
      awaited_.insert(DaemonName(worker));
      tasks_[DaemonName(worker)] = worker;
    }
  }

  int Run() {
    while (!cluster_.Running().empty() || !restart_at_.empty()) {
      const std::set<int> signals = signals_.Wait(status_.fd(), NextDeadline());
      ShowProgress();
      ShowOutput();
      if (signals.count(SIGINT) + signals.count(SIGTERM) +
          signals.count(SIGHUP)) {
        return Interrupted();
      }
      for (const LocalCluster::Daemon* daemon : cluster_.Reap()) {
        if (const auto code = DaemonEnded(*daemon)) return *code;
      }
      if (const auto code = RestartDaemons()) return *code;
      if (cluster_.Running().empty()) continue;
      if (unfinished_ > 1) return JobIsNotDone(awaited_);
      if (!missed_.empty()) return JobIsNotDone(missed_);
      if (SteadyNow() >= drain_until_ && !EvaluatorRuns()) return DaemonsStay();
    }
    return TellResult();
  }

 private:
  // Whether all awaited workers, or all ps, have ended successfully.
  bool JobIsDone() const {
    return drain_until_ < absl::InfiniteFuture() || PsHaveEndedWell();
  }

  bool PsHaveEndedWell() const {
    const auto& daemons = cluster_.daemons();
    return std::all_of(daemons.begin(), daemons.end(), [](const auto& daemon) {
      return !IsPs(daemon.name()) || HasEndedWell(daemon);
    });
  }

  bool AwaitedHaveEndedWell() const {
    const auto& daemons = cluster_.daemons();
    return std::all_of(daemons.begin(), daemons.end(), [&](const auto& daemon) {
      return awaited_.count(daemon.name()) == 0 || HasEndedWell(daemon);
    });
  }

  static bool HasEndedWell(const LocalCluster::Daemon& daemon) {
    return daemon.ended.has_value() && daemon.ended->ok();
  }

  static bool IsPs(const std::string& name) {
    return absl::StartsWith(name, kPsJob);
  }

  // Whether the evaluator is still running. The ps wait for it, for as long as
  // a step may take.
  bool EvaluatorRuns() const {
    const std::vector<std::string> running = cluster_.Running();
    return std::count(running.begin(), running.end(), DaemonName(kEvaluator)) >
           0;
  }

  absl::Time NextDeadline() const {
    absl::Time next = EvaluatorRuns() ? absl::InfiniteFuture() : drain_until_;
    if (output_.has_value()) next = SteadyNow() + options_.status_period;
    for (const auto& [name, when] : restart_at_) next = std::min(next, when);
    return next;
  }

  // Prints a line of its own.
  void Say(const std::string& line) {
    std::cout << progress_.Finish() << line << std::endl;
  }

  // Returns the exit code if this ends the run.
  std::optional<int> DaemonEnded(const LocalCluster::Daemon& daemon) {
    const std::string& name = daemon.name();
    if (daemon.ended->ok()) {
      if (IsPs(name) && PsHaveEndedWell()) {
        EndLateWorkers();
        cluster_.Signal(SIGTERM, {DaemonName(kEvaluator)});
      }
      if (drain_until_ < absl::InfiniteFuture() || !AwaitedHaveEndedWell()) {
        return std::nullopt;
      }
      drain_until_ = SteadyNow() + options_.drain_timeout;
      restart_at_.clear();
      return std::nullopt;
    }
    if (name == DaemonName(kEvaluator)) return EvaluatorEnded(daemon);
    if (!options_.restarts.has_value() || !WorthRestarting(*daemon.ended)) {
      return DaemonDied(daemon);
    }
    const std::string ended = EndOf(daemon);
    if (JobIsDone()) {
      late_.insert(name);
      Say(absl::StrCat(ended, ", after the job was done"));
      return std::nullopt;
    }
    Restarts& restarts =
        restarts_.try_emplace(name, *options_.restarts).first->second;
    const absl::Time now = SteadyNow();
    const auto when = restarts.Next(daemon.started, now);
    if (!when.has_value()) return DaemonDied(daemon);
    restart_at_[name] = *when;
    Say(absl::StrCat(ended, "; restarts in ", absl::FormatDuration(*when - now),
                     " (", restarts.count(), " of ", options_.restarts->most,
                     ")"));
    return std::nullopt;
  }

  // The job goes on without the evaluator, unless it was called wrongly.
  std::optional<int> EvaluatorEnded(const LocalCluster::Daemon& daemon) {
    if (daemon.ended->code == kExitUsage) return DaemonDied(daemon);
    const std::string ended = EndOf(daemon);
    if (JobIsDone()) {
      Say(absl::StrCat(ended, ", after the job was done"));
      return std::nullopt;
    }
    const Restarts::Options often =
        options_.restarts.value_or(Restarts::Options());
    Restarts& restarts =
        restarts_.try_emplace(daemon.name(), often).first->second;
    const absl::Time now = SteadyNow();
    const auto when = WorthRestarting(*daemon.ended)
                          ? restarts.Next(daemon.started, now)
                          : std::nullopt;
    if (when.has_value()) restart_at_[daemon.name()] = *when;
    Say(absl::StrCat(
        ended,
        when.has_value()
            ? absl::StrCat("; restarts in ", absl::FormatDuration(*when - now))
            : absl::StrCat("; the job goes on without it: see ",
                           directory_.LogPath(daemon.name()))));
    return std::nullopt;
  }

  // Restarts the daemons that are due.
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
      incarnation_at_restart_[next->first] = LastIncarnationOf(next->first);
      next = restart_at_.erase(next);
    }
    return std::nullopt;
  }

  // The incarnation last reported; 0 for a task that has not joined.
  uint64_t LastIncarnationOf(const std::string& name) const {
    for (const proto::TaskStatus& task : last_status_.tasks()) {
      const TaskId id = {task.task().job(), task.task().index()};
      if (DaemonName(id) == name) return task.incarnation();
    }
    return 0;
  }

  // Once the job is done and the ps have exited: ends the workers that were
  // restarted and have not joined since, because they never will.
  void EndLateWorkers() {
    for (const auto& [name, when] : restart_at_) late_.insert(name);
    restart_at_.clear();
    std::vector<std::string> waiting;
    for (const std::string& name : cluster_.Running()) {
      const auto restarted = incarnation_at_restart_.find(name);
      if (restarted != incarnation_at_restart_.end() &&
          restarted->second == LastIncarnationOf(name)) {
        late_.insert(name);
        waiting.push_back(name);
      }
    }
    cluster_.Signal(SIGTERM, waiting);
  }

  void ShowProgress() {
    if (auto status = status_.Take()) {
      last_status_ = *std::move(status);
      std::cout << Verbatim{progress_.Update(last_status_, SteadyNow())}
                << std::flush;
      const proto::JobPhase phase = last_status_.state().phase();
      if (!IsEnd(phase)) JudgeLeavers();
      if (drain_until_ < absl::InfiniteFuture() && !IsOrderlyEnd(phase)) {
        ++unfinished_;
      }
    }
  }

  // Tells of workers that have ended successfully before the job was done, as
  // the last status says, and finds those that the job waits for, in vain.
  void JudgeLeavers() {
    // The run ends if all have.
    if (drain_until_ < absl::InfiniteFuture()) return;
    for (const LocalCluster::Daemon& daemon : cluster_.daemons()) {
      const std::string& name = daemon.name();
      if (awaited_.count(name) == 0 || !HasEndedWell(daemon)) continue;
      const int answers = ++answers_since_[name];
      // The first may have been sent before the worker ended.
      if (answers < 2) continue;
      const std::string task = absl::StrCat(tasks_.at(name).ToString(), " (");
      if (absl::StrContains(last_status_.waiting_for(), task)) {
        missed_.insert(name);
      }
      if (answers > 2) continue;
      Say(absl::StrCat(EndOf(daemon), ", but the job is not done: ",
                       progress_.Line(last_status_),
                       "; to end the job for all, a script calls finish()"));
    }
  }

  void ShowOutput() {
    if (!output_.has_value()) return;
    std::cout << Verbatim{progress_.Between(output_->NewLines())} << std::flush;
  }

  // Called before the last output of the run.
  void FinishOutput() {
    ShowOutput();
    std::cout << progress_.Finish();
    if (output_.has_value()) std::cout << Verbatim{output_->Rest()};
    std::cout << std::flush;
  }

  int TellResult() {
    FinishOutput();
    const absl::StatusOr<proto::Journal> journal = JournalOf(options_);
    if (WasStopped()) return TellStopped(journal);
    for (const LocalCluster::Daemon& daemon : cluster_.daemons()) {
      if (awaited_.count(daemon.name()) == 0 || HasEndedWell(daemon)) continue;
      // The other workers have done its part, except for what only the chief
      // does.
      const bool is_chief = daemon.name() == DaemonName({kWorkerJob, 0});
      if (late_.count(daemon.name()) > 0 && !is_chief) continue;
      std::cerr << "holdfast: the job is done, but " << EndOf(daemon)
                << std::endl;
      return kExitFailed;
    }
    const absl::StatusOr<std::string> summary =
        options_.kind->Summary(directory_, journal);
    if (!summary.ok()) {
      std::cerr << "holdfast: " << summary.status().message() << std::endl;
      return kExitFailed;
    }
    std::cout << *summary << std::flush;
    return kExitDone;
  }

  // Whether an operator has stopped the job, according to the last line of ps
  // 0's log, because its last status may not have been received.
  bool WasStopped() const {
    if (!PsHaveEndedWell()) return false;
    return absl::StrContains(
        LastLines(directory_.LogPath(DaemonName({kPsJob, 0})), 1),
        "ends: the job was stopped");
  }

  int TellStopped(const absl::StatusOr<proto::Journal>& journal) const {
    std::cout << "holdfast: the job was stopped";
    if (!journal.ok() || journal->checkpoints().empty()) {
      std::cout << ", and no step was saved; to start again:";
    } else {
      std::cout << "; step " << journal->checkpoints().rbegin()->step()
                << " is saved; to go on from there:";
    }
    std::cout << "\n  " << options_.resume_command << std::endl;
    return kExitDone;
  }

  int Interrupted() {
    FinishOutput();
    std::cerr << "holdfast: interrupted; ending "
              << absl::StrJoin(cluster_.Running(), ", ") << std::endl;
    StopAll();
    SayHowToGoOn();
    return kExitInterrupted;
  }

  // For a job that was stopped before its end, once all daemons have ended.
  void SayHowToGoOn() const {
    const absl::StatusOr<proto::Journal> journal = JournalOf(options_);
    if (!journal.ok()) {
      std::cerr << "holdfast: nothing was saved ("
                << (options_.checkpoint_dir.empty() ? "--checkpoint_dir=none"
                                                    : "the job had not started")
                << "); to start again:";
    } else if (journal->checkpoints().empty()) {
      std::cerr << "holdfast: no step was saved; to start again:";
    } else {
      std::cerr << "holdfast: step " << journal->checkpoints().rbegin()->step()
                << " is saved; to go on from there:";
    }
    std::cerr << "\n  " << options_.resume_command << std::endl;
  }

  // Such as "worker-0 (pid 7) ended with exit status 1".
  static std::string EndOf(const LocalCluster::Daemon& daemon) {
    return absl::StrCat(daemon.name(), " (pid ", daemon.process->pid(),
                        ") ended with ", daemon.ended->ToString());
  }

  // When a job fails, all daemons end, and those that learn of it may end
  // first: the cause is the daemon that was called wrongly.
  const LocalCluster::Daemon& CauseOf(const LocalCluster::Daemon& died) {
    if (died.ended->code != kExitFailed) return died;
    absl::Time until = SteadyNow() + kCausePatience;
    for (;;) {
      for (const LocalCluster::Daemon& daemon : cluster_.daemons()) {
        if (daemon.ended.has_value() && daemon.ended->code == kExitUsage) {
          return daemon;
        }
      }
      if (cluster_.Running().empty() || SteadyNow() >= until) return died;
      AwaitEnds(until, &until);
    }
  }

  int DaemonDied(const LocalCluster::Daemon& died) {
    const LocalCluster::Daemon& daemon = CauseOf(died);
    FinishOutput();
    const std::string log = directory_.LogPath(daemon.name());
    const auto restarts = restarts_.find(daemon.name());
    std::cerr << "holdfast: " << EndOf(daemon);
    if (restarts != restarts_.end()) {
      std::cerr << ", after " << restarts->second.count() << " restarts";
    }
    std::cerr << ". The end of its log, " << log << ":\n  "
              << absl::StrReplaceAll(LastLines(log, kLogLinesShown),
                                     {{"\n", "\n  "}})
              << std::endl;
    StopAll();
    if (daemon.ended->code == kExitUsage) return kExitUsage;
    if (WorthRestarting(*daemon.ended)) SayHowToGoOn();
    return kExitFailed;
  }

  // Workers have left a job that is not finished, and cannot go on without
  // them.
  int JobIsNotDone(const std::set<std::string>& workers) {
    FinishOutput();
    std::cerr << "holdfast: " << absl::StrJoin(workers, ", ")
              << " ended with exit status 0, but the job is not done"
              << (workers == awaited_ ? "" : ", and waits for it") << ": "
              << progress_.Line(last_status_)
              << "; to end the job for all, a script calls finish(). See the "
                 "logs in "
              << directory_.path() << std::endl;
    StopAll();
    SayHowToGoOn();
    return kExitFailed;
  }

  int DaemonsStay() {
    FinishOutput();
    std::cerr << "holdfast: the job is done, but "
              << absl::StrJoin(cluster_.Running(), ", ") << " did not end in "
              << options_.drain_timeout << "; see the logs in "
              << directory_.path() << std::endl;
    cluster_.Signal(SIGKILL, cluster_.Running());
    StopAll();
    return kExitFailed;
  }

  // Asks all daemons to end, kills those that do not (at once if the user
  // insists), and waits until they have exited. Workers are asked first and the
  // coordinator last, because tasks that leave report to it.
  void StopAll() {
    // If a ps is missing, the others cannot save the job.
    absl::Time kill_at =
        SteadyNow() + (APsHasEnded()
                           ? std::min(options_.stop_timeout, kStagePatience)
                           : options_.stop_timeout);
    std::vector<std::string> workers, ps, coordinator;
    for (const std::string& name : cluster_.Running()) {
      (name == DaemonName({kPsJob, 0}) ? coordinator
       : IsPs(name)                    ? ps
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

  // Waits until some daemon has ended, or `until`. The user's signal sets
  // `kill_at` to the present.
  void AwaitEnds(absl::Time until, absl::Time* kill_at) {
    if (signals_.Wait(-1, until).count(SIGINT) != 0) *kill_at = SteadyNow();
    cluster_.Reap();
  }

  bool APsHasEnded() const {
    const auto& daemons = cluster_.daemons();
    return std::any_of(daemons.begin(), daemons.end(), [](const auto& daemon) {
      return daemon.ended.has_value() && IsPs(daemon.name());
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
  // Log of the worker whose output is shown.
  std::optional<LogFollower> output_;
  StatusWatch& status_;
  ProgressDisplay progress_;
  proto::GetStatusResponse last_status_;
  // The names of the workers that must end before the job is over, and their
  // tasks.
  std::set<std::string> awaited_;
  std::map<std::string, TaskId> tasks_;
  // By name, the number of status answers that say that the job is not done,
  // since the worker ended successfully.
  std::map<std::string, int> answers_since_;
  // The workers that have ended successfully and that the job waits for.
  std::set<std::string> missed_;
  // By name, for daemons that have ended too early at least once.
  std::map<std::string, Restarts> restarts_;
  // By name, when to restart those that are not running.
  std::map<std::string, absl::Time> restart_at_;
  // By name, the incarnation of restarted daemons before the restart.
  std::map<std::string, uint64_t> incarnation_at_restart_;
  // The workers that ended, or were restarted, too late to join again.
  std::set<std::string> late_;
  // When the daemons that still run must have ended, once the awaited workers
  // have.
  absl::Time drain_until_ = absl::InfiniteFuture();
  // The number of status answers, since the awaited workers ended, that say
  // that the job is not done. The first of these may have been sent before they
  // ended.
  int unfinished_ = 0;
};

// What is known if the checkpoints are those of a finished job: whether this
// job has more to do, and the step that was reached.
struct FinishedBefore {
  absl::StatusOr<bool> has_more_to_do;
  uint64_t step = 0;
};
std::optional<FinishedBefore> FindFinished(const LocalRunOptions& options) {
  const absl::StatusOr<proto::Journal> journal = JournalOf(options);
  if (!journal.ok() || !journal->finished()) return std::nullopt;
  FinishedBefore finished{options.kind->HasMoreToDo(*journal)};
  if (!journal->checkpoints().empty()) {
    finished.step = journal->checkpoints().rbegin()->step();
  }
  return finished;
}

// Whether the checkpoints are in the run directory.
bool HasDefaultCheckpoints(const LocalRunOptions& options) {
  return options.checkpoint_dir == options.run_dir + "/checkpoints";
}

int SayFinished(const LocalRunOptions& options) {
  const std::string result = options.run_dir + "/result.json";
  std::cout << options.kind->job_name()
            << ": is already done, and is not run again. ";
  if (std::ifstream(result).good()) {
    std::cout << "Its result is in " << result << ". ";
  }
  std::cout
      << "`holdfast checkpoint inspect " << options.checkpoint_dir
      << "` describes its last checkpoint. To train further, give the job more "
      << "steps; to start over, give another --run_dir"
      << (HasDefaultCheckpoints(options) ? "" : " and --checkpoint_dir")
      << std::endl;
  return kExitDone;
}

// Renames the result of a finished job that has more to do, so that it is kept.
// Errors: ALREADY_EXISTS if any other run has left a result.
absl::Status MakeRoomForResult(const RunDirectory& directory,
                               const std::optional<FinishedBefore>& finished) {
  if (!std::ifstream(directory.result_path()).good()) return absl::OkStatus();
  if (finished.has_value()) return directory.SetResultAside(finished->step);
  return absl::AlreadyExistsError(absl::StrCat(
      directory.path(), " holds the result of a finished run, ",
      directory.result_path(), ", which is kept: give another --run_dir"));
}

// Makes certificates for all tasks, and returns an operator's credentials.
absl::StatusOr<Credentials> MakeCredentials(const ClusterSpec& cluster,
                                            const RunDirectory& directory) {
  CertificateFolderOptions options;
  options.path = directory.tls_path();
  options.training = "local";
  options.tasks = TasksWithOperator(cluster);
  options.renew = true;
  const auto made = MakeCertificateFolder(options);
  if (!made.ok()) return made.status();
  HOLDFAST_RETURN_IF_ERROR(directory.MarkEncrypted());
  return Credentials::FromFolder(
      CertificateFolderOf(options.path, {kOperatorJob, 0}));
}

// URL of the status page, and the certificate that it requires.
std::string StatusPage(const LocalRunOptions& options,
                       const RunDirectory& directory) {
  const std::string place =
      absl::StrCat("://127.0.0.1:", *options.status_port, "/");
  if (!options.tls) return "http" + place;
  return absl::StrCat(
      "https", place, " (with the certificate in ",
      CertificateFolderOf(directory.tls_path(), {kOperatorJob, 0}), ")");
}

int Refuse(const absl::Status& status, int exit_code) {
  std::cerr << "holdfast: " << status.message() << std::endl;
  return exit_code;
}

}  // namespace

int RunLocally(const LocalRunOptions& given) {
  LocalRunOptions options = given;
  const std::optional<FinishedBefore> finished = FindFinished(options);
  if (finished.has_value()) {
    if (!finished->has_more_to_do.ok()) {
      return Refuse(
          absl::FailedPreconditionError(absl::StrCat(
              options.checkpoint_dir, ": ",
              finished->has_more_to_do.status().message(),
              "; to start a new one, give another --",
              HasDefaultCheckpoints(options) ? "run_dir" : "checkpoint_dir")),
          kExitUsage);
    }
    if (!*finished->has_more_to_do) return SayFinished(options);
  }
  // Must exist before the first child process and the second thread.
  SignalWatch signals;
  const auto directory = RunDirectory::Open(options.run_dir);
  if (!directory.ok()) return Refuse(directory.status(), kExitUsage);
  absl::Status status = MakeRoomForResult(**directory, finished);
  if (!status.ok()) return Refuse(status, kExitUsage);
  // Held to the end, so that a restarted task finds its port free.
  HeldPorts ports;
  const absl::StatusOr<ClusterSpec> spec = ChooseLoopbackCluster(
      options.ps, options.workers, options.evaluator, &ports);
  if (!spec.ok()) return Refuse(spec.status(), kExitFailed);
  if (options.status_port == 0) {
    // Chosen here, so that it stays the same when ps 0 is restarted.
    const auto port = ports.Take(1);
    if (!port.ok()) return Refuse(port.status(), kExitFailed);
    options.status_port = port->front();
  }
  status = (*directory)->WriteClusterSpec(spec->ToJson());
  if (!status.ok()) return Refuse(status, kExitFailed);
  for (int host = 0; options.collocated && host < options.workers; ++host) {
    status = (*directory)->MakeHostFolder(host);
    if (!status.ok()) return Refuse(status, kExitFailed);
  }
  absl::StatusOr<Credentials> credentials = Credentials();
  if (options.tls) credentials = MakeCredentials(*spec, **directory);
  if (!credentials.ok()) return Refuse(credentials.status(), kExitFailed);

  std::vector<LocalCluster::Program> programs;
  for (const auto& [job, tasks] : spec->jobs()) {
    for (const auto& [index, address] : tasks) {
      programs.push_back(ProgramFor({job, index}, *spec, options, **directory));
    }
  }
  std::cout << options.kind->job_name() << ": " << options.ps << " ps and "
            << options.workers << " workers"
            << (options.evaluator ? " and an evaluator" : "")
            << "; logs and result are in " << options.run_dir << std::endl;
  if (options.status_port.has_value()) {
    std::cout << "status page: " << StatusPage(options, **directory)
              << std::endl;
  }

  std::optional<LogFollower> output;
  if (const auto shown = options.kind->Shown()) {
    output.emplace((*directory)->LogPath(DaemonName(*shown)));
  }
  const auto cluster = LocalCluster::Start(programs, **directory);
  if (!cluster.ok()) return Refuse(cluster.status(), kExitFailed);
  StatusWatch watch(*spec, *credentials, options.status_period);
  return LocalRun(options, *spec, directory->get(), &signals, cluster->get(),
                  std::move(output), &watch)
      .Run();
}

}  // namespace holdfast
