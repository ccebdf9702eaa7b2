// SPDX-License-Identifier: Apache-2.0
#include "common/process/daemon.h"

#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/printable_text.h"
#include "common/process/flags.h"
#include "common/process/json_log.h"
#include "common/process/text_log.h"
#include "common/process/version.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/https.h"
#include "glog/logging.h"

ABSL_FLAG(std::string, job_name, "",
          "Job of this task: ps, worker or chief. Default, if --task_index is "
          "given: the job that this program is for.");
ABSL_FLAG(std::optional<int64_t>, task_index, std::nullopt,
          "Index of this task in its job.");
ABSL_FLAG(
    std::string, cluster_spec, "",
    "The cluster: the path of a file with JSON, or the JSON itself, such as "
    R"({"ps": ["a:2222"], "worker": ["b:2222", "c:2222"]}.)");
ABSL_FLAG(std::string, ps_hosts, "",
          "The cluster, instead of --cluster_spec: host:port of each ps task, "
          "separated by commas; ps-{4}.net:2222 stands for ps-0.net:2222 to "
          "ps-3.net:2222.");
ABSL_FLAG(std::string, worker_hosts, "",
          "host:port of each worker task, as in --ps_hosts.");
ABSL_FLAG(std::string, chief_hosts, "",
          "host:port of the chief, if the cluster has one.");
ABSL_FLAG(
    std::string, tls_dir, "",
    "Use mutual TLS, with this folder's ca.crt, tls.crt and tls.key: made "
    "by `holdfast certs`, or mounted from a Kubernetes Secret. "
    "Default: connections are not encrypted.");
ABSL_FLAG(bool, insecure, false,
          "Allow unencrypted connections to leave this machine: without "
          "--tls_dir, those between tasks, which then trust every peer, and "
          "those to --status_port; with or without it, those to --http_port. "
          "Without this flag they are limited to loopback.");
ABSL_FLAG(std::string, same_host, "auto",
          "auto: a ps and the workers of its host exchange tensors through "
          "shared memory if both can; off: all tensors are sent over the "
          "network. The results are bit-identical.");
ABSL_FLAG(
    std::string, same_host_dir, "",
    "Directory for the sockets by which tasks of one host find each other, "
    "such as a volume that their containers share. A ps makes its socket "
    "there, and everyone who may enter the directory can connect to it; a "
    "worker shares memory only with a ps whose socket is there. Default: for a "
    "ps, a folder that only its user can access, in $XDG_RUNTIME_DIR or /tmp; "
    "for a worker, wherever the ps's socket is.");
ABSL_FLAG(int, http_port, 0,
          "Port for unencrypted HTTP probes: /healthz (the process works) and "
          "/readyz (it takes part in its job). On loopback only, unless "
          "--insecure. 0: no probes.");
ABSL_FLAG(std::optional<int>, status_port, std::nullopt,
          "Port for status pages, for people and tools; those of ps 0 include "
          "the job's status. With --tls_dir it serves HTTPS to operators with "
          "certificates; otherwise plain HTTP, on loopback only unless "
          "--insecure. 0: a free port, which is logged. Default: none.");

ABSL_FLAG(std::string, log_format, "text",
          "Format of the log on standard error: text, or json (one object per "
          "line) for systems that collect logs.");

namespace holdfast {
namespace {

// File descriptors, for several connections to each of thousands of workers.
// The limit is finite because counting the open files takes longer the more
// there are.
constexpr rlim_t kMaxFiles = 16384;

constexpr char kClusterHelp[] =
    R"(
The cluster and this task's place in it are given by flags, or otherwise by the
environment variable TF_CONFIG, in TensorFlow's format:

  TF_CONFIG='{"cluster": {"ps": ["a:2222"], "worker": ["b:2222"]},
              "task": {"type": "worker", "index": 0}}'

--help prints this text, --version the version.

)";

