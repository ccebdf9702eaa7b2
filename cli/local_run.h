#ifndef HOLDFAST_CLI_LOCAL_RUN_H_
#define HOLDFAST_CLI_LOCAL_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/local_workers.h"
#include "cli/restarts.h"

namespace holdfast {

// A job on this machine. Everything has been tested; see cli/local.cc.
struct LocalRunOptions {
  // What the workers are; not null.
  std::shared_ptr<const LocalWorkers> kind;
  int ps = 2;
  int workers = 2;
  std::string run_dir;
  std::string ps_binary;
  // Where the ps keep checkpoints; empty: none are made. A run goes on from
  // what it finds there.
  std::string checkpoint_dir;
  // What becomes of a daemon that ends before the job does, in a way that
  // another start may mend (WorthRestarting): it is started again, or, without
  // a value, ends the run.
  std::optional<Restarts::Options> restarts;
  // Given to each ps, behind what makes it part of the run.
  std::vector<std::string> ps_flags;
  // Whether worker i shares memory with ps i, and with no other. There are as
  // many of these as of those.
  bool collocated = false;
  // Whether an evaluator evaluates the checkpoints. There must be some.
  bool evaluator = false;
  // Whether all connections are encrypted, by certificates made for the run.
  bool tls = false;
  // Where on loopback ps 0 serves the status page. 0: a free port. Absent: it
  // does not.
  std::optional<uint16_t> status_port = 0;
  // The command that goes on from where this run is stopped, for people.
  std::string resume_command;

  // Between two looks at the job's progress.
  absl::Duration status_period = absl::Milliseconds(200);
  // How long a daemon may take to end once it has been told to; then it is
  // killed.
  absl::Duration stop_timeout = absl::Seconds(5);
  // How long the others may take to end once the awaited workers have; then
  // they are named and killed. Must be more than the ps wait for workers that
  // have gone without a word.
  absl::Duration drain_timeout = absl::Seconds(30);
};

// Runs the job: starts its daemons, shows its progress on standard output, and
// waits until all of them have ended, or ends them. None is left behind,
// however this process ends.
//
// A job that has been brought to its end, as the checkpoints say, is not run
// again, and nothing in the run directory is touched; nor is anything run in a
// directory that holds the result of another run.
//
// Returns the exit code: kExitDone after the summary, or when the job had been
// done; kExitFailed after the name, exit status and last words of the daemon
// that was first to end wrongly and was not, or not once more, to be started
// again, or that did not end, or when the workers have ended before the job;
// kExitUsage when that daemon said so of the job or
// its flags, or the run directory cannot be used; kExitInterrupted when the
// user ended it.
int RunLocally(const LocalRunOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOCAL_RUN_H_
