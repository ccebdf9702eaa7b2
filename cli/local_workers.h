// SPDX-License-Identifier: Apache-2.0
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

// The kind of workers in a run on this machine: which program is started for
// each, which of them end the job, and what the run reports afterwards.
// Everything else, in particular the ps, is the same for all kinds.
//
// Immutable, so safe from any thread.
class LocalWorkers {
 public:
  virtual ~LocalWorkers() = default;

  // Name of the job, for people.
  virtual std::string job_name() const = 0;

  // Whether the finished job of `journal` has more to do, given what these
  // workers would train, as far as can be known before they run. Errors:
  // FAILED_PRECONDITION when they would train another job.
  virtual absl::StatusOr<bool> HasMoreToDo(
      const proto::Journal& journal) const = 0;

  // Folders of a worker.
  struct Folders {
    // Folder of the worker's certificate; empty if the run is not encrypted.
    std::string tls;
    // Folder of the sockets of the tasks with which the worker shares memory;
    // empty if it shares memory with all tasks.
    std::string same_host;
    // Folder of checkpoints, which evaluators read; empty for workers.
    std::string checkpoints;
  };
  // The program to start for `worker`, which is a task of `cluster` or an
  // evaluator.
  virtual LocalCluster::Program ProgramFor(
      const TaskId& worker, const ClusterSpec& cluster, const Folders& folders,
      const RunDirectory& directory) const = 0;

  // The workers that must end before the job is over: when all of them have
  // ended successfully, the other tasks are given some time to end as well.
  virtual std::vector<TaskId> Awaited(const ClusterSpec& cluster) const = 0;

  // The worker whose output is shown while it runs, if any.
  virtual std::optional<TaskId> Shown() const = 0;

  // The outcome of a run in which all tasks have ended successfully, for
  // people, in whole lines. `journal` is the journal of its checkpoints.
  // Errors: INTERNAL if an expected file or value is missing.
  virtual absl::StatusOr<std::string> Summary(
      const RunDirectory& directory,
      const absl::StatusOr<proto::Journal>& journal) const = 0;
};

// Returns a name such as "worker-0", which is used in the names of a task's
// files, and in messages.
std::string DaemonName(const TaskId& task);

// Runs ps_worker, or a program with the same flags, which trains the job of a
// job file. The first worker evaluates, and leaves the result in the run
// directory.
class JobFileWorkers : public LocalWorkers {
 public:
  struct Options {
    std::string job_file;
    // Contents of the job file, with --seed applied.
    proto::Job job;
    std::string binary;
    // Given to each worker, after the flags that make it part of the run.
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

// Runs any program that trains through the client, such as a Python script. The
// program is started unchanged, and gets its place in the cluster from
// environment variables.
//
//   TF_CONFIG         cluster and task, in TensorFlow's form
//   HOLDFAST_TLS_DIR  the folder of its certificate, if the run is encrypted
//   HOLDFAST_SAME_HOST_DIR
//                     the folder of the sockets of the tasks with which it
//                     shares memory, unless it shares memory with all
//   OMP_NUM_THREADS   so that workers do not compete for cores
//   PYTHONUNBUFFERED  so that the log of a killed worker is complete
//
// The program may do anything before and after the training, so the job is over
// when all workers have ended successfully.
class CommandWorkers : public LocalWorkers {
 public:
  struct Options {
    // An executable file.
    std::string program;
    std::vector<std::string> args;
    // OMP_NUM_THREADS. Default: 1, unless the environment sets it.
    std::optional<int> threads;
  };

  explicit CommandWorkers(Options options) : options_(std::move(options)) {}

  // The name of the Python script or module if the arguments begin with one,
  // otherwise of the program; without folder or package, and without ".py".
  std::string job_name() const override;
  // Only the workers know what they train, so a job that is finished here is
  // assumed to be theirs.
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
