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

// What the mains of the daemons have in common. A program that links this has
// the flags --job_name, --task_index, --cluster_spec, --ps_hosts,
// --worker_hosts, --chief_hosts, --tls_dir, --insecure, --same_host,
// --same_host_dir, --http_port, --status_port and --log_format.

// Settings for a program that moves tensors. Part of BeginDaemon; to be called
// before there are threads.
void TuneProcess();

// The first line of a main: logs to stderr from here on, holds SIGTERM and
// SIGINT back until there are StopSignals, sets the flags from the command
// line, and refuses arguments that are not flags. Returns the exit code where
// the program is to end: after --version; after --help, which prints
// `description` and the flags, those of `groups` and the common ones under
// headings; and after a wrong use, which is told on stderr.
std::optional<int> BeginDaemon(int argc, char** argv,
                               absl::string_view description,
                               absl::Span<const FlagGroup> groups);

// The first line of a daemon's log, once its flags are found to be right: a
// wrong use is told in one line.
void LogVersion();

// Prints "<program>: <message>" on stderr, or the message as a line of a log in
// JSON. Returns kExitUsage.
int UsageError(const absl::Status& status);

// As UsageError, of a daemon that could not start. Returns ExitCodeOfStart.
int StartError(const absl::Status& status);

// Cluster and task as the flags or TF_CONFIG in the environment name them
// (common/job/cluster_spec.h). With --task_index alone the job is
// `default_job`. From here on a log in JSON names the task. Errors: as
// holdfast::ResolveTask.
absl::StatusOr<ResolvedTask> TaskFromFlags(absl::string_view default_job);

// What --tls_dir and --insecure say of the connections of `self` with other
// tasks, which may leave this machine with either.
struct ConnectionFlags {
  Credentials credentials;
  bool insecure = false;
};
// Errors: INVALID_ARGUMENT for the certificate of another task; those of
// Credentials::FromFolder.
absl::StatusOr<ConnectionFlags> ConnectionsFromFlags(const TaskId& self);

// What --same_host and --same_host_dir say of tasks of the same host
// (docs/protocol/same_host.md).
struct SameHostFlags {
  bool enabled = true;
  // Where the sockets lie; empty: wherever.
  std::string directory;
};
// Errors: INVALID_ARGUMENT.
absl::StatusOr<SameHostFlags> SameHostFromFlags();

// Where --http_port has the daemon serve HTTP; nothing without the flag. What
// is said there is open to whoever reaches it, so it follows the rule of all
// listening: loopback alone, unless `everywhere`. Errors: INVALID_ARGUMENT for
// what is no port.
absl::StatusOr<std::optional<HttpServer::Options>> HttpFromFlags(
    bool everywhere);

// Where --status_port has the daemon show what it does; nothing without the
// flag. With certificates by HTTPS, for operators; otherwise as --http_port.
// Errors: INVALID_ARGUMENT for what is no port.
absl::StatusOr<std::optional<HttpServer::Options>> StatusFromFlags(
    const ConnectionFlags& connections);

// Turns SIGTERM and SIGINT into a call, which comes at once if they came
// before. The second of them ends the process on the spot, with
// ExitCodeOfSignal.
//
// Needs BeginDaemon before, and no thread started before that. One at a time.
// Thread-compatible.
class StopSignals {
 public:
  // Calls `stop` from a thread of its own with the signal's name, once.
  explicit StopSignals(
      absl::AnyInvocable<void(const std::string& signal)> stop);
  // From then on the signals are held back again.
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
