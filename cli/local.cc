// SPDX-License-Identifier: Apache-2.0
#include "cli/local.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cli/find_program.h"
#include "cli/local_run.h"
#include "cli/local_workers.h"
#include "cli/restarts.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/job_file.h"
#include "common/process/daemon.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast local --job=FILE [flags]: trains a job on this machine
holdfast local [flags] -- COMMAND [ARG ...]: the same with a script

Starts ps daemons and workers as separate processes on loopback, shows their
progress, and waits until all have ended. Ctrl-C ends everything.

With a COMMAND, each worker is a process that runs it, as in
  holdfast local --ps=2 --workers=4 -- python train.py --batch_size=32
It finds its place in the environment variable TF_CONFIG, in TensorFlow's form,
and, with --tls, its certificate in the folder $HOLDFAST_TLS_DIR. The output of
worker 0 is shown. The run is successful when all workers have exited with 0.

With --on_failure=restart a task that dies is restarted, and the job goes on:
without loss after a worker, from the last checkpoint after a ps. A run with the
--run_dir (or the --checkpoint_dir) of an earlier run goes on from its last
checkpoint.

The run directory gets cluster.json (the ClusterSpec), a log for each task
(ps-0.log, worker-0.log, ...), to which each start appends, its process ID while it
runs (ps-0.pid), the checkpoints, the certificates of --tls, and, with --job,
result.json. A finished run is not repeated, and its result is kept.

  holdfast local --job=examples/fashion_mnist_mlp.textproto --run_dir=runs/mlp
  holdfast status --run_dir=runs/mlp

Exits 0 when the job is done, or was stopped by `holdfast stop`; 1 when it failed or
a task died, 2 for wrong flags, a wrong job file or wrong data, 130 when interrupted
(docs/operating/exit_codes.md).

)";

// The argument after which the COMMAND follows.
constexpr char kCommandMark[] = "--";
constexpr int kMaxTasks = 1000;  // as in Local of proto/job.proto
// How long a ps may take to end after it was told to stop, because it saves the
// job first. Somewhat more than its --grace.
constexpr absl::Duration kSaveTimeout = absl::Seconds(25);

// The values of the flags.
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
  std::string status_port = "0";
  bool tls = false;
  bool collocated = false;
  bool evaluator = false;
};

FlagSet MakeFlagSet(LocalFlags* flags) {
  FlagSet set;
  set.Add(
      "job", "FILE", &flags->job,
      "Path of the job file (textproto). Required unless there is a COMMAND.");
  set.Add("ps", "NUMBER", &flags->ps,
          "Number of ps daemons. Default: the job's local.ps, otherwise 2.");
  set.Add("workers", "NUMBER", &flags->workers,
          "Number of workers. Default: the job's local.workers, otherwise its\n"
          "total_num_replicas, otherwise 2.");
  set.Add("run_dir", "FOLDER", &flags->run_dir,
          "Folder for logs and result; created if it does not exist.\n"
          "Default: runs/JOB-DATE-TIME in the current folder.");
  set.Add("seed", "NUMBER", &flags->seed,
          "Seed of first values and of the order of examples. Default: the\n"
          "job's. Not with a COMMAND.");
  set.Add(
      "intra_op_threads", "NUMBER", &flags->intra_op_threads,
      "Threads per operation of each worker. A COMMAND gets it as\n"
      "$OMP_NUM_THREADS. Default: for a COMMAND that variable, otherwise 1.");
  set.Add(
      "lease", "DURATION", &flags->lease,
      "How long a task may be silent before it counts as lost, such as 10s.\n"
      "Default: that of ps_server.");
  set.Add(
      "checkpoint_dir", "FOLDER", &flags->checkpoint_dir,
      "Folder in which the ps keep the checkpoints of this job, and from\n"
      "which they go on. Default: checkpoints in the run directory. none: no\n"
      "checkpoints.");
  set.Add("on_failure", "stop|restart", &flags->on_failure,
          "What to do when a task is killed or gives up: stop ends the run,\n"
          "restart restarts the task. Default: stop.");
  set.Add("max_restarts", "NUMBER", &flags->max_restarts,
          "Maximum number of restarts of each task. Default: 10.");
  set.Add("ps_binary", "FILE", &flags->ps_binary,
          "The ps daemon. Default: ps_server next to this program, or in the\n"
          "build's output.");
  set.Add("worker_binary", "FILE", &flags->worker_binary,
          "The worker daemon, for example with your own model. Default:\n"
          "ps_worker, found like ps_server. Not with a COMMAND.");
  set.Add("ps_flags", "FLAGS", &flags->ps_flags,
          "Additional flags for each ps, separated by spaces.");
  set.Add("worker_flags", "FLAGS", &flags->worker_flags,
          "Additional flags for each worker, separated by spaces. Not with a\n"
          "COMMAND.");
  set.Add(
      "status_port", "PORT|none", &flags->status_port,
      "Port of this machine on which ps 0 serves the status page. Default:\n"
      "0, a free port. none: no status page.");
  set.Add(
      "collocated", "", &flags->collocated,
      "Pair each worker with a ps, which share memory as if they were alone\n"
      "on a host. The traffic between such hosts is that of an all-reduce\n"
      "(docs/strategies.md).");
  set.Add("evaluator", "", &flags->evaluator,
          "Also start an evaluator, which evaluates checkpoints while the\n"
          "workers train (docs/evaluation.md). It runs the COMMAND, if any.");
  set.Add("tls", "", &flags->tls,
          "Encrypt all connections, with certificates made for this run.");
  return set;
}

