#ifndef HOLDFAST_CLI_LOCAL_WORKERS_H_
#define HOLDFAST_CLI_LOCAL_WORKERS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/local_cluster.h"
#include "cli/run_directory.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace holdfast {

// The kind of worker that a run on this machine has: what is started for each
// of them, whose end is the job's, and what the run then tells. Everything
// else, the ps above all, is the same for all kinds.
//
// Immutable, so safe from any thread.
class LocalWorkers {
 public:
  virtual ~LocalWorkers() = default;

  // Of the job, for people.
  virtual std::string job_name() const = 0;

  // Whether the job of `journal`, which is finished, has more to do by what
  // these workers would train, as far as can be told before they run.
  // Errors: FAILED_PRECONDITION when they would train another job.
  virtual absl::StatusOr<bool> HasMoreToDo(
      const proto::Journal& journal) const = 0;

  // Folders of a worker.
  struct Folders {
    // Of its certificate; empty: the run is not encrypted.
    std::string tls;
    // Of the sockets of those with which it shares memory; empty: with all.
    std::string same_host;
    // Of checkpoints, which evaluators read; empty for others.
    std::string checkpoints;
  };
  // What to start for `worker`, a task of `cluster`, or an evaluator.
  virtual LocalCluster::Program ProgramFor(
      const TaskId& worker, const ClusterSpec& cluster, const Folders& folders,
      const RunDirectory& directory) const = 0;

  // Those without which the job is not over: when all of them have ended well,
  // the other tasks are given a while to end, too.
  virtual std::vector<TaskId> Awaited(const ClusterSpec& cluster) const = 0;

  // The worker whose output is shown while it runs; nothing: none is.
  virtual std::optional<TaskId> Shown() const = 0;

  // What came out of a run in which all have ended well, for people, in whole
  // lines. `journal`: of its checkpoints. Errors: INTERNAL where something is
  // not there that should be.
  virtual absl::StatusOr<std::string> Summary(
      const RunDirectory& directory,
      const absl::StatusOr<proto::Journal>& journal) const = 0;
};

// "worker-0": names a task's files, and the task for people.
std::string DaemonName(const TaskId& task);

// ps_worker, or a program of the same flags, which trains what a job file
// describes. The first worker evaluates, and leaves the result in the run
// directory.
class JobFileWorkers : public LocalWorkers {
 public:
  struct Options {
    std::string job_file;
    // What is in it, with --seed.
    proto::Job job;
    std::string binary;
    // Given to each, behind what makes it part of the run.
    std::vector<std::string> flags;
  };

  explicit JobFileWorkers(Options options) : options_(std::move(options)) {}

  std::string job_name() const override { return options_.job.name(); }
  absl::StatusOr<bool> HasMoreToDo(
      const proto::Journal& journal) const override;
  LocalCluster::Program ProgramFor(
      const TaskId& worker, const ClusterSpec& cluster, const Folders& folders,
      const RunDirectory& directory) const override;
  std::vector<TaskId> Awaited(const ClusterSpec& cluster) const override;
  std::optional<TaskId> Shown() const override { return std::nullopt; }
  absl::StatusOr<std::string> Summary(
      const RunDirectory& directory,
      const absl::StatusOr<proto::Journal>& journal) const override;

 private:
  const Options options_;
};

// Any program that trains through the client, as a Python script: it is started
// as it is, and told its place by variables of its environment.
//
//   TF_CONFIG         cluster and task, in TensorFlow's form
//   HOLDFAST_TLS_DIR  the folder of its certificate, where the run is encrypted
//   HOLDFAST_SAME_HOST_DIR
//                     the folder of the sockets of those with which it shares
//                     memory, where that is not with all
//   OMP_NUM_THREADS   so that workers do not take each other's cores
//   PYTHONUNBUFFERED  so that the log of one that is killed is whole
//
// It may do what it likes before and after the training, so that the job is
// over when all of them have ended well.
class CommandWorkers : public LocalWorkers {
 public:
  struct Options {
    // A file that can be run.
    std::string program;
    std::vector<std::string> args;
    // OMP_NUM_THREADS; nothing: 1, where the environment does not have it.
    std::optional<int> threads;
  };

  explicit CommandWorkers(Options options) : options_(std::move(options)) {}

  // Of Python's script or module, where the arguments begin with one, or else
  // of the program; without folder or package, and without ".py".
  std::string job_name() const override;
  // What they train is known only to them: what has been brought to its end
  // here is theirs.
  absl::StatusOr<bool> HasMoreToDo(const proto::Journal&) const override {
    return false;
  }
  LocalCluster::Program ProgramFor(
      const TaskId& worker, const ClusterSpec& cluster, const Folders& folders,
      const RunDirectory& directory) const override;
  std::vector<TaskId> Awaited(const ClusterSpec& cluster) const override;
  std::optional<TaskId> Shown() const override;
  absl::StatusOr<std::string> Summary(
      const RunDirectory& directory,
      const absl::StatusOr<proto::Journal>& journal) const override;

 private:
  const Options options_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOCAL_WORKERS_H_
