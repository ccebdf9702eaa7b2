// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/certificate_folder.h"
#include "common/base/clock.h"
#include "common/process/daemon.h"
#include "common/rpc/credentials.h"
#include "common/rpc/deadline.h"
#include "common/rpc/identity.h"
#include "glog/logging.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "tests/local/small_job.h"
#include "tests/rpc_threads/rpc_threads.h"

namespace holdfast {
namespace {

constexpr absl::Duration kTurn = absl::Milliseconds(2);
constexpr absl::Duration kAskEvery = absl::Milliseconds(10);
constexpr absl::Duration kAskTimeout = absl::Milliseconds(200);
constexpr char kPsServerBinary[] = "ps_server/ps_server";

int ExitCodeOf(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::string LastLines(const std::string& text, int lines) {
  std::vector<std::string> all = absl::StrSplit(text, '\n');
  if (!all.empty() && all.back().empty()) all.pop_back();
  const size_t from =
      all.size() > static_cast<size_t>(lines) ? all.size() - lines : 0;
  return absl::StrJoin(all.begin() + from, all.end(), "\n");
}

TaskCluster::TaskCluster(const Options& options)
    : options_(options), ps_addresses_(options.ps_addresses) {
  // A worker does not listen, but has a place in the ClusterSpec.
  const std::vector<uint16_t> ports = TakePorts(
      options_.num_ps + options_.num_workers + options_.num_evaluators);
  if (ps_addresses_.empty()) {
    for (int ps = 0; ps < options_.num_ps; ++ps) {
      ps_addresses_.push_back(absl::StrCat("localhost:", ports[ps]));
    }
  }
  std::vector<std::string> workers;
  for (int worker = 0; worker < options_.num_workers; ++worker) {
    workers.push_back(
        absl::StrCat("localhost:", ports[options_.num_ps + worker]));
  }
  ps_hosts_flag_ =
      absl::StrCat("--ps_hosts=", absl::StrJoin(ps_addresses_, ","));
  std::vector<std::string> cluster = {
      ps_hosts_flag_,
      absl::StrCat("--worker_hosts=", absl::StrJoin(workers, ","))};
  if (options_.num_evaluators > 0) {
    std::vector<std::string> evaluators;
    for (auto port = ports.end() - options_.num_evaluators; port != ports.end();
         ++port) {
      evaluators.push_back(absl::StrCat("localhost:", *port));
    }
    const auto job = [](const char* name,
                        const std::vector<std::string>& tasks) {
      return absl::StrCat("\"", name, "\":[\"", absl::StrJoin(tasks, "\",\""),
                          "\"]");
    };
    cluster = {absl::StrCat("--cluster_spec={", job(kPsJob, ps_addresses_), ",",
                            job(kWorkerJob, workers), ",",
                            job(kEvaluatorJob, evaluators), "}")};
  }

  const auto add = [&](const std::string& name, const std::string& binary,
                       int index, const std::vector<std::string>& flags) {
    Task task;
    task.name = name;
    if (options_.launcher) task.args = options_.launcher(name);
    std::vector<std::string> program = {binary};
    program.insert(program.end(), cluster.begin(), cluster.end());
    program.push_back(absl::StrCat("--task_index=", index));
    program = WithRpcThreads(std::move(program));
    task.args.insert(task.args.end(), program.begin(), program.end());
    task.args.insert(task.args.end(), flags.begin(), flags.end());
    if (options_.tls) {
      task.args.push_back("--tls_dir=" + options_.folder + "/tls/" + name);
    }
    names_.push_back(name);
    tasks_.push_back(std::move(task));
  };
  for (int ps = 0; ps < options_.num_ps; ++ps) {
    std::vector<std::string> flags = options_.ps_flags;
    const std::string directory = options_.checkpoint_dir
                                      ? options_.checkpoint_dir(ps)
                                      : checkpoint_dir();
    if (!directory.empty()) flags.push_back("--checkpoint_dir=" + directory);
    add(absl::StrCat("ps-", ps), kPsServerBinary, ps, flags);
  }
  for (int worker = 0; worker < options_.num_workers; ++worker) {
    std::vector<std::string> flags = options_.worker_flags;
    flags.push_back("--job=" + options_.job_file);
    flags.push_back("--result_file=" + result_file());
    add(absl::StrCat("worker-", worker), options_.worker_binary, worker, flags);
  }
  for (int evaluator = 0; evaluator < options_.num_evaluators; ++evaluator) {
    add(absl::StrCat("evaluator-", evaluator), options_.worker_binary,
        evaluator,
        {"--job_name=evaluator", "--job=" + options_.job_file,
         "--checkpoint_dir=" + checkpoint_dir()});
  }
  Credentials credentials;
  if (options_.tls) {
    CertificateFolderOptions tls;
    tls.path = options_.folder + "/tls";
    tls.training = "faults";
    for (int ps = 0; ps < options_.num_ps; ++ps) {
      tls.tasks.push_back({kPsJob, static_cast<uint32_t>(ps)});
    }
    for (int worker = 0; worker < options_.num_workers; ++worker) {
      tls.tasks.push_back({kWorkerJob, static_cast<uint32_t>(worker)});
    }
    tls.tasks.push_back({kOperatorJob, 0});
    CHECK(MakeCertificateFolder(tls).ok()) << tls.path;
    const auto read = Credentials::FromFolder(
        CertificateFolderOf(tls.path, {kOperatorJob, 0}));
    CHECK(read.ok()) << read.status();
    credentials = *read;
  }
  // Short backoff, to notice soon that a ps is back.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  coordinator_ = proto::Coordinator::NewStub(grpc::CreateCustomChannel(
      coordinator_address(), credentials.ForChannel(0), arguments));
}

TaskCluster::~TaskCluster() {
  for (Task& task : tasks_) {
    if (task.pid == 0) continue;
    kill(task.pid, SIGKILL);
    waitpid(task.pid, nullptr, 0);
  }
}

std::string TaskCluster::checkpoint_dir() const {
  return options_.folder + "/checkpoints";
}
std::string TaskCluster::result_file() const {
  return options_.folder + "/result.json";
}
std::string TaskCluster::coordinator_address() const {
  return ps_addresses_[0];
}
std::string TaskCluster::log_path(const std::string& name) const {
  return absl::StrCat(options_.folder, "/", name, ".log");
}
std::string TaskCluster::log(const std::string& name) const {
  return ReadText(log_path(name));
}

TaskCluster::Task& TaskCluster::Find(const std::string& name) {
  return const_cast<Task&>(std::as_const(*this).Find(name));
}

const TaskCluster::Task& TaskCluster::Find(const std::string& name) const {
  const auto found =
      std::find_if(tasks_.begin(), tasks_.end(),
                   [&](const Task& task) { return task.name == name; });
  CHECK(found != tasks_.end()) << name;
  return *found;
}

bool TaskCluster::failed() const {
  return std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) {
    return task.exit_code.value_or(0) != 0 && !task.abandoned &&
           task.restart_at == absl::InfiniteFuture();
  });
}

