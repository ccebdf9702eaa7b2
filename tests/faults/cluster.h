// SPDX-License-Identifier: Apache-2.0
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

// The daemons of one job as processes, under a supervisor like a cluster's: a
// task that exits with kExitRestart or is killed by a signal is started again
// after a pause; one that exits with 0 is done; any other end is a failure.
// Each task writes its log to FOLDER/NAME.log, with a line for each start and
// end.
//
// The supervisor runs only inside Advance and the methods that call it. The
// processes die with the thread that created the cluster. Thread-compatible.
class TaskCluster {
 public:
  struct Options {
    // A folder of the test's own, for the job file and the logs.
    std::string folder;
    std::string job_file;
    int num_ps = 2;
    int num_workers = 2;
    // The number of evaluators. With any, the chief does not evaluate during
    // training.
    int num_evaluators = 0;
    std::string worker_binary;
    std::vector<std::string> ps_flags;
    std::vector<std::string> worker_flags;
    // Returns the checkpoint directory of ps i; an empty string means none.
    // Default: FOLDER/checkpoints.
    std::function<std::string(int ps)> checkpoint_dir;
    // For tasks that do not run on this machine's own network: host:port of
    // each ps, and the words that precede a task's command line. Default: free
    // ports of localhost, and no words.
    std::vector<std::string> ps_addresses;
    std::function<std::vector<std::string>(const std::string& task)> launcher;
    // Whether all connections are encrypted, with certificates that are made in
    // FOLDER/tls.
    bool tls = false;
    // The pause before a task is started again.
    absl::Duration restart_delay = absl::Milliseconds(100);
  };

  // Does not start any task.
  explicit TaskCluster(const Options& options);
  // Kills the tasks that still run.
  ~TaskCluster();

  TaskCluster(const TaskCluster&) = delete;
  TaskCluster& operator=(const TaskCluster&) = delete;

  // "ps-0", ..., "worker-0", ..., "evaluator-0", ...
  const std::vector<std::string>& names() const { return names_; }

  void StartAll();
  void Start(const std::string& name);
  // Sends a signal to a running or paused task.
  void Signal(const std::string& name, int signal);
  // Sends SIGSTOP, and SIGCONT after `length`.
  void Pause(const std::string& name, absl::Duration length);
  // Records that the task has been hit by other means.
  void SetHit(const std::string& name) { Find(name).hit = true; }
  // Kills the task and does not start it again.
  void Abandon(const std::string& name);

  // Reaps ended tasks, starts and resumes those that are due, and asks the
  // coordinator for its status.
  void Advance();
  // Advances until `done` returns true. Returns false after `timeout`.
  bool AdvanceUntil(const std::function<bool()>& done, absl::Duration timeout);
  void AdvanceFor(absl::Duration time);
  // Advances until every task has exited with 0. A task that was hit (by
  // Signal, Pause or SetHit) may have no peer left from which to learn that the
  // job has ended: it is abandoned `patience` after ps 0 has exited with 0.
  // Errors: DEADLINE_EXCEEDED after `timeout`, INTERNAL if a task has failed;
  // both include Describe().
  absl::Status AwaitEnd(absl::Duration timeout,
                        absl::Duration patience = absl::Seconds(5));

  // Whether a task has failed.
  bool failed() const;
  bool running(const std::string& name) const;
  int starts(const std::string& name) const;
  // The process ID of the task; 0 if it does not run.
  pid_t pid(const std::string& name) const { return Find(name).pid; }
  // The exit code of the task as a shell reports it; none if the task has not
  // ended since it was last started.
  std::optional<int> exit_code(const std::string& name) const;
  // The coordinator's last answer, some 10 ms old at most if the coordinator
  // can answer.
  const proto::GetStatusResponse& status() const { return status_; }
  // The greatest global step seen so far.
  uint64_t max_step() const { return max_step_; }
  // The greatest number of bytes of tensors, over all ps in their current
  // lives, that was seen to have passed through shared memory.
  uint64_t max_shared_bytes() const { return max_shared_bytes_; }

  std::string log(const std::string& name) const;
  std::string log_path(const std::string& name) const;
  std::string checkpoint_dir() const;
  std::string result_file() const;
  const std::string& ps_hosts_flag() const { return ps_hosts_flag_; }
  std::string coordinator_address() const;
  // The state of every task, and the last lines of all logs.
  std::string Describe() const;

 private:
  struct Task {
    std::string name;
    std::vector<std::string> args;
    pid_t pid = 0;  // 0 if it does not run
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
