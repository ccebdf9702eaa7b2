// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_LOCAL_CLUSTER_H_
#define HOLDFAST_CLI_LOCAL_CLUSTER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/child_process.h"
#include "cli/run_directory.h"

namespace holdfast {

// The daemons of one run on this machine.
//
// Thread-compatible. Must be used from a thread that lives as long as the
// daemons should (ChildProcess::Start).
class LocalCluster {
 public:
  // The program to run for one task.
  struct Program {
    // A name such as "ps-0", which is used in the names of the task's files in
    // the run directory.
    std::string name;
    std::string binary;
    std::vector<std::string> args;
    // As in ChildProcess::Options.
    std::map<std::string, std::string> environment;
  };

  struct Daemon {
    Program program;
    std::unique_ptr<ChildProcess> process;
    absl::Time started;
    // Set once the process has ended and was reaped.
    std::optional<ExitStatus> ended;

    const std::string& name() const { return program.name; }
  };

  // Starts the programs, each with its log and PID file in `directory`, which
  // must outlive this. If one cannot be started, those already started are
  // killed. Errors: those of ChildProcess::Start, and of writing a PID file.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(
      const std::vector<Program>& programs, const RunDirectory& directory);

  // Restarts a daemon that has ended, with the same arguments, and appends to
  // its log. Errors: as for Start.
  absl::Status Restart(const std::string& name);

  // Reaps daemons that have ended, and returns them in the order of the
  // programs. To be called on SIGCHLD.
  std::vector<const Daemon*> Reap();

  // In the order of the programs.
  const std::vector<Daemon>& daemons() const { return daemons_; }

  // The names of daemons that have not ended.
  std::vector<std::string> Running() const;

  // Sends `signal` to the daemons in `names` that have not ended.
  void Signal(int signal, const std::vector<std::string>& names);

 private:
  explicit LocalCluster(const RunDirectory* directory)
      : directory_(*directory) {}

  absl::Status StartProcess(Daemon* daemon);

  const RunDirectory& directory_;
  std::vector<Daemon> daemons_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOCAL_CLUSTER_H_