std::vector<FlagGroup> WithCommonGroups(absl::Span<const FlagGroup> groups) {
  std::vector<FlagGroup> all = {{"Cluster and task",
                                 {"cluster_spec", "ps_hosts", "worker_hosts",
                                  "chief_hosts", "job_name", "task_index"}}};
  all.insert(all.end(), groups.begin(), groups.end());
  all.push_back({"Connections",
                 {"tls_dir", "insecure", "same_host", "same_host_dir",
                  "http_port", "status_port"}});
  all.push_back({"Log", {"log_format"}});
  return all;
}

constexpr char kTextLogFormat[] = "text";
constexpr char kJsonLogFormat[] = "json";

// This program's name, for its messages.
std::string* ProgramName() {
  static std::string* const name = new std::string("holdfast");
  return name;
}

sigset_t StopSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

int MakeSignalFd() {
  const sigset_t set = StopSet();
  const int fd = signalfd(-1, &set, SFD_CLOEXEC);
  PCHECK(fd >= 0);
  return fd;
}

int MakeEventFd() {
  const int fd = eventfd(0, EFD_CLOEXEC);
  PCHECK(fd >= 0);
  return fd;
}

}  // namespace

void TuneProcess() {
  // Debian's Abseil searches for lock cycles at each Lock, which takes about 2
  // % of a daemon's time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Without this, the memory of each large message would be returned to the
  // system, and faulted in page by page for the next message.
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  // A heap keeps the maximum that it has ever held. With several heaps, a push
  // may be in any of them, so a ps would keep the sum of their maximums; and
  // heaps other than the main one return memory regardless of the threshold.
  mallopt(M_ARENA_MAX, 1);
  // Connections soon reach the usual limit of 1024.
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kMaxFiles) {
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, kMaxFiles);
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

std::optional<int> BeginDaemon(int argc, char** argv,
                               absl::string_view description,
                               absl::Span<const FlagGroup> groups) {
  TuneProcess();
  if (argc > 0) {
    const std::string path = argv[0];
    *ProgramName() = path.substr(path.rfind('/') + 1);
  }
  const sigset_t set = StopSet();
  PCHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  google::InitGoogleLogging(ProgramName()->c_str());
  LimitGrpcLog();

  const absl::StatusOr<CommandLine> line =
      ParseFlags(std::vector<std::string>(argv + (argc > 0), argv + argc));
  const std::string log_format = absl::GetFlag(FLAGS_log_format);
  if (log_format == kJsonLogFormat) {
    StartJsonLog();
  } else {
    StartTextLog();
  }
  if (!line.ok()) return UsageError(line.status());
  if (line->help) {
    std::cout << *ProgramName() << ": " << description << "\n"
              << kClusterHelp << FlagsHelp(WithCommonGroups(groups));
    return kExitDone;
  }
  if (line->version) {
    std::cout << VersionLine(*ProgramName()) << std::endl;
    return kExitDone;
  }
  if (!line->arguments.empty()) {
    return UsageError(absl::InvalidArgumentError(
        absl::StrCat("takes only flags, but was given \"",
                     line->arguments.front(), "\"; --help lists them")));
  }
  if (log_format != kTextLogFormat && log_format != kJsonLogFormat) {
    return UsageError(absl::InvalidArgumentError(absl::StrCat(
        "flag --log_format: \"", log_format, "\" is neither text nor json")));
  }
  return std::nullopt;
}

void LogVersion() { LOG(INFO) << VersionLine(*ProgramName()); }

int UsageError(const absl::Status& status) {
  // Log collectors read all of standard error.
  if (absl::GetFlag(FLAGS_log_format) == kJsonLogFormat) {
    LOG(ERROR) << status.message();
  } else {
    std::cerr << *ProgramName() << ": " << PrintableLines(status.message())
              << std::endl;
  }
  return kExitUsage;
}

int StartError(const absl::Status& status) {
  UsageError(status);
  return ExitCodeOfStart(status);
}

