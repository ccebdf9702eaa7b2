// SPDX-License-Identifier: Apache-2.0

// The ps daemon: flags -> Server::Options -> Start -> Wait.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/byte_size.h"
#include "common/base/status_macros.h"
#include "common/process/daemon.h"
#include "common/process/flags.h"
#include "common/process/machine_limits.h"
#include "common/process/process_name.h"
#include "common/rpc/timeouts.h"
#include "glog/logging.h"
#include "ps_server/server.h"

ABSL_FLAG(
    std::string, listen_address, "",
    "host:port to listen on. Default: the task's address in the cluster.");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(10),
          "How long a task may be silent before it counts as lost. The value "
          "on ps 0 applies to the whole job.");
ABSL_FLAG(absl::Duration, start_timeout, holdfast::kDefaultTimeout,
          "How long the job waits for tasks that have not started.");
ABSL_FLAG(
    absl::Duration, step_timeout, holdfast::kDefaultTimeout,
    "How long a step waits for contributions, if the job file does not say.");
ABSL_FLAG(absl::Duration, recovery_timeout, holdfast::kDefaultTimeout,
          "How long the job waits for a lost task, or another in its place, if "
          "the job file does not say.");
ABSL_FLAG(std::string, checkpoint_dir, "",
          "Where the job's state is saved, and from where it is restored after "
          "a restart: "
          "one directory for all ps of the job, on a file system that they "
          "share. Default: no checkpoints; the job ends if a ps is lost.");
ABSL_FLAG(
    std::string, warm_start, "",
    "Folder of a checkpoint, for instance of another job, under its own name "
    "(g0001-step00001000): variables with the same name and shape begin with "
    "its values. The value on ps 0 applies. Requires --checkpoint_dir.");
ABSL_FLAG(bool, warm_start_slots, false,
          "With --warm_start, also take over the optimizer slots of variables "
          "whose optimizer is of the same kind, and Adam's number of updates. "
          "The value on ps 0 applies.");
ABSL_FLAG(std::string, tensorboard_dir, "",
          "Folder in which ps 0 writes loss, rates and evaluations for "
          "TensorBoard. Default: they are not written.");
ABSL_FLAG(absl::Duration, grace, absl::Seconds(20),
          "How long a ps that is told to stop (SIGTERM) waits for a last "
          "checkpoint.");
ABSL_FLAG(
    std::string, memory_limit, "",
    "Memory that this ps may use for its share of the job, such as 8GiB or "
    "500MB; "
    "a job that needs more is refused. Default: 80 % of the machine's (or "
    "container's).");
ABSL_FLAG(int, update_threads, 0,
          "Threads that apply an update of more than 1 MiB of values, 1 to "
          "256. 0: one per core of the machine (or container), but at most 8, "
          "because memory bandwidth is the limit.");
ABSL_FLAG(
    int, rpc_threads, 0,
    "Threads that serve calls, 1 to 256. More threads serve more connections "
    "at a time, but a single small call more slowly. 0: one per 4 cores.");

namespace holdfast {
namespace {

constexpr char kDescription[] =
    R"(one parameter server (ps) of a cluster.

  ps_server --task_index=0 --checkpoint_dir=checkpoints \
      --ps_hosts=localhost:2222 --worker_hosts=localhost:2230

Exit codes: 0 the job is done; 1 it failed; 2 the flags or the cluster are
wrong; 138 the ps may be started again: it was told to stop, was fenced, or
could not reach the others.)";

const std::vector<FlagGroup>& FlagGroups() {
  static const auto* const groups = new std::vector<FlagGroup>{
      {"Checkpoints",
       {"checkpoint_dir", "warm_start", "warm_start_slots", "grace"}},
      {"Reports", {"tensorboard_dir"}},
      {"Timeouts",
       {"lease", "start_timeout", "step_timeout", "recovery_timeout"}},
      {"Resources",
       {"listen_address", "memory_limit", "update_threads", "rpc_threads"}},
  };
  return *groups;
}

// The minimum of a flag. A lease is judged, and renewed, several times within
// its length.
constexpr absl::Duration kMinLease = absl::Milliseconds(500);
constexpr absl::Duration kMinTimeout = absl::Milliseconds(1);

absl::Status CheckAtLeast(const char* flag, absl::Duration value,
                          absl::Duration least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "flag --", flag, ": ", absl::FormatDuration(value),
      " is too short: it must be at least ", absl::FormatDuration(least)));
}

absl::StatusOr<int64_t> MemoryLimit() {
  const std::string text = absl::GetFlag(FLAGS_memory_limit);
  if (text.empty()) return DefaultMemoryLimit(/*root=*/"");
  const absl::StatusOr<int64_t> bytes = ParseBytes(text);
  if (bytes.ok()) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("flag --memory_limit: ", bytes.status().message()));
}

