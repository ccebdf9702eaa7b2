// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVER_H_
#define HOLDFAST_PS_SERVER_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"
#include "common/process/http_server.h"
#include "common/rpc/credentials.h"
#include "common/rpc/timeouts.h"

namespace holdfast {

// One ps task of a cluster: its shard, in task 0 also the job's coordinator,
// and the gRPC server in front of them.
//
// Thread-safe.
class Server {
 public:
  struct Options {
    ClusterSpec cluster;
    // A task of job "ps".
    TaskId task;
    // The address to listen on, host:port, for machines whose name in the
    // ClusterSpec is not one of their own addresses. If it is empty, the server
    // listens on the task's address in the ClusterSpec.
    std::string listen_address;
    // This task's credentials. By default, nothing is encrypted, and callers
    // are not authenticated.
    Credentials credentials;
    // Whether to accept unencrypted connections from other machines.
    bool insecure = false;
    // Where to serve /healthz and /readyz over HTTP. /healthz says whether the
    // threads of the shard and the coordinator make progress, /readyz whether
    // the variables exist, initialized or restored.
    std::optional<HttpServer::Options> http;
    // Where to serve status for people and their tools; task 0 has /status.json
    // there, the job's status as GetStatus returns it.
    std::optional<HttpServer::Options> status_port;
    // How long a task may be silent before it counts as lost. A longer lease
    // tolerates longer pauses but detects failures later. Used by task 0.
    absl::Duration lease = absl::Seconds(10);
    // How long the job may wait for tasks that have not started.
    absl::Duration start_timeout = kDefaultTimeout;
    // How long a step may stay open if the job does not say. Used by task 0.
    absl::Duration step_timeout = kDefaultTimeout;
    // How long a lost task may take to come back if the job does not say. This
    // ps waits as long for the coordinator, until the ps knows the job's value.
    // With a longer time, failures are reported later.
    absl::Duration recovery_timeout = kDefaultTimeout;
    // Where the job's state is saved and restored from: one directory for all
    // ps of a job, and for no other job. If it is empty, the job has no
    // checkpoints, and ends when a ps is lost.
    std::string checkpoint_dir;
    // Folder of a checkpoint, possibly of another job. A new job takes from it
    // the first values of variables with the same name and shape. Used by task
    // 0. Requires checkpoint_dir. Empty if there is none.
    std::string warm_start;
    // Whether the optimizer slots of these variables and the number of updates
    // are taken from that checkpoint as well. Used by task 0. Requires
    // warm_start.
    bool warm_start_slots = false;
    // Folder in which the job's progress is written for TensorBoard. Used by
    // task 0. If it is empty, nothing is written.
    std::string tensorboard_dir;
    // How long a ps that is told to stop waits for a last checkpoint.
    absl::Duration grace = absl::Seconds(20);
    // Memory limit for this ps's share of the job, in bytes; a job that needs
    // more is refused. 0 means no limit.
    int64_t memory_limit_bytes = 0;
    // Whether tensors of processes on the same host pass through shared memory
    // if that is possible (docs/protocol/same_host.md).
    bool same_host = true;
    // The directory in which these processes find this ps's socket; its
    // permissions are left as they are. If it is empty, a directory that only
    // this user can access is used.
    std::string same_host_dir;
    // The number of threads that apply updates, including the shard's own,
    // which applies small updates alone. More threads are faster, until memory
    // bandwidth is the limit.
    int update_threads = 1;
    // The number of threads that serve calls. More threads serve more
    // connections at a time, but make a single call slower
    // (common/rpc/call_queue.h).
    int rpc_threads = 1;
    // The nonce of this life of the ps, which only its coordinator learns. Set
    // by tests that speak in the coordinator's name; 0 means a random one.
    uint64_t nonce = 0;
    // How long it may take to send the last answers once the job has ended.
    // With a longer time, the server waits longer for a peer that does not
    // read.
    absl::Duration drain_timeout = absl::Seconds(3);
  };

  // Starts listening, and begins to join the job in the background; other tasks
  // may start later.
  // Errors name the task, and the address if that is at fault: INVALID_ARGUMENT
  // when the cluster has no such ps, or the credentials are another task's;
  // those of ListenAddress for the address to listen on; those of
  // CheckpointDirectory and, on task 0, ALREADY_EXISTS when another coordinator
  // holds the directory, DATA_LOSS when its journal is damaged, and
  // FAILED_PRECONDITION when it has checkpoints but no journal.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Options options);

  // Ends this ps without telling the other tasks: to them it looks as if the
  // process had died.
  ~Server();

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The port of Options::status_port; 0 if that is absent.
  uint16_t status_port() const;

  // Waits until this ps has nothing more to do, and shuts it down in an orderly
  // way. Returns OK when the job is DONE or STOPPED; ABORTED with the reason
  // when it has failed; CANCELLED when this ps was told to stop, and the job
  // may go on with another in its place; UNAVAILABLE when the coordinator is
  // unreachable or does not take this ps back, and the job may go on without
  // it; INVALID_ARGUMENT when something other than the coordinator is at its
  // address; or another error of Session::Open. Call it once, from one thread.
  absl::Status Wait();
  // How the job has ended, for people. Valid once Wait has returned OK.
  std::string end() const;

  // Ends this ps after a last checkpoint. Without a checkpoint directory, ends
  // the whole job for `reason`, which the other tasks are told. After the job's
  // end, ends this ps alone. Returns at once; Wait returns at most `grace` or a
  // lease later.
  void Stop(const std::string& reason);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVER_H_
