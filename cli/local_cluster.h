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
// Thread-compatible. To be used from a thread that lives as long as the daemons
// should (ChildProcess::Start).
class LocalCluster {
 public:
  // What to run for one task.
  struct Program {
    // "ps-0": names its files in the run directory.
    std::string name;
    std::string binary;
    std::vector<std::string> args;
    // As ChildProcess::Options::environment.
    std::map<std::string, std::string> environment;
  };

  struct Daemon {
    Program program;
    std::unique_ptr<ChildProcess> process;
    absl::Time started;
    // Set once it has ended and been reaped.
    std::optional<ExitStatus> ended;

    const std::string& name() const { return program.name; }
  };

  // Starts the programs, each with its log and pid file in `directory`, which
  // must outlive this. When one cannot be started, those before it are killed.
  // Errors: those of ChildProcess::Start; of writing a pid file.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(
      const std::vector<Program>& programs, const RunDirectory& directory);

  // Starts a daemon, which has ended, again: with the same arguments, and its
  // log goes on. Errors: as Start.
  absl::Status Restart(const std::string& name);

  // Reaps daemons that have ended. Those of this call, in the order of the
  // programs. SIGCHLD tells when to ask.
  std::vector<const Daemon*> Reap();

  // In the order of the programs.
  const std::vector<Daemon>& daemons() const { return daemons_; }

  // The names of those that have not ended.
  std::vector<std::string> Running() const;

  // Sends `signal` to those of `names` that have not ended.
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