bool TaskCluster::running(const std::string& name) const {
  return Find(name).pid != 0;
}
int TaskCluster::starts(const std::string& name) const {
  return Find(name).starts;
}
std::optional<int> TaskCluster::exit_code(const std::string& name) const {
  return Find(name).exit_code;
}

void TaskCluster::StartAll() {
  for (Task& task : tasks_) {
    if (task.pid == 0) Spawn(&task);
  }
}

void TaskCluster::Start(const std::string& name) { Spawn(&Find(name)); }

void TaskCluster::Spawn(Task* task) {
  CHECK_EQ(task->pid, 0) << task->name << " runs";
  task->restart_at = absl::InfiniteFuture();
  task->exit_code.reset();
  ++task->starts;
  Note(*task, absl::StrCat("start ", task->starts));
  const int log_fd = open(log_path(task->name).c_str(),
                          O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  PCHECK(log_fd >= 0) << log_path(task->name);
  std::vector<char*> argv;
  for (std::string& arg : task->args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  task->pid = fork();
  PCHECK(task->pid >= 0);
  if (task->pid == 0) {
    // Other threads may be running in the parent: only system calls are safe
    // here.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(log_fd);
}

void TaskCluster::Signal(const std::string& name, int signal) {
  Task& task = Find(name);
  task.hit = true;
  if (task.pid == 0) return;
  Note(task, absl::StrCat("signal ", signal));
  kill(task.pid, signal);
}

void TaskCluster::Pause(const std::string& name, absl::Duration length) {
  Signal(name, SIGSTOP);
  Find(name).resume_at = SteadyNow() + length;
}

void TaskCluster::Abandon(const std::string& name) {
  Find(name).abandoned = true;
  Signal(name, SIGKILL);
}

void TaskCluster::Note(const Task& task, const std::string& line) const {
  std::ofstream(log_path(task.name), std::ios::app)
      << "== "
      << absl::FormatTime("%H:%M:%E6S", DateNow(), absl::LocalTimeZone()) << " "
      << line << std::endl;
}

void TaskCluster::Reap(Task* task) {
  int status = 0;
  if (task->pid == 0 || waitpid(task->pid, &status, WNOHANG) != task->pid) {
    return;
  }
  task->pid = 0;
  task->resume_at = absl::InfiniteFuture();
  task->exit_code = ExitCodeOf(status);
  Note(*task, absl::StrCat("ended with ", *task->exit_code));
  if (!task->abandoned &&
      (*task->exit_code == kExitRestart || WIFSIGNALED(status))) {
    task->restart_at = SteadyNow() + options_.restart_delay;
  }
}

void TaskCluster::Advance() {
  const absl::Time now = SteadyNow();
  for (Task& task : tasks_) {
    Reap(&task);
    if (task.pid != 0 && now >= task.resume_at) {
      task.resume_at = absl::InfiniteFuture();
      Signal(task.name, SIGCONT);
    }
    if (task.pid == 0 && now >= task.restart_at) Spawn(&task);
  }
  if (now >= ask_at_) AskStatus();
  absl::SleepFor(kTurn);
}

void TaskCluster::AskStatus() {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(SteadyNow() + kAskTimeout));
  // Without this, nothing would drive the connection to a ps that has just
  // started.
  context.set_wait_for_ready(true);
  proto::GetStatusResponse status;
  if (coordinator_->GetStatus(&context, {}, &status).ok()) status_ = status;
  max_step_ = std::max<uint64_t>(max_step_, status_.global_step());
  uint64_t shared_bytes = 0;
  for (const proto::TaskStatus& task : status_.tasks()) {
    const proto::SharedMemoryUse& use = task.ps().shared_memory();
    shared_bytes += use.received_bytes() + use.sent_bytes();
  }
  max_shared_bytes_ = std::max(max_shared_bytes_, shared_bytes);
  ask_at_ = SteadyNow() + kAskEvery;
}

bool TaskCluster::AdvanceUntil(const std::function<bool()>& done,
                               absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  while (!done()) {
    if (SteadyNow() >= deadline) return false;
    Advance();
  }
  return true;
}

void TaskCluster::AdvanceFor(absl::Duration time) {
  AdvanceUntil([] { return false; }, time);
}

absl::Status TaskCluster::AwaitEnd(absl::Duration timeout,
                                   absl::Duration patience) {
  const absl::Time deadline = SteadyNow() + timeout;
  absl::Time over_at = absl::InfiniteFuture();
  for (;;) {
    Advance();
    const absl::Time now = SteadyNow();
    bool all_ended = true;
    for (const Task& task : tasks_) {
      if (task.abandoned && task.pid == 0) continue;
      const bool ended = task.pid == 0 && task.exit_code.has_value() &&
                         task.restart_at == absl::InfiniteFuture();
      if (ended && *task.exit_code != 0) {
        return absl::InternalError(absl::StrCat(
            task.name, " has ended with ", *task.exit_code, "\n", Describe()));
      }
      all_ended = all_ended && ended;
      if (task.name == "ps-0" && ended) over_at = std::min(over_at, now);
    }
    if (all_ended) return absl::OkStatus();
    if (now >= over_at + patience) {
      for (Task& task : tasks_) {
        const bool waits =
            task.pid != 0 || task.restart_at < absl::InfiniteFuture();
        if (task.hit && waits && !task.abandoned) {
          task.restart_at = absl::InfiniteFuture();
          Abandon(task.name);
        }
      }
    }
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "not over after ", absl::FormatDuration(timeout), "\n", Describe()));
    }
  }
}

std::string TaskCluster::Describe() const {
  std::string text =
      absl::StrCat("last status: ", status_.ShortDebugString(), "\n");
  for (const Task& task : tasks_) {
    absl::StrAppend(
        &text, "---- ", task.name, ", ",
        task.pid != 0
            ? absl::StrCat("pid ", task.pid)
            : absl::StrCat("ended with ", task.exit_code.value_or(-1)),
        ", ", log_path(task.name), "\n", LastLines(log(task.name), 25), "\n");
  }
  return text;
}

}  // namespace holdfast
