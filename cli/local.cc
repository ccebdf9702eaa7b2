#include "cli/local.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cli/find_program.h"
#include "cli/flag_set.h"
#include "cli/local_run.h"
#include "cli/restarts.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/job_file.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast local --job=FILE [flags]: trains a job on this machine

Starts ps daemons and workers as processes of their own on loopback, shows the
progress, and waits until all have ended. Ctrl-C ends everything.

With --on_failure=restart a daemon that dies is started again, and the job goes
on: without loss after a worker, from the last checkpoint after a ps. A run with
the --run_dir (or the --checkpoint_dir) of an earlier one goes on from its last
checkpoint.

The run directory gets cluster.json (the ClusterSpec), a log for each task
(ps-0.log, worker-0.log, ...), to which each start adds, its process id while it
runs (ps-0.pid), the checkpoints, the certificates of --tls, and result.json. A
finished run is not run again, and its result is kept.

Exits 0 when the job is done, 1 when it failed or a daemon died, 2 for wrong flags,
a wrong job file or wrong data, 130 when interrupted (docs/operating/exit_codes.md).

)";

constexpr int kMaxTasks = 1000;  // as Local in proto/job.proto
// A ps that is told to stop saves the job first: somewhat more than its
// --grace.
constexpr absl::Duration kSaveTimeout = absl::Seconds(25);

// The flags as they were given.
struct LocalFlags {
  std::string job;
  std::optional<int> ps;
  std::optional<int> workers;
  std::string run_dir;
  std::optional<uint64_t> seed;
  std::optional<int> intra_op_threads;
  std::optional<absl::Duration> lease;
  std::string checkpoint_dir;
  std::string on_failure = "stop";
  int max_restarts = Restarts::Options().most;
  std::string ps_binary;
  std::string worker_binary;
  std::string ps_flags;
  std::string worker_flags;
  bool tls = false;
};

FlagSet MakeFlagSet(LocalFlags* flags) {
  FlagSet set;
  set.Add("job", "FILE", &flags->job, "The job file, a textproto. Needed.");
  set.Add("ps", "NUMBER", &flags->ps,
          "ps daemons. Default: the job's local.ps, or else 2.");
  set.Add("workers", "NUMBER", &flags->workers,
          "Workers. Default: the job's local.workers, or else its\n"
          "total_num_replicas, or else 2.");
  set.Add("run_dir", "FOLDER", &flags->run_dir,
          "Where logs and result go; made when it is not there.\n"
          "Default: runs/JOB-DATE-TIME in the current folder.");
  set.Add("seed", "NUMBER", &flags->seed,
          "Of first values and the order of examples. Default: the job's.");
  set.Add("intra_op_threads", "NUMBER", &flags->intra_op_threads,
          "Threads within an operation, of each worker. Default: 1.");
  set.Add("lease", "DURATION", &flags->lease,
          "How long a task may be silent before it counts as lost, as 10s.\n"
          "Default: that of ps_server.");
  set.Add("checkpoint_dir", "FOLDER", &flags->checkpoint_dir,
          "Where the ps keep checkpoints, of this job alone, and go on from.\n"
          "Default: checkpoints in the run directory. none: there are none.");
  set.Add("on_failure", "stop|restart", &flags->on_failure,
          "What to do when a daemon is killed or gives up: stop ends the run,\n"
          "restart starts it again. Default: stop.");
  set.Add("max_restarts", "NUMBER", &flags->max_restarts,
          "How often each daemon is started again, at most. Default: 10.");
  set.Add(
      "ps_binary", "FILE", &flags->ps_binary,
      "The ps daemon. Default: ps_server beside this program, or where the\n"
      "build puts it.");
  set.Add(
      "worker_binary", "FILE", &flags->worker_binary,
      "The worker daemon, as for a model of your own. Default: ps_worker, as\n"
      "ps_binary.");
  set.Add("ps_flags", "FLAGS", &flags->ps_flags,
          "More flags for each ps, separated by spaces.");
  set.Add("worker_flags", "FLAGS", &flags->worker_flags,
          "More flags for each worker, separated by spaces.");
  set.Add("tls", "", &flags->tls,
          "Encrypt all connections, with certificates made for this run.");
  return set;
}

absl::StatusOr<int> TasksFrom(absl::string_view flag, std::optional<int> given,
                              int otherwise) {
  if (!given.has_value()) return otherwise;
  if (*given >= 1 && *given <= kMaxTasks) return *given;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", *given, ": must be from 1 to ", kMaxTasks));
}

int DefaultPs(const proto::Job& job) {
  return job.local().has_ps() ? job.local().ps() : 2;
}

int DefaultWorkers(const proto::Job& job) {
  if (job.local().has_workers()) return job.local().workers();
  const auto& synchronous = job.consistency().synchronous();
  if (synchronous.has_total_num_replicas()) {
    return synchronous.total_num_replicas();
  }
  return 2;
}

// What has said how many workers there are.
std::string WorkersFrom(const LocalFlags& flags, const proto::Job& job) {
  if (flags.workers.has_value()) return "from --workers";
  if (job.local().has_workers()) return "the job file's local.workers";
  if (job.consistency().synchronous().has_total_num_replicas()) {
    return "the job file's total_num_replicas";
  }
  return "the default of --workers";
}