absl::Status CheckTasks(absl::string_view flag, std::optional<int> given) {
  if (!given.has_value() || (*given >= 1 && *given <= kMaxTasks)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", *given, ": must be from 1 to ", kMaxTasks));
}

constexpr int kDefaultPs = 2;
constexpr int kDefaultWorkers = 2;

int DefaultPs(const proto::Job& job) {
  return job.local().has_ps() ? job.local().ps() : kDefaultPs;
}

int DefaultWorkers(const proto::Job& job) {
  if (job.local().has_workers()) return job.local().workers();
  const auto& synchronous = job.consistency().synchronous();
  if (synchronous.has_total_num_replicas()) {
    return synchronous.total_num_replicas();
  }
  return kDefaultWorkers;
}

// Where the number of workers comes from.
std::string WorkersFrom(const LocalFlags& flags, const proto::Job& job) {
  if (flags.workers.has_value()) return "from --workers";
  if (job.local().has_workers()) return "the job file's local.workers";
  if (job.consistency().synchronous().has_total_num_replicas()) {
    return "the job file's total_num_replicas";
  }
  return "the default of --workers";
}

std::string DefaultRunDir(std::string name) {
  std::replace(name.begin(), name.end(), '/', '-');
  return absl::StrCat(
      "runs/", name, "-",
      absl::FormatTime("%Y%m%d-%H%M%S", DateNow(), absl::LocalTimeZone()));
}

std::vector<std::string> Words(const std::string& flags) {
  return absl::StrSplit(flags, ' ', absl::SkipWhitespace());
}

// Quoted for a shell.
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
  std::string run_dir;
  if (flags.run_dir.empty()) {
    run_dir = " " + Quoted("--run_dir=" + options.run_dir);
  }
  std::string command = "holdfast local";
  for (const std::string& arg : args) {
    if (arg == kCommandMark)
      absl::StrAppend(&command, std::exchange(run_dir, ""));
    absl::StrAppend(&command, " ", Quoted(arg));
  }
  return command + run_dir;
}

// Sets the options that depend on the job file and its flags.
absl::Status TakeJobFile(const LocalFlags& flags, LocalRunOptions* options) {
  HOLDFAST_ASSIGN_OR_RETURN(auto job, LoadJobFile(flags.job));
  if (flags.seed.has_value()) job.set_seed(*flags.seed);

  JobFileWorkers::Options workers;
  workers.job_file = flags.job;
  workers.job = job;
  options->ps = flags.ps.value_or(DefaultPs(job));
  options->workers = flags.workers.value_or(DefaultWorkers(job));
  const auto replicas = ResolveConsistency(job, options->workers);
  if (!replicas.ok()) {
    return absl::Status(
        replicas.status().code(),
        absl::StrCat(flags.job, ": ", replicas.status().message(), " (",
                     options->workers, " is ", WorkersFrom(flags, job), ")"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto binary,
      FindProgram("worker_binary", flags.worker_binary, "worker", "ps_worker"));
  workers.binary = binary;
  if (flags.seed.has_value()) {
    workers.flags.push_back(absl::StrCat("--seed=", *flags.seed));
  }
  if (flags.intra_op_threads.has_value()) {
    workers.flags.push_back(
        absl::StrCat("--intra_op_threads=", *flags.intra_op_threads));
  }
  for (std::string& flag : Words(flags.worker_flags)) {
    workers.flags.push_back(std::move(flag));
  }
  options->kind = std::make_shared<JobFileWorkers>(std::move(workers));
  return absl::OkStatus();
}

// Sets the options that depend on the command and its flags.
absl::Status TakeCommand(const LocalFlags& flags,
                         const std::vector<std::string>& command,
                         LocalRunOptions* options) {
  const std::pair<absl::string_view, bool> not_for_commands[] = {
      {"job", !flags.job.empty()},
      {"seed", flags.seed.has_value()},
      {"worker_binary", !flags.worker_binary.empty()},
      {"worker_flags", !flags.worker_flags.empty()},
  };
  for (const auto& [flag, given] : not_for_commands) {
    if (!given) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, " cannot be combined with a COMMAND: \"", command.front(),
        "\" takes arguments of its own, after its name"));
  }
  CommandWorkers::Options workers;
  HOLDFAST_ASSIGN_OR_RETURN(const auto program, FindCommand(command.front()));
  workers.program = program;
  workers.args = {command.begin() + 1, command.end()};
  workers.threads = flags.intra_op_threads;
  options->ps = flags.ps.value_or(kDefaultPs);
  options->workers = flags.workers.value_or(kDefaultWorkers);
  options->kind = std::make_shared<CommandWorkers>(std::move(workers));
  return absl::OkStatus();
}

