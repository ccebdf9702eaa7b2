#ifndef HOLDFAST_CLI_LOCAL_RUN_H_
#define HOLDFAST_CLI_LOCAL_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace holdfast {

// A job on this machine. Everything has been tested; see cli/local.cc.
struct LocalRunOptions {
  std::string job_file;
  std::string job_name;
  int ps = 2;
  int workers = 2;
  std::string run_dir;
  std::string ps_binary;
  std::string worker_binary;
  // Given to each daemon, behind what makes it part of the run.
  std::vector<std::string> ps_flags;
  std::vector<std::string> worker_flags;

  // Between two looks at the job's progress.
  absl::Duration status_period = absl::Milliseconds(200);
  // How long a daemon may take to end once it has been told to; then it is
  // killed.
  absl::Duration stop_timeout = absl::Seconds(5);
  // How long the others may take to end once the first worker has seen the job
  // done and ended; then they are named and killed. Must be more than the ps
  // wait for workers that have gone without a word.
  absl::Duration drain_timeout = absl::Seconds(30);
};

// Runs the job: starts its daemons, shows its progress on standard output, and
// waits until all of them have ended, or ends them. None is left behind,
// however this process ends.
//
// Returns the exit code: kExitDone after the summary; kExitFailed after the
// name, exit status and last words of the daemon that was first to end wrongly,
// or that did not end; kExitUsage when the run directory cannot be used; 130
// when the user ended it.
int RunLocally(const LocalRunOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOCAL_RUN_H_