absl::StatusOr<ResolvedTask> TaskFromFlags(absl::string_view default_job) {
  ClusterFlags flags;
  flags.cluster_spec = absl::GetFlag(FLAGS_cluster_spec);
  flags.ps_hosts = absl::GetFlag(FLAGS_ps_hosts);
  flags.worker_hosts = absl::GetFlag(FLAGS_worker_hosts);
  flags.chief_hosts = absl::GetFlag(FLAGS_chief_hosts);
  flags.job_name = absl::GetFlag(FLAGS_job_name);
  flags.task_index = absl::GetFlag(FLAGS_task_index);
  if (flags.job_name.empty() && flags.task_index.has_value()) {
    flags.job_name = std::string(default_job);
  }
  const char* tf_config = std::getenv("TF_CONFIG");
  auto resolved = ResolveTask(flags, tf_config == nullptr ? "" : tf_config);
  if (resolved.ok()) SetLogTask(resolved->task);
  return resolved;
}

absl::StatusOr<ConnectionFlags> ConnectionsFromFlags(const TaskId& self) {
  ConnectionFlags flags;
  flags.insecure = absl::GetFlag(FLAGS_insecure);
  const std::string folder = absl::GetFlag(FLAGS_tls_dir);
  if (folder.empty()) return flags;
  absl::StatusOr<Credentials> credentials = Credentials::FromFolder(folder);
  if (!credentials.ok()) {
    return absl::Status(
        credentials.status().code(),
        absl::StrCat("flag --tls_dir: ", credentials.status().message(),
                     "; `holdfast certs` makes such folders"));
  }
  if (credentials->identity().task != self) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --tls_dir: ", folder, "/tls.crt is the certificate of ",
        credentials->identity().ToUri(), ", and this is ", self.ToString()));
  }
  flags.credentials = *std::move(credentials);
  return flags;
}

absl::StatusOr<SameHostFlags> SameHostFromFlags() {
  SameHostFlags flags;
  const std::string text = absl::GetFlag(FLAGS_same_host);
  if (text != "auto" && text != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --same_host: \"", text, "\" is not auto or off"));
  }
  flags.enabled = text == "auto";
  flags.directory = absl::GetFlag(FLAGS_same_host_dir);
  return flags;
}

absl::StatusOr<std::optional<HttpServer::Options>> HttpFromFlags(
    bool everywhere) {
  const int port = absl::GetFlag(FLAGS_http_port);
  if (port == 0) return std::nullopt;
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --http_port: ", port, " is not from 1 to 65535"));
  }
  HttpServer::Options options;
  options.port = static_cast<uint16_t>(port);
  options.everywhere = everywhere;
  return options;
}

absl::StatusOr<std::optional<HttpServer::Options>> StatusFromFlags(
    const ConnectionFlags& connections) {
  const std::optional<int> port = absl::GetFlag(FLAGS_status_port);
  if (!port.has_value()) return std::nullopt;
  if (*port < 0 || *port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --status_port: ", *port, " is not from 0 to 65535"));
  }
  HttpServer::Options options;
  options.port = static_cast<uint16_t>(*port);
  const bool secure = connections.credentials.secure();
  options.everywhere = secure || connections.insecure;
  if (secure) options.tls = HttpsForOperators(connections.credentials);
  return options;
}

StopSignals::StopSignals(
    absl::AnyInvocable<void(const std::string& signal)> stop)
    : stop_(std::move(stop)),
      signals_(MakeSignalFd()),
      quit_(MakeEventFd()),
      thread_(&StopSignals::Watch, this) {}

StopSignals::~StopSignals() {
  const uint64_t one = 1;
  PCHECK(write(quit_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  close(signals_);
  close(quit_);
}

void StopSignals::Watch() {
  bool stopped = false;
  for (;;) {
    pollfd fds[] = {{signals_, POLLIN, 0}, {quit_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signals_, &info, sizeof(info)) != sizeof(info)) continue;
    const int number = static_cast<int>(info.ssi_signo);
    if (stopped) _exit(ExitCodeOfSignal(number));
    stopped = true;
    stop_(number == SIGTERM ? "SIGTERM" : "SIGINT");
  }
}

}  // namespace holdfast