// Errors: for invalid flags, job files and commands.
absl::StatusOr<LocalRunOptions> MakeOptions(
    const LocalFlags& flags,
    const std::optional<std::vector<std::string>>& command) {
  absl::Status status = CheckTasks("ps", flags.ps);
  status.Update(CheckTasks("workers", flags.workers));
  if (!status.ok()) return status;
  LocalRunOptions options;
  if (command.has_value() && command->empty()) {
    return absl::InvalidArgumentError(
        "there is no COMMAND after --; for example: holdfast local -- python "
        "train.py");
  }
  if (!command.has_value() && flags.job.empty()) {
    return absl::InvalidArgumentError(
        "--job is required, the path of the job file, or a COMMAND that "
        "trains, after --");
  }
  status = command.has_value() ? TakeCommand(flags, *command, &options)
                               : TakeJobFile(flags, &options);
  if (!status.ok()) return status;
  options.collocated = flags.collocated;
  if (flags.collocated) {
    if (flags.ps.value_or(options.workers) != options.workers) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ps=", *flags.ps,
                       " with --collocated, which starts a ps beside each of "
                       "the ",
                       options.workers, " workers: leave --ps out"));
    }
    options.ps = options.workers;
  }
  options.tls = flags.tls;
  if (flags.status_port == "none") {
    options.status_port.reset();
  } else if (uint32_t port;
             absl::SimpleAtoi(flags.status_port, &port) && port <= 65535) {
    options.status_port = static_cast<uint16_t>(port);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--status_port=", flags.status_port,
                     ": must be the number of a port, at most 65535, 0 for a "
                     "free one, or none for no status page"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto ps_binary,
      FindProgram("ps_binary", flags.ps_binary, "ps_server", "ps_server"));
  options.ps_binary = ps_binary;

  options.run_dir = flags.run_dir.empty()
                        ? DefaultRunDir(options.kind->job_name())
                        : flags.run_dir;
  if (flags.checkpoint_dir.empty()) {
    options.checkpoint_dir = options.run_dir + "/checkpoints";
  } else if (flags.checkpoint_dir != "none") {
    options.checkpoint_dir = flags.checkpoint_dir;
  }
  options.evaluator = flags.evaluator;
  if (flags.evaluator && options.checkpoint_dir.empty()) {
    return absl::InvalidArgumentError(
        "--evaluator with --checkpoint_dir=none: an evaluator evaluates "
        "checkpoints; leave one of the two flags out");
  }
  if (!options.checkpoint_dir.empty()) options.stop_timeout = kSaveTimeout;
  if (flags.max_restarts < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_restarts=", flags.max_restarts,
        ": must be at least 0; to restart no task, leave out --on_failure"));
  }
  if (flags.on_failure == "restart") {
    options.restarts.emplace().most = flags.max_restarts;
  } else if (flags.on_failure != "stop") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--on_failure=", flags.on_failure,
        ": must be stop, which ends the run when a task dies, or restart, "
        "which restarts the task"));
  }
  if (flags.lease.has_value()) {
    options.ps_flags.push_back(
        absl::StrCat("--lease=", absl::FormatDuration(*flags.lease)));
  }
  for (std::string& flag : Words(flags.ps_flags)) {
    options.ps_flags.push_back(std::move(flag));
  }
  return options;
}

// Rejects a command in the place of flags.
absl::Status CheckHasFlagsOnly(const std::vector<std::string>& args) {
  if (args.empty() || absl::StartsWith(args.front(), "-")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", args.front(),
                   "\" is not a flag (--name=value); a COMMAND follows --: "
                   "holdfast local [flags] -- ",
                   args.front(), " ..."));
}

}  // namespace

int LocalCommand(const std::vector<std::string>& args) {
  const auto mark = std::find(args.begin(), args.end(), kCommandMark);
  const std::vector<std::string> flag_args(args.begin(), mark);
  std::optional<std::vector<std::string>> command;
  if (mark != args.end()) command.emplace(mark + 1, args.end());

  LocalFlags flags;
  const FlagSet flag_set = MakeFlagSet(&flags);
  if (std::count(flag_args.begin(), flag_args.end(), "--help") > 0) {
    std::cout << kUsage << "Flags:\n" << flag_set.Help();
    return kExitDone;
  }
  absl::Status parsed = CheckHasFlagsOnly(flag_args);
  parsed.Update(flag_set.Parse(flag_args));
  absl::StatusOr<LocalRunOptions> options =
      parsed.ok() ? MakeOptions(flags, command) : parsed;
  if (!options.ok()) {
    std::cerr << "holdfast local: " << options.status().message() << std::endl;
    return kExitUsage;
  }
  options->resume_command = ResumeCommand(args, flags, *options);
  return RunLocally(*options);
}

std::vector<CommandWords> LocalWords() {
  LocalFlags flags;
  return {{"local", MakeFlagSet(&flags).Names()}};
}

}  // namespace holdfast
