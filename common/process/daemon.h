// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_PROCESS_DAEMON_H_
#define HOLDFAST_COMMON_PROCESS_DAEMON_H_

#include <optional>
#include <string>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/job/cluster_spec.h"
#include "common/process/exit_code.h"
#include "common/process/flags.h"
#include "common/process/http_server.h"
#include "common/rpc/credentials.h"

namespace holdfast {

// Code shared by the main functions of the daemons. A program that links this
// has the flags --job_name, --task_index, --cluster_spec, --ps_hosts,
// --worker_hosts, --chief_hosts, --tls_dir, --insecure, --same_host,
// --same_host_dir, --http_port, --status_port and --log_format.

// Applies settings for a program that moves tensors. Part of BeginDaemon; must
// be called before any thread starts.
void TuneProcess();

// The first call of a main function: from here on logs go to stderr, and
// SIGTERM and SIGINT are blocked until there is a StopSignals. Sets the flags
// from the command line, and rejects arguments that are not flags. Returns an
// exit code if the program must exit: after --version; after --help, which
// prints `description` and all flags, with headings for `groups` and the common
// ones; and after a usage error, which is printed on stderr.
std::optional<int> BeginDaemon(int argc, char** argv,
                               absl::string_view description,
                               absl::Span<const FlagGroup> groups);

// Writes the first line of a daemon's log. Called once the flags are known to
// be valid, so that a usage error is a single line.
void LogVersion();

// Prints "<program>: <message>" on stderr, or the message as a line of the JSON
// log. Returns kExitUsage.
int UsageError(const absl::Status& status);

// Like UsageError, for a daemon that could not start. Returns ExitCodeOfStart.
int StartError(const absl::Status& status);

// The cluster and task that the flags or the environment variable TF_CONFIG
// name (common/job/cluster_spec.h). If only --task_index is given, the job is
// `default_job`. From here on the JSON log names the task.
// Errors: as holdfast::ResolveTask.
absl::StatusOr<ResolvedTask> TaskFromFlags(absl::string_view default_job);

// The settings of --tls_dir and --insecure for connections to other tasks,
// which may leave this machine with either flag.
struct ConnectionFlags {
  Credentials credentials;
  bool insecure = false;
};
// Errors: INVALID_ARGUMENT for the certificate of another task; those of
// Credentials::FromFolder.
absl::StatusOr<ConnectionFlags> ConnectionsFromFlags(const TaskId& self);

// The settings of --same_host and --same_host_dir for tasks of the same host
// (docs/protocol/same_host.md).
struct SameHostFlags {
  bool enabled = true;
  // The directory of the sockets; empty for the default.
  std::string directory;
};
// Errors: INVALID_ARGUMENT.
absl::StatusOr<SameHostFlags> SameHostFromFlags();

// Where the daemon serves HTTP, by --http_port; nothing without the flag.
// Anyone who can reach the port can read its pages, so like every listener it
// is limited to loopback, unless `everywhere`.
// Errors: INVALID_ARGUMENT for an invalid port.
absl::StatusOr<std::optional<HttpServer::Options>> HttpFromFlags(
    bool everywhere);

// Where the daemon serves its status pages, by --status_port; nothing without
// the flag. With certificates, over HTTPS for operators; otherwise as for
// --http_port.
// Errors: INVALID_ARGUMENT for an invalid port.
absl::StatusOr<std::optional<HttpServer::Options>> StatusFromFlags(
    const ConnectionFlags& connections);

// Turns SIGTERM and SIGINT into a call, which happens at once if a signal is
// already pending. The second signal ends the process immediately, with
// ExitCodeOfSignal.
//
// BeginDaemon must have been called before, and no thread may have been started
// before that. At most one may exist at a time. Thread-compatible.
class StopSignals {
 public:
  // Calls `stop` once, from its own thread, with the signal's name.
  explicit StopSignals(
      absl::AnyInvocable<void(const std::string& signal)> stop);
  // From here on the signals are blocked again.
  ~StopSignals();

  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void Watch();

  absl::AnyInvocable<void(const std::string& signal)> stop_;
  const int signals_;  // a signalfd
  const int quit_;     // an eventfd
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_DAEMON_H_
