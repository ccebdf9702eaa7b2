// SPDX-License-Identifier: Apache-2.0

// The configuration of a worker: its flags, TF_CONFIG and the job file.
#ifndef HOLDFAST_WORKER_WORKER_CONFIG_H_
#define HOLDFAST_WORKER_WORKER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/cluster_spec.h"
#include "common/job/job_file.h"
#include "common/job/task_id.h"
#include "common/process/daemon.h"
#include "common/process/http_server.h"
#include "common/rpc/credentials.h"
#include "common/trace/trace.h"
#include "proto/job.pb.h"
#include "worker/backend/device.h"
#include "worker/job_data.h"

// A program that links this also has the flags --seed, --tf32,
// --intra_op_threads, --input_threads, --data_cache_dir and --result_file.
ABSL_DECLARE_FLAG(std::string, job);
ABSL_DECLARE_FLAG(std::string, device);

namespace holdfast {

// The resources that a worker may use on its machine, and where its result
// goes.
struct WorkerResources {
  Device device;
  DeviceOptions device_options;
  DataOptions reading;
  std::string result_file;
};

// The configuration in the flags and the job file, checked for consistency.
struct WorkerConfig : WorkerResources {
  ClusterSpec cluster;
  TaskId task;
  uint32_t replica = 0;
  bool is_chief = false;
  Credentials credentials;
  SameHostFlags same_host;
  // The digest of the job before its open fields are resolved, by which the
  // coordinator checks that all workers have the same job.
  std::string job_digest;
  proto::Job job;
  Replicas replicas;
  std::optional<HttpServer::Options> http;
  std::optional<HttpServer::Options> status_port;
  // Null if nothing is traced.
  Tracer* tracer = nullptr;

  bool evaluates() const { return task.job == kEvaluatorJob; }
};

// Sets everything except the device from the flags. Errors: INVALID_ARGUMENT
// for a wrong flag; those of DataCache::Open.
absl::Status ReadResources(WorkerResources* resources);

// Reads and checks everything except `tracer`. Errors: those of ReadResources,
// TaskFromFlags, LoadJobFile and ChooseDevice; INVALID_ARGUMENT for a wrong
// flag or a job file that does not suit the cluster.
absl::StatusOr<WorkerConfig> ReadWorkerConfig();

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_WORKER_CONFIG_H_