std::string DefaultRunDir(const proto::Job& job) {
  std::string name = job.name();
  std::replace(name.begin(), name.end(), '/', '-');
  return absl::StrCat(
      "runs/", name, "-",
      absl::FormatTime("%Y%m%d-%H%M%S", DateNow(), absl::LocalTimeZone()));
}

std::vector<std::string> Words(const std::string& flags) {
  return absl::StrSplit(flags, ' ', absl::SkipWhitespace());
}

// As a shell takes it.
std::string Quoted(const std::string& word) {
  const bool plain =
      !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
        return absl::ascii_isalnum(c) || absl::StrContains("-_=./,:+@%", c);
      });
  return plain ? word
               : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}),
                              "'");
}

std::string ResumeCommand(const std::vector<std::string>& args,
                          const LocalFlags& flags,
                          const LocalRunOptions& options) {
  std::string command = "holdfast local";
  for (const std::string& arg : args)
    absl::StrAppend(&command, " ", Quoted(arg));
  if (flags.run_dir.empty()) {
    absl::StrAppend(&command, " ", Quoted("--run_dir=" + options.run_dir));
  }
  return command;
}

// Errors: whatever of flags and job file cannot be.
absl::StatusOr<LocalRunOptions> MakeOptions(const LocalFlags& flags) {
  if (flags.job.empty()) {
    return absl::InvalidArgumentError(
        "--job is needed: the file that says what to train");
  }
  absl::StatusOr<proto::Job> job = LoadJobFile(flags.job);
  if (!job.ok()) return job.status();
  if (flags.seed.has_value()) job->set_seed(*flags.seed);

  LocalRunOptions options;
  options.job_file = flags.job;
  options.job_name = job->name();
  options.job_digest = JobDigest(*job);
  const auto ps = TasksFrom("ps", flags.ps, DefaultPs(*job));
  if (!ps.ok()) return ps.status();
  options.ps = *ps;
  const auto workers =
      TasksFrom("workers", flags.workers, DefaultWorkers(*job));
  if (!workers.ok()) return workers.status();
  options.workers = *workers;
  options.tls = flags.tls;
  const auto replicas = ResolveConsistency(*job, options.workers);
  if (!replicas.ok()) {
    return absl::Status(
        replicas.status().code(),
        absl::StrCat(flags.job, ": ", replicas.status().message(), " (",
                     options.workers, " is ", WorkersFrom(flags, *job), ")"));
  }

  const auto ps_binary =
      FindProgram("ps_binary", flags.ps_binary, "ps_server", "ps_server");
  if (!ps_binary.ok()) return ps_binary.status();
  options.ps_binary = *ps_binary;
  const auto worker_binary =
      FindProgram("worker_binary", flags.worker_binary, "worker", "ps_worker");
  if (!worker_binary.ok()) return worker_binary.status();
  options.worker_binary = *worker_binary;

  options.run_dir = flags.run_dir.empty() ? DefaultRunDir(*job) : flags.run_dir;
  if (flags.checkpoint_dir.empty()) {
    options.checkpoint_dir = options.run_dir + "/checkpoints";
  } else if (flags.checkpoint_dir != "none") {
    options.checkpoint_dir = flags.checkpoint_dir;
  }
  if (!options.checkpoint_dir.empty()) options.stop_timeout = kSaveTimeout;
  if (flags.max_restarts < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_restarts=", flags.max_restarts, ": must be at least 0"));
  }
  if (flags.on_failure == "restart") {
    options.restarts.emplace().most = flags.max_restarts;
  } else if (flags.on_failure != "stop") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--on_failure=", flags.on_failure, ": must be stop or restart"));
  }
  if (flags.seed.has_value()) {
    options.worker_flags.push_back(absl::StrCat("--seed=", *flags.seed));
  }
  if (flags.intra_op_threads.has_value()) {
    options.worker_flags.push_back(
        absl::StrCat("--intra_op_threads=", *flags.intra_op_threads));
  }
  if (flags.lease.has_value()) {
    options.ps_flags.push_back(
        absl::StrCat("--lease=", absl::FormatDuration(*flags.lease)));
  }
  for (std::string& flag : Words(flags.ps_flags)) {
    options.ps_flags.push_back(std::move(flag));
  }
  for (std::string& flag : Words(flags.worker_flags)) {
    options.worker_flags.push_back(std::move(flag));
  }
  return options;
}

}  // namespace

int LocalCommand(const std::vector<std::string>& args) {
  LocalFlags flags;
  const FlagSet flag_set = MakeFlagSet(&flags);
  if (std::count(args.begin(), args.end(), "--help") > 0) {
    std::cout << kUsage << "Flags:\n" << flag_set.Help();
    return kExitDone;
  }
  const absl::Status parsed = flag_set.Parse(args);
  absl::StatusOr<LocalRunOptions> options =
      parsed.ok() ? MakeOptions(flags) : parsed;
  if (!options.ok()) {
    std::cerr << "holdfast local: " << options.status().message() << std::endl;
    return kExitUsage;
  }
  options->resume_command = ResumeCommand(args, flags, *options);
  return RunLocally(*options);
}

}  // namespace holdfast
