#ifndef HOLDFAST_TESTS_FAULTS_CLUSTER_H_
#define HOLDFAST_TESTS_FAULTS_CLUSTER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.grpc.pb.h"

namespace holdfast {

// The daemons of one job as processes, under a supervisor as on a cluster: a
// task that ends with kExitRestart or by a signal is started again after a
// pause; one that ends with 0 is done; any other end is a failure. Each task
// writes its log to FOLDER/NAME.log, with a line for each start and end.
//
// Nothing happens but inside Advance and what calls it. The processes die with
// the thread that made the cluster. Thread-compatible.
class TaskCluster {
 public:
  struct Options {
    // Of the test's own; holds job file and logs.
    std::string folder;
    std::string job_file;
    int num_ps = 2;
    int num_workers = 2;
    // Evaluators, to which the chief leaves evaluations during training.
    int num_evaluators = 0;
    std::string worker_binary;
    std::vector<std::string> ps_flags;
    std::vector<std::string> worker_flags;
    // Of ps i, instead of FOLDER/checkpoints; empty: none.
    std::function<std::string(int ps)> checkpoint_dir;
    // host:port of the ps, and what a command line of a task begins with:
    // where tasks do not run on this machine's own network. Default: free ports
    // of localhost, nothing.
    std::vector<std::string> ps_addresses;
    std::function<std::vector<std::string>(const std::string& task)> launcher;
    // Whether everything is encrypted, by certificates made in FOLDER/tls.
    bool tls = false;
    // Before a task is started again.
    absl::Duration restart_delay = absl::Milliseconds(100);
  };

  // Starts nothing.
  explicit TaskCluster(const Options& options);
  // Kills what still runs.
  ~TaskCluster();

  TaskCluster(const TaskCluster&) = delete;
  TaskCluster& operator=(const TaskCluster&) = delete;

  // "ps-0", ..., "worker-0", ..., "evaluator-0", ...
  const std::vector<std::string>& names() const { return names_; }

  void StartAll();
  void Start(const std::string& name);
  // Sends a signal to a task that runs, paused or not.
  void Signal(const std::string& name, int signal);
  // SIGSTOP, and SIGCONT after `length`.
  void Pause(const std::string& name, absl::Duration length);
  // Notes that the task has been hit by other means.
  void SetHit(const std::string& name) { Find(name).hit = true; }
  // Kills it, and does not start it again.
  void Abandon(const std::string& name);

  // Reaps, starts again, wakes up, and asks the coordinator how it is.
  void Advance();
  // Advances until `done`. False after `timeout`.
  bool AdvanceUntil(const std::function<bool()>& done, absl::Duration timeout);
  void AdvanceFor(absl::Duration time);
  // Advances until every task has ended with 0. A task that was hit (by Signal,
  // Pause or SetHit) may have nobody left to tell it of the end: it is
  // abandoned `patience` after ps 0 has ended with 0. Errors: DEADLINE_EXCEEDED
  // after `timeout`, INTERNAL when a task has failed; both with Describe.
  absl::Status AwaitEnd(absl::Duration timeout,
                        absl::Duration patience = absl::Seconds(5));

  // Whether a task has ended as none should.
  bool failed() const;
  bool running(const std::string& name) const;
  int starts(const std::string& name) const;
  // Its process. 0: none.
  pid_t pid(const std::string& name) const { return Find(name).pid; }
  // Of the task's last end, as a shell would have it; none while it has not
  // ended since it was last started.
  std::optional<int> exit_code(const std::string& name) const;
  // As the coordinator last said, at most some 10 ms ago where it can speak.
  const proto::GetStatusResponse& status() const { return status_; }
  // The greatest global step that was ever seen.
  uint64_t max_step() const { return max_step_; }
  // The most bytes of tensors that all ps were seen to have passed through
  // shared memory, in their lives.
  uint64_t max_shared_bytes() const { return max_shared_bytes_; }

  std::string log(const std::string& name) const;
  std::string log_path(const std::string& name) const;
  std::string checkpoint_dir() const;
  std::string result_file() const;
  const std::string& ps_hosts_flag() const { return ps_hosts_flag_; }
  std::string coordinator_address() const;
  // Who is how, and the ends of all logs.
  std::string Describe() const;

 private:
  struct Task {
    std::string name;
    std::vector<std::string> args;
    pid_t pid = 0;  // 0: does not run
    int starts = 0;
    bool hit = false;
    bool abandoned = false;
    std::optional<int> exit_code;
    absl::Time restart_at = absl::InfiniteFuture();
    absl::Time resume_at = absl::InfiniteFuture();
  };

  Task& Find(const std::string& name);
  const Task& Find(const std::string& name) const;
  void Spawn(Task* task);
  void Reap(Task* task);
  void Note(const Task& task, const std::string& line) const;
  void AskStatus();

  const Options options_;
  std::vector<std::string> names_;
  std::vector<std::string> ps_addresses_;
  std::string ps_hosts_flag_;
  std::vector<Task> tasks_;
  std::unique_ptr<proto::Coordinator::Stub> coordinator_;
  absl::Time ask_at_ = absl::InfinitePast();
  proto::GetStatusResponse status_;
  uint64_t max_step_ = 0;
  uint64_t max_shared_bytes_ = 0;
};

// The last `lines` lines of a text.
std::string LastLines(const std::string& text, int lines);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_CLUSTER_H_
