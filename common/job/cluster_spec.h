// SPDX-License-Identifier: Apache-2.0

// The tasks of a cluster and their addresses, in the forms that TensorFlow's
// users know.
//
//   {"ps": ["a:2222", "b:2222"], "worker": {"0": "c:2222"}}   lists or maps
//   {"ps": ["ps-{2}.net:2222"], ...}   ps-0.net:2222, ps-1.net:2222
//   {"cluster": {...}}                                        the same, wrapped
//   --ps_hosts=a:2222,b:2222 --worker_hosts=c:2222            flags
//   --ps_hosts=ps-{2}.net:2222       ps-0.net:2222,ps-1.net:2222
//   TF_CONFIG={"cluster": {...}, "task": {"type": "ps", "index": 0}}
//
// Jobs are "ps", "worker", "chief" and "evaluator"; "master" is another name
// for "chief". Evaluators need not be listed, as in TensorFlow. *Replicas* are
// the tasks that train: the chief, if one is listed, and then the workers in
// the order of their indices.
#ifndef HOLDFAST_COMMON_JOB_CLUSTER_SPEC_H_
#define HOLDFAST_COMMON_JOB_CLUSTER_SPEC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/task_id.h"

namespace holdfast {

// A parsed address.
struct HostPort {
  // A name or an IP address; an IPv6 address without its brackets.
  std::string host;
  // 1 to 65535.
  uint16_t port = 0;

  // "host:port", "[::1]:80".
  std::string ToString() const;
};

// Parses "host:port"; an IPv6 address is in brackets, "[::1]:80".
// Errors: INVALID_ARGUMENT, saying what is wrong with `address`.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// Whether a server that listens on `host` can be reached only from this
// machine: 127/8, ::1 (with or without brackets) and "localhost". Other names
// are not resolved.
bool IsLoopback(absl::string_view host);

// The tasks of a cluster and their addresses.
//
// An immutable value: safe from any thread; copying costs as much as copying
// its strings. Invariants: at least one ps; at least one replica; at most one
// chief; the indices of a job have no gaps and are below kMaxTasks; every
// address is well formed and occurs once, however it is spelled ("localhost" is
// 127.0.0.1; other names are not looked up).
class ClusterSpec {
 public:
  using Tasks = std::map<uint32_t, std::string>;

  static constexpr uint32_t kMaxTasks = 65536;

  // Parses TensorFlow's JSON, wrapped or not. In a list, an address may stand
  // for several addresses, as in FromHosts. In the wrapped form, everything but
  // "cluster" is ignored.
  // Errors: INVALID_ARGUMENT, naming what is wrong and where.
  static absl::StatusOr<ClusterSpec> FromJson(absl::string_view json);

  // Parses lists of addresses, separated by commas; a list is empty if the job
  // has no tasks. An address with a number in braces, "ps-{N}.net:2222", stands
  // for N addresses, which have 0 to N - 1 in place of the braces. Errors: as
  // FromJson.
  static absl::StatusOr<ClusterSpec> FromHosts(absl::string_view ps_hosts,
                                               absl::string_view worker_hosts,
                                               absl::string_view chief_hosts);

  // Addresses by job and index. Jobs without tasks are not included.
  const std::map<std::string, Tasks>& jobs() const { return jobs_; }

  uint32_t num_ps() const;
  // The chief and the workers.
  uint32_t num_replicas() const {
    return static_cast<uint32_t>(replicas_.size());
  }

  // Whether the spec has the task. Evaluators need not be listed, because no
  // task calls them.
  // Errors: INVALID_ARGUMENT, saying which tasks the spec has instead.
  absl::Status CheckTask(const TaskId& task) const;

  // The address of `task`.
  // Errors: as CheckTask; INVALID_ARGUMENT also for an evaluator that is not
  // listed.
  absl::StatusOr<std::string> Address(const TaskId& task) const;

  // Checks that no ps can be reached from another machine: unencrypted traffic
  // must not leave this machine.
  // Errors: INVALID_ARGUMENT, naming the first ps that can be reached from
  // another machine.
  absl::Status CheckPsAreLocal() const;

  // The index of `task` among the replicas, from 0.
  // Errors: as CheckTask; INVALID_ARGUMENT also for a task that is not a
  // replica.
  absl::StatusOr<uint32_t> ReplicaIndex(const TaskId& task) const;

  // The task with replica index `replica`.
  // Errors: INVALID_ARGUMENT for an index past the last replica.
  absl::StatusOr<TaskId> ReplicaTask(uint32_t replica) const;

  // All replicas, by replica index.
  const std::vector<TaskId>& replicas() const { return replicas_; }

  // The spec as JSON that FromJson reads: lists of addresses, with the jobs in
  // alphabetical order.
  std::string ToJson() const;

 private:
  // Checks the class's invariants.
  static absl::StatusOr<ClusterSpec> Make(std::map<std::string, Tasks> jobs);

  explicit ClusterSpec(std::map<std::string, Tasks> jobs);

  std::map<std::string, Tasks> jobs_;
  std::vector<TaskId> replicas_;
};

// The flags with which a daemon learns about the cluster and its own task.
// Fields that were not given are empty.
struct ClusterFlags {
  // --cluster_spec: JSON, if its first character other than white space is '{';
  // otherwise the path of a file with JSON.
  std::string cluster_spec;
  // --ps_hosts, --worker_hosts, --chief_hosts.
  std::string ps_hosts;
  std::string worker_hosts;
  std::string chief_hosts;
  // --job_name and --task_index.
  std::string job_name;
  std::optional<int64_t> task_index;
};

struct ResolvedTask {
  ClusterSpec cluster;
  TaskId task;
};

// The cluster that the flags describe or, if they describe none, `tf_config`,
// the value of the environment variable TF_CONFIG (empty if not set). Does not
// read the environment, and no file except that of --cluster_spec. TF_CONFIG is
// not even parsed if the flags name the cluster.
// Errors: INVALID_ARGUMENT when nothing names a cluster, when both
// --cluster_spec and one of the --*_hosts flags do, and as FromJson and
// FromHosts; NOT_FOUND when the file cannot be read. Each error names the flag
// or TF_CONFIG.
absl::StatusOr<ClusterSpec> ResolveCluster(const ClusterFlags& flags,
                                           absl::string_view tf_config);

// The cluster, as in ResolveCluster, and this process's task: from --job_name
// and --task_index or, if both are missing, from TF_CONFIG.
// Errors: as ResolveCluster; INVALID_ARGUMENT when nothing names a task, when
// one of the two flags is missing, and when the cluster has no such task.
absl::StatusOr<ResolvedTask> ResolveTask(const ClusterFlags& flags,
                                         absl::string_view tf_config);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_CLUSTER_SPEC_H_
