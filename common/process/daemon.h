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

// Applies the process's settings for moving tensors. BeginDaemon calls it;
// other programs must call it before any thread starts.
void TuneProcess();

// Must be the first call of a main function. From here on logs go to stderr,
// and SIGTERM and SIGINT are blocked until there is a StopSignals. Sets the
// flags from the command line, and rejects arguments that are not flags.
// Returns an exit code if the program must exit at once: after --version; after
// --help, which prints `description` and all flags, with headings for `groups`
// and for the flags that all daemons have; and after a usage error, which is
// printed on stderr.
std::optional<int> BeginDaemon(int argc, char** argv,
                               absl::string_view description,
                               absl::Span<const FlagGroup> groups);

// Writes the first line of a daemon's log. Call it once the flags are known to
// be valid, so that a usage error is the only line.
void LogVersion();

// Prints "<program>: <message>" on stderr, or, with --log_format=json, the
// message as a line of the log. Returns kExitUsage.
int UsageError(const absl::Status& status);

// Like UsageError, for a daemon that could not start. Returns ExitCodeOfStart.
int StartError(const absl::Status& status);

// The cluster and task that the flags or the environment variable TF_CONFIG
// name (common/job/cluster_spec.h). If only --task_index is given, the job is
// `default_job`. From here on the JSON log names the task.
// Errors: as holdfast::ResolveTask.
absl::StatusOr<ResolvedTask> TaskFromFlags(absl::string_view default_job);

// How the process connects to other tasks. Unless --tls_dir or --insecure is
// given, no connection may leave this machine.
struct ConnectionFlags {
  Credentials credentials;
  bool insecure = false;
};
// Reads the settings of --tls_dir and --insecure for task `self`.
// Errors: INVALID_ARGUMENT if the certificate is another task's; those of
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

// Where the daemon serves HTTP, as --http_port says; nullopt without the flag.
// Anyone who can reach the port can read its pages, so the port can be reached
// only from this machine, unless `everywhere` is true.
// Errors: INVALID_ARGUMENT for an invalid port.
absl::StatusOr<std::optional<HttpServer::Options>> HttpFromFlags(
    bool everywhere);

// Where the daemon serves its status pages, as --status_port says; nullopt
// without the flag. If `connections` has certificates, the pages are served
// over HTTPS, to operators only; otherwise as with --http_port.
// Errors: INVALID_ARGUMENT for an invalid port.
absl::StatusOr<std::optional<HttpServer::Options>> StatusFromFlags(
    const ConnectionFlags& connections);

// Calls a function when SIGTERM or SIGINT arrives, or at once if one is already
// pending. The second signal ends the process immediately, with
// ExitCodeOfSignal.
//
// BeginDaemon must have been called before, and before any thread was started.
// At most one StopSignals may exist at a time. Thread-compatible.
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
