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
// and the gRPC server before them.
//
// Thread-safe.
class Server {
 public:
  struct Options {
    ClusterSpec cluster;
    // Of job "ps".
    TaskId task;
    // Where to listen, host:port. Empty: where the ClusterSpec says that the
    // task is. For machines whose name in the ClusterSpec is not an address of
    // theirs.
    std::string listen_address;
    // Of this task. Default: nothing is encrypted, everybody is believed.
    Credentials credentials;
    // Whether to listen where other machines may connect, unencrypted.
    bool insecure = false;
    // Where /healthz and /readyz are served over HTTP: whether the threads of
    // shard and coordinator come to rest, and whether the variables are there,
    // made or restored.
    std::optional<HttpServer::Options> http;
    // Where people and their tools look: task 0 has /status.json there, the
    // job's status as GetStatus tells it.
    std::optional<HttpServer::Options> status_port;
    // How long a task may be silent before it counts as lost. A longer one
    // forgives longer pauses, and tells of a death later. Of task 0.
    absl::Duration lease = absl::Seconds(10);
    // How long the job may wait for tasks that have not started.
    absl::Duration start_timeout = kDefaultTimeout;
    // How long a step may stay open, where the job does not say. Of task 0.
    absl::Duration step_timeout = kDefaultTimeout;
    // How long a lost task may take to come back, where the job does not say;
    // also the coordinator, for this ps, until it knows the job's. A longer one
    // tells of a failure later.
    absl::Duration recovery_timeout = kDefaultTimeout;
    // Where the job's state is saved, and taken up again: one directory for all
    // ps of a job, and for no other job. Empty: the job has no checkpoints, and
    // ends with the loss of a ps.
    std::string checkpoint_dir;
    // A checkpoint's folder, also of another job: a job that begins has from
    // there the first values of variables with the same name and shape. Of task
    // 0. Needs checkpoint_dir. Empty: none.
    std::string warm_start;
    // Whether optimizer slots of these variables, and the number of updates,
    // are taken from there, too. Set on task 0. Needs warm_start.
    bool warm_start_slots = false;
    // Folder in which the course of the job is written for TensorBoard. Of task
    // 0. Empty: nowhere.
    std::string tensorboard_dir;
    // How long a ps that is told to stop waits for a last checkpoint.
    absl::Duration grace = absl::Seconds(20);
    // What this ps' share of the job may take. A job that needs more is
    // refused. 0: no limit.
    int64_t memory_limit_bytes = 0;
    // Whether tensors of processes on the same host pass through shared memory,
    // where that can be had (docs/protocol/same_host.md).
    bool same_host = true;
    // Where these find this ps' socket: a directory, used with the permissions
    // that it has. Empty: one that is this user's alone.
    std::string same_host_dir;
    // Threads that apply updates, the shard's own among them; what is small it
    // applies alone. More are faster as long as memory is.
    int update_threads = 1;
    // Threads that serve calls. More serve more connections at a time, and one
    // call more slowly (common/rpc/call_queue.h).
    int rpc_threads = 1;
    // Of this life of the ps, which it tells its coordinator alone; for tests
    // that speak in the coordinator's name. 0: random.
    uint64_t nonce = 0;
    // How long answers may take to leave once the job has ended. A longer one
    // waits longer for a peer that does not read.
    absl::Duration drain_timeout = absl::Seconds(3);
  };

  // Listens, and begins to join in the background; other tasks may start later.
  // Errors name the task, and the address where that is at fault:
  // INVALID_ARGUMENT when the cluster has no such ps, or the credentials are
  // those of another task; as ListenAddress for
  // where it listens; those of CheckpointDirectory, of task 0 also
  // ALREADY_EXISTS when another coordinator holds it, DATA_LOSS when its
  // journal is damaged, and FAILED_PRECONDITION when it holds checkpoints and
  // no journal.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Options options);

  // As Stop, and does not tell the other tasks: to them it is as if the process
  // had died.
  ~Server();

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where Options::status_port listens; 0 where that is absent.
  uint16_t status_port() const;

  // Waits until this ps has no more to do, and stops it in order. OK when the
  // job is DONE or STOPPED; ABORTED with the reason when it has failed;
  // CANCELLED when this ps was told to stop, and the job may go on with another
  // in its place; UNAVAILABLE when the coordinator is out of reach or does not
  // take this ps back, and the job may go on without it; INVALID_ARGUMENT when
  // something else is at its address; or another error of Session::Open. To be
  // called by one thread, once.
  absl::Status Wait();
  // Once Wait has returned OK: how the job has ended, for people.
  std::string end() const;

  // Ends this ps, after a last checkpoint; without a checkpoint directory, the
  // job for `reason`, which the other tasks are told. After the job's end, this
  // ps alone. Returns at once; Wait returns at most `grace` or a lease later.
  void Stop(const std::string& reason);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVER_H_