// A few cores use all the memory bandwidth of a machine.
constexpr int kMaxDefaultUpdateThreads = 8;
constexpr int kMaxThreads = 256;
// One thread moves the bytes of a connection at about 2.5 GB/s.
constexpr int kCoresPerRpcThread = 4;

// The value `threads` of `flag`; if that is 0, `by_default`, but at least 1.
absl::StatusOr<int> Threads(const char* flag, int threads, int by_default) {
  if (threads == 0) return std::max(by_default, 1);
  if (threads > 0 && threads <= kMaxThreads) return threads;
  return absl::InvalidArgumentError(absl::StrCat(
      "flag --", flag, ": ", threads, " is not from 1 to ", kMaxThreads));
}

absl::StatusOr<Server::Options> OptionsFromFlags() {
  HOLDFAST_ASSIGN_OR_RETURN(const auto self, TaskFromFlags(kPsJob));
  Server::Options options{self.cluster, self.task};
  options.listen_address = absl::GetFlag(FLAGS_listen_address);
  HOLDFAST_ASSIGN_OR_RETURN(const auto connections,
                            ConnectionsFromFlags(options.task));
  options.credentials = connections.credentials;
  options.insecure = connections.insecure;
  HOLDFAST_ASSIGN_OR_RETURN(const auto http,
                            HttpFromFlags(/*everywhere=*/options.insecure));
  options.http = http;
  HOLDFAST_ASSIGN_OR_RETURN(const auto status_port,
                            StatusFromFlags(connections));
  options.status_port = status_port;
  options.lease = absl::GetFlag(FLAGS_lease);
  options.start_timeout = absl::GetFlag(FLAGS_start_timeout);
  options.step_timeout = absl::GetFlag(FLAGS_step_timeout);
  options.recovery_timeout = absl::GetFlag(FLAGS_recovery_timeout);
  options.checkpoint_dir = absl::GetFlag(FLAGS_checkpoint_dir);
  options.warm_start = absl::GetFlag(FLAGS_warm_start);
  options.warm_start_slots = absl::GetFlag(FLAGS_warm_start_slots);
  options.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  options.grace = absl::GetFlag(FLAGS_grace);
  for (const absl::Status& status :
       {CheckAtLeast("lease", options.lease, kMinLease),
        CheckAtLeast("start_timeout", options.start_timeout, kMinTimeout),
        CheckAtLeast("step_timeout", options.step_timeout, kMinTimeout),
        CheckAtLeast("recovery_timeout", options.recovery_timeout,
                     absl::ZeroDuration()),
        CheckAtLeast("grace", options.grace, absl::ZeroDuration())}) {
    if (!status.ok()) return status;
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto memory_limit, MemoryLimit());
  options.memory_limit_bytes = memory_limit;
  const int cores = AvailableCores();
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto update_threads,
      Threads("update_threads", absl::GetFlag(FLAGS_update_threads),
              std::min(cores, kMaxDefaultUpdateThreads)));
  options.update_threads = update_threads;
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto rpc_threads,
      Threads("rpc_threads", absl::GetFlag(FLAGS_rpc_threads),
              cores / kCoresPerRpcThread));
  options.rpc_threads = rpc_threads;
  HOLDFAST_ASSIGN_OR_RETURN(const auto same_host, SameHostFromFlags());
  options.same_host = same_host.enabled;
  options.same_host_dir = same_host.directory;
  return options;
}

int Main(int argc, char** argv) {
  const std::optional<int> exit_code =
      BeginDaemon(argc, argv, kDescription, FlagGroups());
  if (exit_code.has_value()) return *exit_code;

  const absl::StatusOr<Server::Options> options = OptionsFromFlags();
  if (!options.ok()) return UsageError(options.status());
  LogVersion();
  const std::string name =
      absl::StrCat(options->task.ToString(), " (", ProcessName(), ")");

  const absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(*options);
  if (!server.ok()) return StartError(server.status());
  LOG(INFO) << name << " may take " << options->memory_limit_bytes
            << " bytes of memory (--memory_limit)";
  StopSignals signals([&](const std::string& signal) {
    (*server)->Stop(absl::StrCat(name, " was told to stop by ", signal));
  });

  const absl::Status status = (*server)->Wait();
  if (absl::IsCancelled(status)) {
    // It was told to stop, so this is not an error.
    LOG(INFO) << status.message() << ", and ends";
    return ExitCodeOfJoin(status);
  }
  if (!status.ok()) {
    LOG(ERROR) << name << " ends: " << status.message();
    return ExitCodeOfJoin(status);
  }
  LOG(INFO) << name << " ends: " << (*server)->end();
  return kExitDone;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) { return holdfast::Main(argc, argv); }
