// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_LEAVER_H_
#define HOLDFAST_WORKER_LEAVER_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/cluster.h"
#include "common/trace/trace_parts.h"

namespace holdfast {

// Leaves the cluster and ends the process when the process is told to stop.
// Thread-safe.
class Leaver {
 public:
  // Sets the cluster to leave, which must not be destroyed before EndsByItself
  // has been called.
  void SetCluster(Cluster* cluster);

  // Keeps the trace for the rest of this object's life, makes sure that it is
  // written to its file, and returns its tracer.
  Tracer* KeepTrace(std::unique_ptr<TraceFile> trace);

  // Notes that the process is ending by itself, with its own exit code.
  void EndsByItself();

  // Leaves the cluster and ends the process with kExitRestart, unless the
  // process is ending by itself. Abandons whatever the training thread computes
  // or waits for. `signal` is the reason, for the log.
  void Stop(const std::string& signal);

 private:
  absl::Mutex mutex_;
  Cluster* cluster_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<TraceFile> trace_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_LEAVER_H_
