// SPDX-License-Identifier: Apache-2.0

// A worker's HTTP servers, for probes and metrics.
#ifndef HOLDFAST_WORKER_WORKER_HTTP_H_
#define HOLDFAST_WORKER_WORKER_HTTP_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/cluster.h"
#include "client/phase_meter.h"
#include "common/job/task_id.h"
#include "common/process/http_server.h"
#include "worker/backend/cuda/gpu_usage.h"
#include "worker/backend/device.h"

namespace holdfast {

// Tracks whether the worker takes part in its job. Thread-safe.
class Readiness {
 public:
  // Sets the cluster that the worker takes part in. Null: the worker is in no
  // cluster, or has left it.
  void SetCluster(const Cluster* cluster) {
    absl::MutexLock lock(&mutex_);
    cluster_ = cluster;
  }

  // Returns OK if the worker takes part in its job. Errors: UNAVAILABLE
  // otherwise.
  absl::Status Check() const;

 private:
  mutable absl::Mutex mutex_;
  const Cluster* cluster_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// The metrics of a worker, for Prometheus. Thread-compatible: only the status
// port's thread calls Text().
class Scrape {
 public:
  // `meter` must outlive the object.
  Scrape(const TaskId& task, const Device& device, const PhaseMeter* meter);

  std::string Text() const;

 private:
  const TaskId task_;
  const PhaseMeter& meter_;
  const std::vector<int> gpus_;
  const GpuMonitor gpu_monitor_;
};

// The running servers. A server is null if the flags do not ask for it.
struct HttpServers {
  std::unique_ptr<HttpServer> probes;
  std::unique_ptr<HttpServer> status;
};

struct HttpOptions {
  TaskId task;
  // The options from --http_port (probes) and --status_port (status). Absent:
  // the flag is not set.
  std::optional<HttpServer::Options> probes;
  std::optional<HttpServer::Options> status;
};

// Starts the servers that `options` ask for. `readiness` and `scrape` must
// outlive the servers.
// Errors: those of HttpServer::Start, with the name of the flag.
absl::Status StartHttp(const HttpOptions& options, const Readiness& readiness,
                       const Scrape& scrape, HttpServers* servers);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_WORKER_HTTP_H_
